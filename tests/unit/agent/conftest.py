import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Gang
from tests.unit.agent.warm import Pod

PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Callable[..., Gang]]:
    """Makes gangs, and ends what is left of them."""
    made: list[Gang] = []

    def make(**fields: Any) -> Gang:
        directory = tmp_path / f"gang-{len(made)}"
        directory.mkdir()
        made.append(Gang(directory, **fields))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pod]:
    prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    monkeypatch.chdir(tmp_path)
    made = Pod(tmp_path)
    yield made
    made.close()
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
