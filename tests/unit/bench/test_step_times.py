"""What the planner says of step times, held against what two GPUs did: the bars of docs/gpu.md.

"committed" is what was predicted before the measuring run, "now" what the planner makes of the calibration today.
"""

import functools
import itertools
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.configurations import TABLES
from bench.gpu.expectations import RECIPE
from bench.gpu.predict import predicted
from bench.gpu.tables import lines_of, pooled, said_of

RESULTS = Path(__file__).parents[3] / "bench/gpu/results"
TIMED = {each.name: each for table in ("timing", "filled-timing") for each in TABLES[table]()}
BATCHES = {name: each.micro * each.accumulation for name, each in TIMED.items()}


@dataclass(frozen=True)
class Proof:
    """What was measured of a fabric, by configuration, and what was said of it."""

    place: str
    measured: dict[str, dict[str, Any]]
    said: list[dict[str, Any]]

    def times(self) -> dict[str, tuple[float, float]]:
        """Seconds measured and predicted."""
        expected = {each["name"]: each["seconds"] for each in self.said if "seconds" in each}
        return {name: (each["median"], expected[name]) for name, each in self.measured.items() if name in expected}

    def rounds(self, name: str) -> int:
        return len(self.measured[name]["runs"])

    def gain(self, name: str) -> float:
        """Samples a second beside the recipe's, by the medians of rounds."""
        after, before = (BATCHES[each] / statistics.median(self.measured[each]["runs"]) for each in (name, RECIPE))
        return after / before

    def advice(self) -> list[dict[str, Any]]:
        """What was advised instead of the recipe and measured, the best first."""
        return [each for each in self.said if "advice" in each and each["name"] in self.measured]


# A folder of results, a fabric, and the folder of the calibration that predicts it.
PLACES = {
    "nvlink": ("", "nvlink", ""),
    "nvlink again": ("again", "nvlink", "again"),
    "third nvlink": ("third", "nvlink", "third"),
    "fourth nvlink": ("fourth/again", "nvlink", "third"),
    "busy nvlink": ("filled", "nvlink", "filled"),
    "fourth busy nvlink": ("fourth", "nvlink", "fourth"),
    "tcp": ("", "tcp1", ""),
    "tcp again": ("tcp-again", "tcp1", ""),
    "fourth tcp": ("fourth/again", "tcp1", ""),
    "slow tcp": ("slow", "tcp1", "slow"),
    "slow tcp again": ("slow/again", "tcp1", "slow"),
}
BUSY = ("busy nvlink", "fourth busy nvlink")
# Those whose GPUs wait for little of what a shared host's CPU does.
STEADY = (*BUSY, "tcp", "tcp again", "fourth tcp", "slow tcp", "slow tcp again")


@functools.cache
def calibrated(folder: str) -> list[dict[str, Any]]:
    """What the planner makes of a folder's calibration; it takes seconds."""
    return list(predicted(lines_of(RESULTS / folder, "calibration"), "H200-141G"))


def proof(place: str, said: list[dict[str, Any]]) -> Proof:
    folder, fabric, _ = PLACES[place]
    timed = pooled(lines_of(RESULTS / folder, "timing"))
    measured = {each["name"]: each for each in timed if each["fabric"] == fabric and each["runs"]}
    return Proof(place, measured, [each for each in said if each["fabric"] == fabric])


@pytest.fixture
def found(request: pytest.FixtureRequest) -> Proof:
    place, basis = request.param
    folder, _, calibration = PLACES[place]
    return proof(place, calibrated(calibration) if basis == "now" else said_of(RESULTS / folder, "predicted"))


def at(*places: str, basis: tuple[str, ...] = ("committed", "now")) -> pytest.MarkDecorator:
    proofs = [pytest.param(each, id=", ".join(each)) for each in itertools.product(places, basis)]
    return pytest.mark.parametrize("found", proofs, indirect=True)


@at("nvlink", "third nvlink", *BUSY, "tcp")
def test_ten_configurations_or_more_were_measured(found: Proof) -> None:
    assert len(found.times()) >= 10


@at(*PLACES)
def test_no_error_is_large(found: Proof) -> None:
    assert {name: error for name, error in errors_of(found).items() if error > 0.25} == {}


@at(*(place for place in PLACES if place != "fourth nvlink"))
def test_most_errors_are_small(found: Proof) -> None:
    """But of three steps that another machine's calibration predicted, two of them 12 and 13 % too slow."""
    assert statistics.median(errors_of(found).values()) <= 0.10


def errors_of(found: Proof) -> dict[str, float]:
    return {name: abs(after / before - 1) for name, (before, after) in found.times().items()}


def misordered(found: Proof) -> set[tuple[str, str]]:
    """Pairs that were measured a tenth apart or more, the faster one first, of which that was not predicted."""
    pairs = [sorted(pair, key=lambda each: each[1]) for pair in itertools.combinations(found.times().items(), 2)]
    apart = [(fast, slow) for fast, slow in pairs if slow[1][0] > 1.1 * fast[1][0]]
    assert apart
    return {(fast[0], slow[0]) for fast, slow in apart if fast[1][1] >= slow[1][1]}


@at(*STEADY, "nvlink again", "fourth nvlink")
def test_of_two_that_are_a_tenth_apart_the_faster_one_is_known(found: Proof) -> None:
    assert misordered(found) == set()


def pairs_of(text: str) -> set[tuple[str, str]]:
    """Pairs as "s2-g1<s0-g1", the faster one first."""
    return {(f"large-{fast}", f"large-{slow}") for fast, slow in (pair.split("<") for pair in text.split())}


NOT_FORESEEN = {
    "nvlink": pairs_of("s3-g1<s0-g4 s3-g1<s2-roots-g4 s2-g4<s2-roots-g4"),
    "third nvlink": pairs_of(
        "s2-g1<s0-g1 s1-g1<s0-g1 s2-g1<s2-roots-g1 s1-g1<s2-roots-g1 s1-roots-g1<s2-roots-g1 "
        "s2-b8-g2<s0-g4 s2-b8-g2<s3-g1 s2-b8-g2<s1-roots-g4"
    ),
}


@at("nvlink", "third nvlink")
def test_of_small_micro_batches_the_host_decides_and_few_pairs_are_not_foreseen(found: Proof) -> None:
    """Of 117 pairs and of 184. The same steps scatter by a third there, round by round."""
    wrong = misordered(found)
    assert wrong == NOT_FORESEEN[found.place]
    assert all(min(TIMED[name].micro for name in pair) == 4 for pair in wrong)


def test_by_two_machines_calibrations_all_but_one_pair_is_foreseen() -> None:
    """What a micro step of stage 3 takes differs from host to host."""
    learned = [each for folder in ("", "again") for each in lines_of(RESULTS / folder, "calibration")]
    both = list(predicted(learned, "H200-141G"))
    assert misordered(proof("nvlink", both)) == {("large-s2-g4", "large-s2-roots-g4")}


@at(*(place for place, (_, fabric, _) in PLACES.items() if fabric == "nvlink"), basis=("now",))
def test_without_a_calibration_stages_0_to_2_are_foreseen_on_nvlink(found: Proof) -> None:
    guessed = {each["name"]: each["uncalibrated"] for each in found.said if "uncalibrated" in each}
    names = [name for name in found.measured if TIMED[name].stage < 3]
    assert len(names) >= 3
    assert {name: guessed[name] for name in names} == {
        name: pytest.approx(found.measured[name]["median"], rel=0.2) for name in names
    }


def assert_the_first_advice_is_worth_what_it_promises(found: Proof, name: str, rounds: int, *, least: float) -> None:
    advice = found.advice()[0]
    assert (advice["advice"], advice["name"]) == (1, name)
    assert min(found.rounds(each) for each in (RECIPE, name)) == rounds
    assert_it_is_worth_what_it_promises(found, advice, least=least)


def assert_it_is_worth_what_it_promises(found: Proof, advice: dict[str, Any], *, least: float) -> None:
    gain = found.gain(advice["name"])
    assert gain >= least
    assert advice["gain"] == pytest.approx(gain, rel=0.15)


@at("tcp", basis=("committed",))
def test_over_sockets_the_first_advice_was_worth_what_it_promised(found: Proof) -> None:
    assert_the_first_advice_is_worth_what_it_promises(found, "large-s0-b16-g1", 3, least=2.5)


@at("tcp again", basis=("now",))
def test_over_sockets_what_is_advised_since_stage_3_hides_computing_is_worth_more(found: Proof) -> None:
    assert_the_first_advice_is_worth_what_it_promises(found, "large-s3-b16-g1", 2, least=2.8)
    assert found.gain("large-s3-b16-g1") > 1.1 * found.gain("large-s0-b16-g1")


@at("slow tcp again", "fourth tcp")
def test_over_sockets_the_first_advice_is_worth_what_it_promises(found: Proof) -> None:
    assert_the_first_advice_is_worth_what_it_promises(found, "large-s3-b16-g1", 3, least=2.8)


@at("nvlink again")
def test_over_nvlink_the_first_advice_was_worth_what_it_promised(found: Proof) -> None:
    assert_the_first_advice_is_worth_what_it_promises(found, "large-s2-b16-g1", 3, least=1.15)


@at("fourth nvlink", basis=("committed",))
def test_over_nvlink_plain_data_parallelism_was_worth_what_it_promised(found: Proof) -> None:
    assert_the_first_advice_is_worth_what_it_promises(found, "large-s0-b16-g1", 3, least=1.15)


@at("third nvlink", "fourth nvlink", basis=("now",))
def test_over_nvlink_both_larger_micro_batches_are_worth_what_they_promise(found: Proof) -> None:
    assert_the_first_advice_is_worth_what_it_promises(found, "large-s0-b16-g1", 3, least=1.15)
    second = found.advice()[1]
    assert second["name"] == "large-s2-b16-g1"
    assert_it_is_worth_what_it_promises(found, second, least=1.15)


@at("tcp", "slow tcp")
def test_where_stage_0_is_forbidden_the_best_of_the_others_is_known(found: Proof) -> None:
    """No other one that was measured at the same global batch is a tenth faster than the first advice."""
    advice = next(each for each in found.advice() if TIMED[each["name"]].stage)
    others = [name for name in found.measured if TIMED[name].stage and BATCHES[name] == BATCHES[RECIPE]]
    assert found.gain(advice["name"]) > max(map(found.gain, others)) / 1.1
    assert_it_is_worth_what_it_promises(found, advice, least=2.0)


@at(*(place for place in PLACES if place not in BUSY), basis=("now",))
def test_no_advice_loses(found: Proof) -> None:
    gains = {each["name"]: found.gain(each["name"]) for each in found.advice()}
    assert gains
    assert {name: gain for name, gain in gains.items() if gain < 1} == {}
