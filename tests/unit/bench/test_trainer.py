"""Steps under transformers' Trainer on two H200s: what was said of them before, and is said now.

docs/gpu.md has the tables. "committed" is what was predicted before the measuring run.
"""

from pathlib import Path
from typing import Any

import pytest

from bench.gpu.frameworks import families, host, named, trainer, trainer_latest
from bench.gpu.tables import lines_of
from bench.gpu.trainer import job, predicted
from bench.gpu.trainer_tables import pairs, promised, seconds_of
from deepspeed_operator.api.spec import DeepSpeedJobSpec

RESULTS = Path(__file__).parents[3] / "bench/gpu/results/trainer"
LATEST = RESULTS.with_name("latest")
LAST = {each["name"]: each for each in lines_of(LATEST, "trainer")}
MEASURED = {each["name"]: each for each in lines_of(RESULTS, "trainer")}
COMMITTED = {each["name"]: each for each in lines_of(RESULTS, "predicted")}
# Of 0.6 B parameters with 152,000 tokens, what passes through memory beside products was not counted then.
UNFORESEEN = {"qwen3-s0-b16-g1"}
# What is learned from the higher stage of a batch, and which was committed with the planner that said it.
TOLD = [(one["name"], other["name"]) for one, other in pairs(list(MEASURED.values()))]
LAST_TOLD = [(one["name"], other["name"]) for one, other in pairs(list(LAST.values()))]
# On a host that was 1.4 times as slow as assumed, and without a term that the planner has now.
TOO_SLOW = {"gpt2-large-s3-b1-g1"}


def errors(said: dict[str, Any]) -> dict[str, float]:
    return {name: said[name]["seconds"] / seconds_of(each) - 1 for name, each in MEASURED.items()}


def test_three_models_and_every_stage_were_measured() -> None:
    found = [named(name) for name in MEASURED]
    assert len(found) >= 8
    assert {each.model for each in found} == {"mistral", "llama-3b", "qwen3"}
    assert {each.stage for each in found} == {0, 1, 2, 3}
    assert {each.micro for each in found} >= {1, 16}


def test_what_was_committed_before_is_within_a_quarter_but_of_one() -> None:
    assert {name for name, error in errors(COMMITTED).items() if abs(error) > 0.25} == UNFORESEEN


def test_every_step_is_now_foreseen_within_fifteen_percent() -> None:
    now = {name: predicted(named(name)) for name in MEASURED}
    assert {name: error for name, error in errors(now).items() if abs(error) > 0.15} == {}


def test_peaks_were_foreseen_within_one_percent() -> None:
    assert {name: COMMITTED[name]["memory"] for name in MEASURED} == {
        name: pytest.approx(each["peak"], rel=0.01) for name, each in MEASURED.items()
    }


@pytest.mark.parametrize(("one", "other"), TOLD)
def test_one_stages_steps_tell_what_anothers_take(one: str, other: str) -> None:
    assert promised(MEASURED[one], MEASURED[other]) == pytest.approx(seconds_of(MEASURED[other]), rel=0.15)


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("qwen3-s1-b8-g2", "qwen3-s0-b16-g1"),
        ("mistral-s3-b4-g4", "mistral-s1-b16-g1"),
        ("mistral-s2-b4-g4", "mistral-s1-b16-g1"),
        ("mistral-s0-b4-g4", "mistral-s1-b16-g1"),
        ("llama-3b-s3-b4-g2", "llama-3b-s2-b8-g1"),
        ("llama-3b-s1-b4-g2", "llama-3b-s2-b8-g1"),
    ],
)
def test_no_larger_micro_batch_is_promised_to_gain_more_than_it_did(now: str, then: str) -> None:
    """Of the same global batch. What qwen3's first steps promised before was 1.8 times as fast, and gained nothing."""
    said = promised(MEASURED[now], MEASURED[then])
    assert said is not None
    assert said > 0.85 * seconds_of(MEASURED[then])


def test_of_the_latest_run_nine_of_four_models_are_within_a_quarter_but_of_one() -> None:
    committed = {each["name"]: each["seconds"] for each in lines_of(LATEST, "predicted")}
    wrong = {name for name, each in LAST.items() if abs(committed[name] / seconds_of(each) - 1) > 0.25}
    assert (len(LAST), wrong) == (9, TOO_SLOW)
    assert len({named(name).model for name in LAST}) == 4
    assert {named(name).stage for name in LAST} == {0, 1, 2, 3}


@pytest.mark.parametrize(("one", "other"), LAST_TOLD)
def test_its_stages_tell_each_others_steps(one: str, other: str) -> None:
    assert promised(LAST[one], LAST[other]) == pytest.approx(seconds_of(LAST[other]), rel=0.15)


def test_names_are_unique() -> None:
    names = [each.name for each in (*host(), *trainer(), *trainer_latest(), *families())]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", MEASURED)
def test_each_is_a_job_that_the_operator_takes(name: str) -> None:
    DeepSpeedJobSpec.model_validate(job(named(name), Path("measured.jsonl"), 22)["spec"])
