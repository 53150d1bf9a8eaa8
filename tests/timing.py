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
from tests.beside import STAGES, directory_of, stage_of

_LOADED = time.time()
_BY_DIRECTORY: dict[str, float] = defaultdict(float)
_BY_STAGE: dict[int, list[float]] = defaultdict(list)
_MEASURED: list[tuple[str, object]] = []


def notes() -> Path | None:
    """Return the file in which the phases before pytest left their times, if this is a `make test`."""
    return Path(os.environ["DSJ_TIMING"]) if os.environ.get("DSJ_TIMING") else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _BY_DIRECTORY[directory_of(report.nodeid)] += report.duration
    stage = stage_of(report.nodeid)
    if stage is not None:
        _BY_STAGE[stage] += [report.start, report.stop]
    if report.when == "teardown":
        _MEASURED.extend(report.user_properties)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    file = notes()
    before = [line.split("\t") for line in file.read_text().splitlines()] if file and file.exists() else []
    rows = [(name, float(seconds)) for name, seconds in before]
    for stage, moments in sorted(_BY_STAGE.items()):
        rows.append((f"the cluster, stage {stage + 1}", max(moments) - min(moments)))
        rows += [(f"{AT_ONCE}{name}", _BY_DIRECTORY.pop(name)) for name in STAGES[stage] if name in _BY_DIRECTORY]
    rows += [(f"{AT_ONCE}{name}, beside all of these", seconds) for name, seconds in _BY_DIRECTORY.items()]
    total = time.time() - float(os.environ.get("DSJ_BEGAN", _LOADED))
    apart = sum(seconds for name, seconds in rows if not name.startswith(AT_ONCE))
    rows += [("everything between these", total - apart), ("in all", total)]
    terminalreporter.section("where the time went")
    for name, seconds in rows:
        terminalreporter.write_line(f"{seconds:8.1f} s  {name}")
    for name, seconds in _MEASURED:
        terminalreporter.write_line(f"measured: {seconds:.1f} s  {name}")
