"""What a step is made of: at stage 3 computing goes on behind the Python that starts it."""

from dataclasses import replace

import pytest

from deepspeed_operator.plan.time.costs import Costs, Work
from tests.unit.plan.machine import configuration, costs, time_of

FAST = costs(292e9)
# Nothing of stage 3's Python but a copy of each gradient.
IDLE = replace(FAST, gather=0.0, module=0.0, reduction={**FAST.reduction, Work.GATHERED: 10e-12})


def of_samples(costs: Costs, few: int, many: int, stage: int = 3) -> float:
    """By how much more samples make a step longer, as a share of what they compute."""
    less, more = (time_of(configuration(stage, 1, micro), costs) for micro in (few, many))
    return (more.seconds - less.seconds) / (more.compute - less.compute)


@pytest.mark.parametrize("hides", [0.0, 0.5, 0.7])
def test_while_python_takes_longer_samples_cost_what_it_does_not_hide(hides: float) -> None:
    assert of_samples(replace(FAST, hides=hides), 1, 4) == pytest.approx(1 - hides)


def test_where_computing_takes_longer_samples_cost_all_of_it() -> None:
    assert of_samples(FAST, 32, 64) == pytest.approx(1)


@pytest.mark.parametrize("stage", range(3))
def test_below_stage_3_nothing_is_hidden(stage: int) -> None:
    assert of_samples(FAST, 1, 4, stage) == pytest.approx(1)


def test_copies_of_gradients_are_never_hidden() -> None:
    time = time_of(configuration(3, 1), IDLE)
    assert time.work == pytest.approx(time_of(configuration(3, 1), replace(IDLE, hides=0.0)).work)
    assert time.work > 0
