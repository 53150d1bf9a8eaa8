"""What the planner says of step times, held against what two GPUs did: the bars of docs/gpu.md.

"committed" is what was predicted before the measuring run, "now" what the planner makes of the calibration today.
"""

import itertools
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.configurations import timing
from bench.gpu.expectations import RECIPE, lines
from bench.gpu.predict import predicted
from bench.gpu.tables import pooled

RESULTS = Path(__file__).parents[3] / "bench/gpu/results"
STAGES = {each.name: each.stage for each in timing()}
BATCHES = {each.name: each.micro * each.accumulation for each in timing()}


def read(name: str) -> list[dict[str, Any]]:
    return [each for path in sorted(RESULTS.glob(f"{name}*.jsonl")) for each in lines(path.read_text("utf-8"))]


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


# By folder. NVLink again is a second machine, predicted before from the first one's calibration.
COMMITTED = {"": read("predicted"), "again/": read("predicted"), "slow/": read("slow/predicted")}
NOW = {folder: list(predicted(read(f"{folder}calibration"), "H200-141G")) for folder in COMMITTED}
PLACES = {
    "nvlink": ("", "nvlink", "timing"),
    "nvlink again": ("again/", "nvlink", "timing"),
    "tcp": ("", "tcp1", "timing"),
    "slow tcp": ("slow/", "tcp1", "timing"),
    "slow tcp in turns": ("slow/", "tcp1", "timing-s3"),
}
WHOLE = ("nvlink", "nvlink again", "tcp", "slow tcp")


def proof(place: str, said: dict[str, list[dict[str, Any]]]) -> Proof:
    folder, fabric, rounds = PLACES[place]
    measured = [each for each in pooled(read(f"{folder}{rounds}")) if each["fabric"] == fabric and each["runs"]]
    mine = [each for each in said[folder] if each["fabric"] == fabric]
    return Proof(place, {each["name"]: each for each in measured}, mine)


def at(*places: str) -> pytest.MarkDecorator:
    said = {"committed": COMMITTED, "now": NOW}
    cases = [(place, basis) for place in places for basis in said]
    proofs = [pytest.param(proof(place, said[basis]), id=f"{place}, {basis}") for place, basis in cases]
    return pytest.mark.parametrize("found", proofs)


@at("nvlink", "tcp")
def test_ten_configurations_or_more_were_measured(found: Proof) -> None:
    assert len(found.times()) >= 10


@at(*WHOLE)
def test_errors_are_small(found: Proof) -> None:
    errors = {name: abs(after / before - 1) for name, (before, after) in found.times().items()}
    assert len(errors) >= 4
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
}


def misordered(found: Proof) -> set[tuple[str, str]]:
    """Pairs that were measured a tenth apart or more, the faster one first, of which that was not predicted."""
    pairs = [sorted(pair, key=lambda each: each[1]) for pair in itertools.combinations(found.times().items(), 2)]
    apart = [(fast, slow) for fast, slow in pairs if slow[1][0] > 1.1 * fast[1][0]]
    assert apart
    return {(fast[0], slow[0]) for fast, slow in apart if fast[1][1] >= slow[1][1]}


@at(*WHOLE)
def test_of_two_that_are_a_tenth_apart_the_faster_one_is_known(found: Proof) -> None:
    assert misordered(found) == NOT_FORESEEN.get(found.place, set())


def test_by_two_machines_calibrations_all_but_one_pair_is_foreseen() -> None:
    """What a micro step of stage 3 takes differs from host to host."""
    both = list(predicted([*read("calibration"), *read("again/calibration")], "H200-141G"))
    assert misordered(proof("nvlink", {**NOW, "": both})) == {("large-s2-g4", "large-s2-roots-g4")}


@pytest.mark.parametrize("place", ["nvlink", "nvlink again"])
def test_without_a_calibration_stages_0_to_2_are_foreseen_on_nvlink(place: str) -> None:
    found = proof(place, NOW)
    guessed = {each["name"]: each["uncalibrated"] for each in found.said if "uncalibrated" in each}
    names = [name for name in found.measured if STAGES[name] < 3]
    assert len(names) >= 4
    assert {name: guessed[name] for name in names} == {
        name: pytest.approx(found.measured[name]["median"], rel=0.15) for name in names
    }


def assert_it_is_worth_what_it_promises(found: Proof, advice: dict[str, Any], *, least: float) -> None:
    gain = found.gain(advice["name"])
    assert gain >= least
    assert advice["gain"] == pytest.approx(gain, rel=0.15)


@at("tcp")
def test_over_sockets_the_first_advice_is_worth_what_it_promises(found: Proof) -> None:
    advice = found.advice()[0]
    assert (advice["advice"], advice["name"]) == (1, "large-s0-b16-g1")
    assert (found.rounds(RECIPE), found.rounds(advice["name"])) == (3, 3)
    assert_it_is_worth_what_it_promises(found, advice, least=2.5)


@at("slow tcp in turns")
def test_over_slow_sockets_the_first_advice_is_worth_what_it_promises(found: Proof) -> None:
    """Of the advised job's three rounds the first was cut by its time limit."""
    advice = found.advice()[0]
    assert (advice["advice"], advice["name"]) == (1, "large-s3-b16-g1")
    assert (found.rounds(RECIPE), found.rounds(advice["name"])) == (3, 2)
    assert_it_is_worth_what_it_promises(found, advice, least=2.8)


@at("nvlink again")
def test_over_nvlink_the_first_advice_is_worth_what_it_promises(found: Proof) -> None:
    advice = found.advice()[0]
    assert (advice["advice"], advice["name"]) == (1, "large-s2-b16-g1")
    assert (found.rounds(RECIPE), found.rounds(advice["name"])) == (3, 3)
    assert_it_is_worth_what_it_promises(found, advice, least=1.15)


@at("tcp", "slow tcp")
def test_where_stage_0_is_forbidden_the_best_of_the_others_is_known(found: Proof) -> None:
    """No other one that was measured at the same global batch is a tenth faster than the first advice."""
    advice = next(each for each in found.advice() if STAGES[each["name"]])
    others = [name for name in found.measured if STAGES[name] and BATCHES[name] == BATCHES[RECIPE]]
    assert found.gain(advice["name"]) > max(map(found.gain, others)) / 1.1
    assert_it_is_worth_what_it_promises(found, advice, least=2.0)


@at(*WHOLE)
def test_no_advice_loses(found: Proof) -> None:
    gains = {each["name"]: found.gain(each["name"]) for each in found.advice()}
    assert gains
    assert {name: gain for name, gain in gains.items() if gain < 1} == {}


def test_a_job_of_ours_is_as_fast_as_one_of_deepspeeds_launcher() -> None:
    pairs = [each for each in read("launchers") if "pair" in each]
    assert len(pairs) >= 5
    assert min(run["steps"] for each in pairs for run in each["runs"].values()) >= 50
    assert statistics.median(each["ratio"] for each in pairs) >= 0.99
