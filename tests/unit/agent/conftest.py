from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Gang


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
