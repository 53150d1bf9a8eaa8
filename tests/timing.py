"""A pytest plugin (`-p tests.timing`) that says where the time of `make test` went.

It prints, below the test results, how long took what went before, by the notes in the file that DSJ_TIMING names, each
directory of tests, all of it, and the seconds that a test measured and noted with `record_property`.
"""

import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

from dev.preparation import AT_ONCE
from tests.beside import BESIDE

_LOADED = time.time()
_BY_DIRECTORY: dict[str, float] = defaultdict(float)
_MEASURED: list[tuple[str, object]] = []


def notes() -> Path | None:
    """Return the file in which the phases before pytest left their times, if this is a `make test`."""
    return Path(os.environ["DSJ_TIMING"]) if os.environ.get("DSJ_TIMING") else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    directory = "/".join(Path(report.nodeid.split("::")[0]).parts[:2])
    _BY_DIRECTORY[f"{AT_ONCE if directory == BESIDE else ''}{directory}"] += report.duration
    if report.when == "teardown":
        _MEASURED.extend(report.user_properties)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    file = notes()
    before = [line.split("\t") for line in file.read_text().splitlines()] if file and file.exists() else []
    rows = [*((name, float(seconds)) for name, seconds in before), *_BY_DIRECTORY.items()]
    total = time.time() - float(os.environ.get("DSJ_BEGAN", _LOADED))
    apart = sum(seconds for name, seconds in rows if not name.startswith(AT_ONCE))
    rows += [("everything between these", total - apart), ("in all", total)]
    terminalreporter.section("where the time went")
    for name, seconds in rows:
        terminalreporter.write_line(f"{seconds:8.1f} s  {name}")
    for name, seconds in _MEASURED:
        terminalreporter.write_line(f"measured: {seconds:.1f} s  {name}")
