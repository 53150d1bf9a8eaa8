"""Reports for programs. The format is documented; a change that breaks readers raises FORMAT."""

from collections.abc import Sequence
from typing import Any, Final

from deepspeed_operator.api.status import Level
from deepspeed_operator.cli.places import Span
from deepspeed_operator.cli.report import InputFailure, Placed, Report
from deepspeed_operator.cli.sources import SourceText

FORMAT: Final = 1


def record(reports: Sequence[Report], failures: Sequence[InputFailure]) -> dict[str, Any]:
    """Return everything that was found as plain data."""
    counts = {level.value: sum(report.count(level) for report in reports) for level in Level}
    return {
        "format": FORMAT,
        "documents": [_document(report) for report in reports],
        "unreadable": [_failure(failure) for failure in failures],
        "summary": {**counts, "ignored": sum(report.ignored for report in reports), "unreadable": len(failures)},
    }


def _document(report: Report) -> dict[str, Any]:
    return {
        "file": report.item.source.name,
        "line": report.item.source.text.place(report.item.root.start)[0] + 1,
        "kind": report.item.kind,
        "name": report.name,
        "deepspeedVersion": report.version,
        "accelerator": report.accelerator,
        "world": report.world.model_dump(by_alias=True, exclude_none=True) if report.world is not None else None,
        "batch": report.batch.model_dump(by_alias=True) if report.batch is not None else None,
        "findings": [_finding(placed) for placed in report.findings],
    }


def _finding(placed: Placed) -> dict[str, Any]:
    locations = [_location(placed.source, span) for span in placed.spans]
    return {**placed.finding.model_dump(mode="json", by_alias=True), "locations": locations}


def _location(source: SourceText, span: Span) -> dict[str, Any]:
    (line, column), (end_line, end_column) = source.text.place(span[0]), source.text.place(span[1])
    return {
        "file": source.name,
        "line": line + 1,
        "column": column + 1,
        "endLine": end_line + 1,
        "endColumn": end_column + 1,
    }


def _failure(failure: InputFailure) -> dict[str, Any]:
    line, column = None, None
    if failure.source is not None and failure.position is not None:
        line, column = (number + 1 for number in failure.source.text.place(failure.position))
    return {"file": failure.name, "message": failure.message, "fix": failure.fix, "line": line, "column": column}
