"""`dsjob migrate`."""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deepspeed_operator.cli.paint import Colour, painted
from deepspeed_operator.cli.report import failed
from deepspeed_operator.cli.rewriting import Rewritten, rewritten
from deepspeed_operator.cli.show import failure_lines
from deepspeed_operator.cli.sources import STDIN, Content, read
from deepspeed_operator.dsconfig.changes import LONG_AGO
from deepspeed_operator.dsconfig.migration import OLDEST, Kind, Step
from deepspeed_operator.dsconfig.tree import Unreadable
from deepspeed_operator.dsconfig.versions import SUPPORTED, numbers_of

FINE, LEFT_TO_YOU, UNREADABLE = 0, 1, 2
_COLOURS: Final[dict[Kind, Colour]] = {
    Kind.REWRITTEN: "green",
    Kind.YOURS: "red",
    Kind.DEFAULT: "yellow",
    Kind.BEHAVIOUR: "yellow",
}


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "FILE is a ds_config.json, a DeepSpeedJob, or YAML with several documents. Order and comments stay. Ends with "
        "0 if nothing is left to do, 1 if something is yours to decide, 2 if FILE cannot be read."
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--to", metavar="VERSION", required=True, help="the DeepSpeed version to rewrite for")
    parser.add_argument("--from", dest="old", metavar="VERSION", help=f"the one before; else the job's, else {OLDEST}")
    parser.add_argument("--write", action="store_true", help="write the file instead of showing a diff")
    parser.add_argument("--keep-defaults", action="store_true", help="write the old value where a default changed")


def run(arguments: argparse.Namespace) -> int:
    """Rewrite the file, or show how."""
    file, old, new = arguments.file, arguments.old, arguments.to
    senseless = _senseless(file, old, new, arguments.write)
    if senseless:
        print(f"dsjob migrate: {senseless}", file=sys.stderr)
        return UNREADABLE
    content = _read(file)
    if content is None:
        return UNREADABLE
    text, results = rewritten(content, old, new, keep_defaults=arguments.keep_defaults)
    if not results:
        print(f"{file}: nothing to rewrite: no DeepSpeedJob and no configuration is in it")
    elif (numbers_of(new) or ()) > (numbers_of(SUPPORTED[-1]) or ()):
        print(f"DeepSpeed {new} is newer than {SUPPORTED[-1]}, the newest known here: what it changes is not told")
    for result in results:
        print(*_result_lines(file, result, new), "", sep="\n")
    before = content.source.text.content
    if arguments.write:
        if text != before:
            Path(file).write_bytes(text.encode())
        print(f"{file}: {'written' if text != before else 'nothing to write'}")
    else:
        print("".join(_diff(before, text, file)), end="")
    left = any(result.obstacle or any(step.kind is Kind.YOURS for step in result.steps) for result in results)
    return LEFT_TO_YOU if left else FINE


def _senseless(file: str, old: str | None, new: str, write: bool) -> str | None:
    for version in (old or OLDEST, new):
        if numbers_of(version) is None:
            return f"{version} is no version; write 0.19.8, for example."
    if (numbers_of(old or OLDEST) or ()) > (numbers_of(new) or ()):
        return f"{old or OLDEST} is newer than {new}: configurations are rewritten for newer versions only."
    if write and file == STDIN:
        return "standard input cannot be written; leave out --write."
    return None


def _read(file: str) -> Content | None:
    try:
        return read(file)
    except Unreadable as error:
        print(*failure_lines(failed(file, error)), sep="\n")
        return None


def _result_lines(file: str, result: Rewritten, new: str) -> Iterator[str]:
    yield f"{painted(file, bold=True)}: {result.title}, DeepSpeed {result.old or OLDEST} → {new}"
    if result.obstacle is not None:
        yield f"  {painted('not rewritten', 'red', bold=True)}: {result.obstacle}"
    elif not result.steps:
        yield "  nothing changes for it"
    for step in result.steps:
        yield _step_line(step)


def _step_line(step: Step) -> str:
    since = f" (since {step.since})" if step.since != LONG_AGO else ""
    path = f"{painted(step.path, bold=True)}: " if step.path else ""
    kind = painted(step.kind, _COLOURS[step.kind], bold=True)
    return f"  {kind}{since}: {path}{step.message} {step.fix}".rstrip()


def _diff(before: str, after: str, file: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), file, file)
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
