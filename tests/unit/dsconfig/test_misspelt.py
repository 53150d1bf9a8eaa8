"""A key of the top level that can only be a slip of the pen is refused; what somebody may want there is not."""

from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.versions import SUPPORTED
from tests.oracle import corpus
from tests.unit.dsconfig.verdicts import BATCH, places, said, verdict_on

ADAM: dict[str, Any] = {"type": "AdamW", "params": {"lr": 1e-4}}
SLIPS: list[tuple[str, object, str]] = [
    ("zero_optimisation", {"stage": 2}, "zero_optimization"),
    ("zero_optimzation", {"stage": 1}, "zero_optimization"),
    ("zeroOptimization", {"stage": 3}, "zero_optimization"),
    ("optimiser", ADAM, "optimizer"),
    ("Optimizer", ADAM, "optimizer"),
    ("optimizers", ADAM, "optimizer"),
    ("schedular", {"type": "WarmupLR", "params": {}}, "scheduler"),
    ("FP16", {"enabled": True}, "fp16"),
    ("bf_16", {"enabled": True}, "bf16"),
    ("gradient_cliping", 0.5, "gradient_clipping"),
    ("gradient_accumulation_step", 4, "gradient_accumulation_steps"),
    ("tensor_paralel", {"autotp_size": 2}, "tensor_parallel"),
]


@pytest.mark.parametrize(("key", "value", "meant"), SLIPS)
def test_a_slip_of_the_pen_is_an_error(key: str, value: object, meant: str) -> None:
    verdict = verdict_on({**BATCH, key: value})
    assert places(verdict, Level.ERROR) == [key]
    assert f"Write {meant}." in said(verdict, key)


OTHERS: list[dict[str, Any]] = [
    {"zero_optimisation": {"stage": 0}},  # what DeepSpeed does without it, too
    {"zero_optimisation": {}},
    {"FP16": {"enabled": False}},
    {"FP16": {"enabled": "auto"}},
    {"gradient_accumulation_step": "auto"},
    {"gradient_cliping": [1]},
    {"tensorbord": {"enabled": True}},  # without it the training is the same
    {"optimiser": ADAM, "optimizer": ADAM},
    {"_optimizer": ADAM},
    {"xoptimizer": ADAM},
    {"optimizer_2": ADAM},
    {"gradient-clipping": 0.5},
    {"lr_scheduler": {"type": "WarmupLR"}},
    {"train_mini_batch_size_per_gpu": 4},
    {"eval_micro_batch_size_per_gpu": 4},
    {"comment": "a comment is two letters off comet"},
    {"fp8": {"enabled": True}},
    {"tf32": {"enabled": True}},
]


@pytest.mark.parametrize("config", OTHERS)
def test_what_may_be_meant_otherwise_is_not(config: dict[str, Any]) -> None:
    assert not verdict_on({**BATCH, **config}).refused


def test_without_a_version_it_is_an_error_if_all_versions_ignore_it() -> None:
    assert validate({**BATCH, "zero_optimisation": {"stage": 2}}, JudgementContext(8)).refused
    only_new = validate({**BATCH, "expert_paralel": {"enabled": True}}, JudgementContext(8))
    assert not only_new.refused
    assert "With DeepSpeed 0.19.2–0.19.8: DeepSpeed does not read this key" in said(only_new, "expert_paralel")


def test_batch_sizes_are_those_of_the_key_that_was_meant() -> None:
    right = {"train_batch_size": 56, "train_micro_batch_size_per_gpu": 4, "gradient_acumulation_steps": 7}
    for version in (None, SUPPORTED[-1]):
        verdict = validate(right, JudgementContext(2, version))
        assert places(verdict, Level.ERROR) == ["gradient_acumulation_steps"]
        assert verdict.batch is not None
        assert verdict.batch.accumulation == 7
    wrong = verdict_on({**right, "train_batch_size": 58}, 2)
    assert places(wrong, Level.ERROR) == ["gradient_acumulation_steps", "train_batch_size"]
    assert "58 ≠ 4 × 7 × 2" in said(wrong, "train_batch_size")
    assert places(verdict_on({"train_micro_batch_size_pergpu": 4}), Level.ERROR) == ["train_micro_batch_size_pergpu"]


def test_what_some_versions_lose_without_a_key_is_said_once() -> None:
    verdict = validate({**BATCH, "gradient_cliping": 1.0}, JudgementContext(8))
    assert places(verdict, Level.WARNING) == ["gradient_cliping"]
    assert "With DeepSpeed 0.15.4–0.19.2" in said(verdict, "gradient_cliping")


def framework_keys() -> list[str]:
    lines = Path(__file__).with_name("framework_keys.txt").read_text(encoding="utf-8").splitlines()
    return [word for line in lines if not line.startswith("#") for word in line.split()]


@pytest.mark.parametrize("value", [{"enabled": True, "type": "x", "stage": 2}, True, 0.25, 7, "fp16"], ids=repr)
def test_no_setting_of_a_framework_is_taken_for_one(value: object) -> None:
    keys = framework_keys()
    assert len(keys) > 500
    assert misspelt(dict.fromkeys(keys, value)) == []
    assert misspelt({key.replace("_", "-"): value for key in keys}) == []


def test_no_key_of_a_configuration_is_taken_for_one_but_where_it_was_misspelt_for_that() -> None:
    found = {name for name, config in corpus.configurations().items() if misspelt(config)}
    assert found == {"zero-misspelt"}


def misspelt(config: dict[str, Any]) -> list[str]:
    notes = [note for version in SUPPORTED for note in validate(config, JudgementContext(8, version)).notes]
    return [f"{note.path}" for note in notes if note.code == "misspelt-key"]
