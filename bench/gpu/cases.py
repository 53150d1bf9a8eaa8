"""What may happen to a run of two ranks that train 1.345 B parameters: they are told to end, or one of them hangs."""

import os
from dataclasses import dataclass
from typing import Final

from bench.gpu.configurations import Configuration, chosen

TOLD: Final = "told"
# The learned limit holds once every rank has made 16 steps.
LEARNS_AFTER: Final = 20
TIMED_STEPS: Final = 20 if os.environ.get("BENCH_ONE_GPU") else 60


@dataclass(frozen=True, slots=True)
class Case:
    """`how`: TOLD to end, or what rank 1 does instead of another step. `deadline`: seconds, None for a learned limit.

    `meets`: the others call an all-reduce of their own and wait for the GPU, in place of another step.
    """

    name: str
    stage: int
    how: str
    deadline: int | None = None
    meets: bool = False
    loads: bool = False

    @property
    def steps(self) -> int:
        """How many are made before it happens."""
        if self.how == TOLD:
            return TIMED_STEPS
        return LEARNS_AFTER if self.deadline is None else 5

    def configuration(self) -> Configuration:
        """A micro batch that keeps a GPU busy where steps are timed, else one that leaves room for other runs."""
        micro = 16 if self.how == TOLD else 1
        return chosen([Configuration(f"large-s{self.stage}", "large", self.stage, micro=micro, fused=False)], [])[0]


CASES: Final = (
    Case("told-1", 1, TOLD),
    Case("told-3", 3, TOLD),
    Case("learned", 3, "asleep", loads=True),
    Case("asleep", 1, "asleep", 15, loads=True),
    Case("collective", 3, "asleep", 15, meets=True),
    Case("spinning", 3, "spinning", 15),
    Case("stopped", 1, "stopped", 15),
)


def named(name: str) -> Case:
    """The case of that name."""
    return next(each for each in CASES if each.name == name)
