"""Fixes that say what was meant; credentials; and "auto" that nobody may fill in."""

from typing import Any

import pytest

from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.status import Level
from tests.unit.dsconfig.verdicts import BATCH, places, said, verdict_on

SWITCHES: list[tuple[dict[str, Any], str, str, str]] = [
    (NEW := {"wall_clock_breakdown": "true"}, "0.19.8", "wall_clock_breakdown", "Write wall_clock_breakdown: true, or"),
    (NEW, "0.15.4", "wall_clock_breakdown", "Write wall_clock_breakdown: true, or"),
    ({"wall_clock_breakdown": "False"}, "0.19.8", "wall_clock_breakdown", "Write wall_clock_breakdown: false, or"),
    ({"wall_clock_breakdown": "1"}, "0.19.8", "wall_clock_breakdown", "Write wall_clock_breakdown: true, or"),
    ({"wall_clock_breakdown": "maybe"}, "0.19.8", "wall_clock_breakdown", "Write wall_clock_breakdown: true or false"),
    ({"dump_state": "false"}, "0.15.4", "dump_state", "takes for true. Write dump_state: false, without quotes"),
    ({"dump_state": "1"}, "0.15.4", "dump_state", "Write dump_state: true, without quotes"),
    ({"flops_profiler": {"enabled": "yes"}}, "0.19.8", "flops_profiler.enabled", "Write enabled: true, or"),
    ({"fp16": {"enabled": "True,"}}, "0.19.8", "fp16.enabled", "Write enabled: true, or"),
    ({"fp16": {"enabled": 2}}, "0.19.8", "fp16.enabled", "Write enabled: true or false, or"),
    ({"zero_optimization": {"overlap_comm": "true;"}}, "0.19.8", "zero_optimization.overlap_comm", "Correct or"),
    ({"zero_optimization": {"reduce_bucket_size": "5e8}"}}, "0.19.8", "zero_optimization.reduce_bucket_size",
     "Write reduce_bucket_size: 500000000, or"),
    ({"aio": {"block_size": "1048576"}}, "0.19.8", "aio.block_size", "Write block_size: 1048576, without quotes"),
    ({"gradient_clipping": "0.5"}, "0.19.8", "gradient_clipping", "Write gradient_clipping: 0.5, or"),
    ({"steps_per_print": "50"}, "0.19.8", "steps_per_print", "Write steps_per_print: 50, or"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "version", "place", "words"), SWITCHES)
def test_a_fix_says_what_was_meant(config: dict[str, Any], version: str, place: str, words: str) -> None:
    assert words in said(verdict_on({**BATCH, **config}, version=version), place)


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"comet": {"enabled": True, "api_key": "s3cr3t"}}, "comet.api_key"),
        ({"wandb_api_key": "s3cr3t"}, "wandb_api_key"),
        ({"mine": {"deep": {"hubToken": "s3cr3t"}}}, "mine.deep.hubToken"),
        ({"password": "s3cr3t"}, "password"),
        ({"aws_secret_access_key": "s3cr3t"}, "aws_secret_access_key"),
    ],
)
def test_a_credential_is_warned_of_and_never_quoted(config: dict[str, Any], place: str) -> None:
    verdict = verdict_on({**BATCH, **config})
    assert not verdict.refused
    assert "Secret" in said(verdict, place)
    assert all("s3cr3t" not in note.message + note.fix for note in verdict.notes)


@pytest.mark.parametrize(
    "config",
    [
        {"comet": {"enabled": True, "api_key": None}},
        {"comet": {"enabled": True, "api_key": "$COMET_API_KEY"}},
        {"tokenizer": {"pad_token": "<pad>", "eos_token": "</s>"}, "max_tokens": 8, "tokens": "a"},
        {"api_key": 7, "keys": ["password"], "password": ""},
    ],
)
def test_what_only_sounds_like_one_is_not(config: dict[str, Any]) -> None:
    assert "credential" not in {note.code for note in verdict_on({**BATCH, **config}).notes}


AUTO: dict[str, Any] = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}


@pytest.mark.parametrize(("integration", "level"), [(Integration.NONE, Level.WARNING), (None, Level.ADVICE)])
def test_auto_is_a_warning_where_the_job_names_no_framework(integration: Integration | None, level: Level) -> None:
    verdict = verdict_on(AUTO, integration=integration)
    assert "" in places(verdict, level)
    assert "Hugging Face Trainer" in said(verdict, "")
    assert ("spec.training.integration: Accelerate" in said(verdict, "")) == (integration is Integration.NONE)


def test_auto_needs_no_word_where_the_job_names_the_framework() -> None:
    assert verdict_on(AUTO, integration=Integration.ACCELERATE).notes == ()


def test_only_a_default_that_never_changed_may_be_removed() -> None:
    kept = {"gradient_clipping": 1.0, "bf16": {"enabled": True, "check_grad_overflow": True}}
    assert verdict_on({**BATCH, **kept}).notes == ()
    one = verdict_on({**BATCH, "zero_optimization": {"stage": 3, "contiguous_gradients": True}})
    assert said(one, "") == "zero_optimization.contiguous_gradients equals its default. You may remove it."
    two = verdict_on({**BATCH, "dump_state": False, "wall_clock_breakdown": False})
    assert said(two, "") == "dump_state, wall_clock_breakdown equal their defaults. You may remove them."


def test_a_key_has_the_name_of_deepspeeds_documentation() -> None:
    zero = {"stage": 3, "stage3_gather_fp16_weights_on_model_save": True}
    verdict = verdict_on({**BATCH, "zero_optimization": zero})
    words = said(verdict, "zero_optimization.stage3_gather_fp16_weights_on_model_save")
    assert words.endswith("Write stage3_gather_16bit_weights_on_model_save.")
    both = verdict_on({**BATCH, "zero_optimization": {**zero, "stage3_gather_16bit_weights_on_model_save": True}})
    assert both.refused
