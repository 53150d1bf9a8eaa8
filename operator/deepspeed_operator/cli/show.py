"""Reports for people: each finding with the lines that it is about, the place underlined."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from deepspeed_operator.api.status import Level
from deepspeed_operator.cli.paint import Colour, columns, painted
from deepspeed_operator.cli.places import Span
from deepspeed_operator.cli.report import InputFailure, Placed, Report
from deepspeed_operator.cli.sources import SourceText
from deepspeed_operator.dsconfig.wording import plural

_COLOURS: Final[dict[Level, Colour]] = {Level.ERROR: "red", Level.WARNING: "yellow", Level.ADVICE: "cyan"}
_WIDEST: Final = 120
_MARGIN: Final = 10  # columns of the line's number
_NARROWEST: Final = 20
_MOST: Final = 100
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def report_lines(report: Report) -> Iterator[str]:
    """Yield the lines about one job or configuration."""
    yield f"{_header(report)}: {_count(report.findings) or 'no findings'}"
    for placed in report.findings[:_MOST]:
        yield from _finding_lines(placed, report.item.source)
    if len(report.findings) > _MOST:
        yield f"  and {len(report.findings) - _MOST} more findings; -o json has all of them"


def error_lines(report: Report) -> Iterator[str]:
    """Yield the lines about the errors of one job or configuration."""
    for placed in report.findings[:_MOST]:
        if placed.finding.level is Level.ERROR:
            yield from _finding_lines(placed, report.item.source)


def failure_lines(failure: InputFailure) -> Iterator[str]:
    """Yield the lines about a file that is no configuration."""
    where = failure.name
    if failure.source is not None and failure.position is not None:
        line, column = failure.source.text.place(failure.position)
        where += f":{line + 1}:{column + 1}"
    yield f"{where}: {painted('unreadable', 'red', bold=True)}: {failure.message}. {failure.fix}".rstrip()
    if failure.source is not None and failure.position is not None:
        yield from _excerpt(failure.source, (failure.position, failure.position + 1), "red")


def summary_line(reports: Sequence[Report], failures: Sequence[InputFailure]) -> str:
    """Return the last line."""
    if not reports and not failures:
        return "nothing to judge: no DeepSpeedJob and no configuration is in the files"
    found = _count([placed for report in reports for placed in report.findings]) or "no findings"
    ignored = sum(report.ignored for report in reports)
    found += f", {ignored} ignored" if ignored else ""
    objects = plural(len(reports), "configuration")
    unreadable = f"; {plural(len(failures), 'file')} unreadable" if failures else ""
    return f"{objects} judged: {found}{unreadable}"


def _header(report: Report) -> str:
    parts = [f"{report.item.kind} {report.name}" if report.name else report.item.kind]
    if report.world is not None:
        nodes, slots = report.world.nodes, report.world.slots_per_node
        parts.append(f"{plural(nodes, 'node')} × {plural(slots, 'slot')}")
    elif not report.item.is_job:
        parts.append("any world (--nodes and --slots say which)")
    if report.world is not None or not report.item.is_job:
        parts.append(f"DeepSpeed {report.version}" if report.version else "any DeepSpeed")
    if report.accelerator:
        parts.append(report.accelerator)
    return f"{painted(report.item.source.name, bold=True)}: {', '.join(parts)}"


def _finding_lines(placed: Placed, source: SourceText) -> Iterator[str]:
    finding = placed.finding
    colour = _COLOURS[finding.level]
    path = f"{painted(_printable(finding.path), bold=True)}: " if finding.path else ""
    yield ""
    code = f"[{finding.code}]" if finding.code else ""
    yield f"{painted(f'{finding.level}{code}', colour, bold=True)}: {path}{_printable(finding.message)}"
    for span in placed.spans:
        yield from _excerpt(placed.source, span, colour, name=placed.source.name if placed.source != source else None)
    if finding.fix:
        yield f"  {painted('fix:', bold=True)} {_printable(finding.fix)}"


def _excerpt(source: SourceText, span: Span, colour: Colour, name: str | None = None) -> Iterator[str]:
    number, column = source.text.place(span[0])
    line = source.text.line(number)
    end = min(column + max(span[1] - span[0], 1), max(len(line), column + 1))
    room = max(columns(_WIDEST) - _MARGIN, _NARROWEST)
    cut = max(column - room // 3, 0) if len(line) > room else 0
    shown = _CONTROL.sub(" ", line[cut : cut + room])
    if cut:
        shown = "…" + shown[1:]
    if len(line) > cut + room:
        shown = shown[:-1] + "…"
    width = max(min(end, cut + room) - column, 1)
    if name is not None:
        yield f"  in {name}:"
    yield f"  {number + 1:>5} | {shown}"
    yield f"        | {' ' * (column - cut)}{painted('^' * width, colour)}"


def _count(findings: Sequence[Placed]) -> str:
    numbers = {level: sum(placed.finding.level is level for placed in findings) for level in Level}
    words = {
        level: f"{number} advice" if level is Level.ADVICE else plural(number, level)
        for level, number in numbers.items()
    }
    return ", ".join(words[level] for level, number in numbers.items() if number)


def _printable(text: str) -> str:
    return _CONTROL.sub(" ", text)
