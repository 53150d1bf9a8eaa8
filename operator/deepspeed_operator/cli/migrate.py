"""`dsjob migrate`."""

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from deepspeed_operator.api.status import Level
from deepspeed_operator.cli.arguments import KNOWN, no_version
from deepspeed_operator.cli.paint import Colour, painted
from deepspeed_operator.cli.report import Options, failed
from deepspeed_operator.cli.rewriting import Rewritten, rewritten
from deepspeed_operator.cli.show import failure_lines
from deepspeed_operator.cli.sources import STDIN, Content, content_of, read, source_of
from deepspeed_operator.cli.validate import reports_of
from deepspeed_operator.dsconfig.changes import LONG_AGO
from deepspeed_operator.dsconfig.migration import OLDEST, Kind, Step
from deepspeed_operator.dsconfig.tree import UnreadableError
from deepspeed_operator.dsconfig.versions import SUPPORTED, numbers_of
from deepspeed_operator.dsconfig.wording import plural

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
        "0 if nothing is left to do, 1 if something is yours to decide or the version refuses it, 2 if FILE cannot be "
        "read."
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--to",
        metavar="VERSION",
        default=SUPPORTED[-1],
        help=f"the DeepSpeed version to rewrite for; else {SUPPORTED[-1]}, the newest known of {KNOWN}",
    )
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
    errors = list(_errors(content, text, results, new))
    for result, number in zip(results, errors, strict=True):
        print(*_result_lines(file, result, number, new), "", sep="\n")
    before = content.source.text.content
    if arguments.write:
        if text != before:
            Path(file).write_bytes(text.encode())
        print(f"{file}: {'written' if text != before else 'nothing to write'}")
    else:
        print("".join(_diff(before, text, file)), end="")
    left = any(result.obstacle or any(step.kind is Kind.YOURS for step in result.steps) for result in results)
    return LEFT_TO_YOU if left or any(errors) else FINE


def _errors(content: Content, text: str, results: Sequence[Rewritten], new: str) -> Iterator[int]:
    """Yield how many errors each configuration has for the version; 0 where that, or what it says then, is unknown."""
    if (numbers_of(new) or ()) > (numbers_of(SUPPORTED[-1]) or ()):
        yield from [0] * len(results)
        return
    reports = reports_of([content_of(source_of(content.source.name, text))], Options(version=new))
    for result, report in zip(results, reports, strict=True):
        findings = [each.finding for each in report.findings] if result.obstacle is None else []
        paths = [finding.path for finding in findings if finding.level is Level.ERROR]
        yield sum(path.startswith("spec.dsConfig") for path in paths) if report.item.is_job else len(paths)


def _senseless(file: str, old: str | None, new: str, write: bool) -> str | None:
    for version in (old or OLDEST, new):
        if numbers_of(version) is None:
            return f"{no_version(version)}."
    if (numbers_of(old or OLDEST) or ()) > (numbers_of(new) or ()):
        return f"{old or OLDEST} is newer than {new}: configurations are rewritten for newer versions only."
    if write and file == STDIN:
        return "standard input cannot be written; leave out --write."
    return None


def _read(file: str) -> Content | None:
    try:
        return read(file)
    except UnreadableError as error:
        print(*failure_lines(failed(file, error)), sep="\n")
        return None


def _result_lines(file: str, result: Rewritten, errors: int, new: str) -> Iterator[str]:
    yield f"{painted(file, bold=True)}: {result.title}, DeepSpeed {result.old or OLDEST} → {new}"
    if result.obstacle is not None:
        yield f"  {painted('not rewritten', 'red', bold=True)}: {result.obstacle}"
    elif not result.steps:
        yield "  nothing changes for it"
    for step in result.steps:
        yield _step_line(step)
    if errors:
        what = f"{plural(errors, 'error')}; dsjob validate --deepspeed-version {new} lists them"
        yield f"  {painted('not valid', 'red', bold=True)} for {new}: {what}"


def _step_line(step: Step) -> str:
    since = f" (since {step.since})" if step.since != LONG_AGO else ""
    path = f"{painted(step.path, bold=True)}: " if step.path else ""
    kind = painted(step.kind, _COLOURS[step.kind], bold=True)
    return f"  {kind}{since}: {path}{step.message} {step.fix}".rstrip()


def _diff(before: str, after: str, file: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), file, file)
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
