"""Says where the time of `make test` went: what is before the cluster's tests, these by directory, and all of it.

`python -m tests.timing build` makes what the tests need and notes how long each part took; the same module, as a
pytest plugin (`-p tests.timing`), prints those notes and its own below the test results, and the seconds that a test
measured and noted with `record_property`.
"""

import os
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.beside import BESIDE

# What went on beside others is not added up.
_AT_ONCE = "  at once: "
_LOADED = time.time()
_BY_DIRECTORY: dict[str, float] = defaultdict(float)
_MEASURED: list[tuple[str, object]] = []


def notes() -> Path | None:
    """Return the file in which the phases before pytest left their times, if this is a `make test`."""
    return Path(os.environ["DSJ_TIMING"]) if os.environ.get("DSJ_TIMING") else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    directory = "/".join(Path(report.nodeid.split("::")[0]).parts[:2])
    _BY_DIRECTORY[f"{_AT_ONCE if directory == BESIDE else ''}{directory}"] += report.duration
    if report.when == "teardown":
        _MEASURED.extend(report.user_properties)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    file = notes()
    before = [line.split("\t") for line in file.read_text().splitlines()] if file and file.exists() else []
    rows = [*((name, float(seconds)) for name, seconds in before), *_BY_DIRECTORY.items()]
    total = time.time() - float(os.environ.get("DSJ_BEGAN", _LOADED))
    apart = sum(seconds for name, seconds in rows if not name.startswith(_AT_ONCE))
    rows += [("everything between these", total - apart), ("in all", total)]
    terminalreporter.section("where the time went")
    for name, seconds in rows:
        terminalreporter.write_line(f"{seconds:8.1f} s  {name}")
    for name, seconds in _MEASURED:
        terminalreporter.write_line(f"measured: {seconds:.1f} s  {name}")


def build() -> None:
    """Build the cluster's programs and all images; a part that is built already takes a second."""
    # Imported late: pytest loads this module in runs that need no cluster.
    from tests.demo import preparation

    file = notes()
    begin = time.monotonic()
    parts = preparation.take(preparation.STEPS)
    with file.open("a") if file else sys.stdout as output:
        output.write(f"build\t{time.monotonic() - begin:.1f}\n")
        for name, seconds in parts.items():
            output.write(f"{_AT_ONCE}{name}\t{seconds:.1f}\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit("usage: python -m tests.timing build")
    build()
