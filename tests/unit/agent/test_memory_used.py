"""The most memory that a container used, as its cgroup tells it."""

from pathlib import Path

import pytest

from tests.unit.agent.harness import load

GIB = 2**30


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"memory.peak": 62 * GIB, "memory.max": 64 * GIB}, "it used 62.0 of its 64.0 GiB"),
        ({"memory.peak": 62 * GIB, "memory.max": "max"}, ""),
        (
            {"memory/memory.max_usage_in_bytes": 1 * GIB, "memory/memory.limit_in_bytes": 2 * GIB},
            "it used 1.0 of its 2.0 GiB",
        ),
        ({"memory.max": 64 * GIB}, ""),
    ],
    ids=["v2", "no limit", "v1", "an older kernel"],
)
def test_the_peak_is_told_beside_the_limit(tmp_path: Path, files: dict[str, object], words: str) -> None:
    for name, value in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{value}\n")
    assert load("dso_processes").memory_used(str(tmp_path)) == words
