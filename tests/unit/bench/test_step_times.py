"""What the planner says of step times, held against what two GPUs did: the bars of docs/gpu.md.

Predictions are those that were committed before the measuring run, and what the planner says now from the same run.
"""

import itertools
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.configurations import timing
from bench.gpu.expectations import RECIPE, lines
from bench.gpu.predict import predicted
from bench.gpu.tables import pooled

RESULTS = Path(__file__).parents[3] / "bench/gpu/results"
FABRICS = ("nvlink", "tcp1")


def read(name: str) -> list[dict[str, Any]]:
    return [each for path in sorted(RESULTS.glob(f"{name}*.jsonl")) for each in lines(path.read_text("utf-8"))]


MEASURED = {(each["fabric"], each["name"]): each for each in pooled(read("timing")) if each["runs"]}
COMMITTED = read("predicted")
NOW = list(predicted(read("calibration"), "H200-141G"))
both = pytest.mark.parametrize("said", [COMMITTED, NOW], ids=["committed", "now"])
everywhere = pytest.mark.parametrize("fabric", FABRICS)


def times(fabric: str, said: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Seconds measured and predicted, by configuration."""
    expected = {each["name"]: each["seconds"] for each in said if each["fabric"] == fabric and "seconds" in each}
    return {
        name: (MEASURED[fabric, name]["median"], seconds)
        for name, seconds in expected.items()
        if (fabric, name) in MEASURED
    }


@everywhere
@both
def test_errors_are_small(fabric: str, said: list[dict[str, Any]]) -> None:
    found = times(fabric, said)
    errors = {name: abs(after / before - 1) for name, (before, after) in found.items()}
    assert len(errors) >= 10
    assert statistics.median(errors.values()) <= 0.10
    assert {name: error for name, error in errors.items() if error > 0.25} == {}


# Stage 3's steps are Python's and scatter from 0.37 to 0.51 s; stage 2 with single roots took 0.48 s in one round and
# 0.55 s in the other.
NOT_FORESEEN = {
    "nvlink": {
        ("large-s3-g1", "large-s0-g4"),
        ("large-s3-g1", "large-s2-roots-g4"),
        ("large-s2-g4", "large-s2-roots-g4"),
    },
    "tcp1": set[tuple[str, str]](),
}


@everywhere
@both
def test_of_two_that_are_a_tenth_apart_the_faster_one_is_known(fabric: str, said: list[dict[str, Any]]) -> None:
    pairs = [sorted(pair, key=lambda each: each[1]) for pair in itertools.combinations(times(fabric, said).items(), 2)]
    apart = [(fast, slow) for fast, slow in pairs if slow[1][0] > 1.1 * fast[1][0]]
    assert len(apart) > 60
    assert {(fast[0], slow[0]) for fast, slow in apart if fast[1][1] >= slow[1][1]} == NOT_FORESEEN[fabric]


def rate(fabric: str, name: str) -> float:
    """Samples a second, by the median of the rounds."""
    found = MEASURED[fabric, name]
    return found["samples_per_second"] * found["median"] / statistics.median(found["runs"])


def gains(fabric: str, said: list[dict[str, Any]]) -> list[tuple[Mapping[str, Any], float]]:
    """What was advised instead of the recipe, and the gain that it brought."""
    mine = [each for each in said if each["fabric"] == fabric and "advice" in each]
    return [
        (each, rate(fabric, each["name"]) / rate(fabric, RECIPE)) for each in mine if (fabric, each["name"]) in MEASURED
    ]


@both
def test_over_tcp_the_first_advice_is_worth_what_it_promises(said: list[dict[str, Any]]) -> None:
    advice, gain = gains("tcp1", said)[0]
    assert all(len(MEASURED["tcp1", name]["runs"]) == 3 for name in (RECIPE, advice["name"]))
    assert advice["advice"] == 1
    assert gain > 2.5
    assert advice["gain"] == pytest.approx(gain, rel=0.15)


@both
def test_over_nvlink_less_accumulation_of_larger_micro_batches_is_worth_what_it_promises(
    said: list[dict[str, Any]],
) -> None:
    """Stage 2 was advised and stage 1 was measured: without accumulation they send and copy the same."""
    advice = next(each for each in said if each["fabric"] == "nvlink" and each.get("advice") == 1)
    assert advice["name"] == "large-s2-b16-g1"
    seconds = {each["name"]: each["seconds"] for each in said if each["fabric"] == "nvlink" and "seconds" in each}
    assert seconds["large-s2-b16-g1"] == seconds["large-s1-b16-g1"]
    gain = rate("nvlink", "large-s1-b16-g1") / rate("nvlink", RECIPE)
    assert gain > 1.15
    assert advice["gain"] == pytest.approx(gain, rel=0.15)


@both
def test_where_stage_0_is_forbidden_the_best_of_the_others_is_known(said: list[dict[str, Any]]) -> None:
    stages = {each.name: each.stage for each in timing()}
    others = [(each, gain) for each, gain in gains("tcp1", said) if stages[each["name"]]]
    advice, gain = others[0]
    assert gain > 2
    assert gain == max(gain for _, gain in others)
    assert advice["gain"] == pytest.approx(gain, rel=0.15)


@everywhere
@both
def test_no_advice_loses(fabric: str, said: list[dict[str, Any]]) -> None:
    found = gains(fabric, said)
    assert found
    assert {advice["name"]: gain for advice, gain in found if gain < 1} == {}
