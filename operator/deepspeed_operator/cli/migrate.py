"""`dsjob migrate`."""

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from deepspeed_operator.cli.report import Failure
from deepspeed_operator.cli.rewriting import Rewritten, rewritten
from deepspeed_operator.cli.show import failure_lines
from deepspeed_operator.cli.sources import STDIN, Content, PlacedUnreadable, read
from deepspeed_operator.dsconfig.changes import LONG_AGO
from deepspeed_operator.dsconfig.migration import OLDEST, Kind, Step
from deepspeed_operator.dsconfig.tree import Unreadable
from deepspeed_operator.dsconfig.versions import numbers_of

FINE, LEFT_TO_YOU, UNREADABLE = 0, 1, 2
_COLOURS: Final = {Kind.REWRITTEN: "green", Kind.YOURS: "red", Kind.DEFAULT: "yellow", Kind.BEHAVIOUR: "yellow"}


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--to", "new", metavar="VERSION", required=True, help="The DeepSpeed version to rewrite for.")
@click.option(
    "--from", "old", metavar="VERSION", help="The version it ran with; else the job's, else the oldest supported."
)
@click.option("--write", is_flag=True, help="Write the file instead of showing a diff.")
@click.option("--keep-defaults", is_flag=True, help="Write the old value where a default changed.")
def command(*, file: str, new: str, old: str | None, write: bool, keep_defaults: bool) -> None:
    """Rewrite the configurations in FILE for a newer DeepSpeed, and say what each change means.

    FILE is a ds_config.json, a DeepSpeedJob, or YAML with several documents. Order and comments stay. Shows a diff
    unless --write is given. Exits with 0 if nothing is left to do, 1 if something is yours to decide, 2 if FILE cannot
    be read.
    """
    _refuse_senseless(file, old, new, write)
    content = _read(file)
    text, results = rewritten(content, old, new, keep_defaults=keep_defaults)
    for result in results:
        for line in _result_lines(file, result, new):
            click.echo(line)
        click.echo()
    before = content.source.text.content
    if write:
        if text != before:
            Path(file).write_bytes(text.encode())
        click.echo(f"{file}: {'written' if text != before else 'nothing to write'}")
    else:
        click.echo("".join(_diff(before, text, file)), nl=False)
    left = any(result.obstacle or any(step.kind is Kind.YOURS for step in result.steps) for result in results)
    sys.exit(LEFT_TO_YOU if left else FINE)


def _refuse_senseless(file: str, old: str | None, new: str, write: bool) -> None:
    given = {version: numbers_of(version) for version in (old or OLDEST, new)}
    for version, numbers in given.items():
        if numbers is None:
            raise click.BadParameter(f"{version} is no version; write 0.19.8, for example.")
    if old is not None and (numbers_of(old) or ()) > (numbers_of(new) or ()):
        raise click.BadParameter(f"{old} is newer than {new}: configurations are rewritten for newer versions only.")
    if write and file == STDIN:
        raise click.BadParameter("standard input cannot be written; leave out --write.")


def _read(file: str) -> Content:
    try:
        return read(file)
    except Unreadable as error:
        placed = error if isinstance(error, PlacedUnreadable) else None
        source = placed.source if placed is not None else None
        for line in failure_lines(Failure(file, error.message, error.fix, source, error.position)):
            click.echo(line)
        sys.exit(UNREADABLE)


def _result_lines(file: str, result: Rewritten, new: str) -> Iterator[str]:
    yield f"{click.style(file, bold=True)}: {result.title}, DeepSpeed {result.old or OLDEST} → {new}"
    if result.obstacle is not None:
        yield f"  {click.style('not rewritten', fg='red', bold=True)}: {result.obstacle}"
    elif not result.steps:
        yield "  nothing changes for it"
    for step in result.steps:
        yield _step_line(step)


def _step_line(step: Step) -> str:
    since = f" (since {step.since})" if step.since != LONG_AGO else ""
    path = f"{click.style(step.path, bold=True)}: " if step.path else ""
    kind = click.style(step.kind, fg=_COLOURS[step.kind], bold=True)
    return f"  {kind}{since}: {path}{step.message} {step.fix}".rstrip()


def _diff(before: str, after: str, file: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), file, file)
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
