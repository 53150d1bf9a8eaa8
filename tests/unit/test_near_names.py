"""Near names are looked for so many times an object, whoever looks: each search takes half a millisecond."""

import difflib
from collections.abc import Callable
from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.cli.job_schema import schema_findings
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.job.accelerators import library_of
from deepspeed_operator.lint.network.findings import network_findings

NAMES = 2_000
MOST = 50  # of several parts of one object, each with its own bound


def unknown(prefix: str) -> dict[str, int]:
    return {f"{prefix}{number}": number for number in range(NAMES)}


def variables(prefix: str) -> None:
    env = [{"name": name, "value": "1"} for name in unknown(prefix)]
    template = {"spec": {"containers": [{"name": "trainer", "env": env}]}}
    spec = DeepSpeedJobSpec.model_validate({"training": {"script": "a.py"}, "template": template})
    network_findings(spec, library_of("cuda"))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that difflib looks for, each once a search."""
    words: list[str] = []
    searched = difflib.SequenceMatcher[str].set_seq2

    def count(self: difflib.SequenceMatcher[str], word: str) -> None:
        words.append(word)
        searched(self, word)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq2", count)
    return words


def config(**sections: Any) -> None:
    validate(sections, JudgementContext(world=8, version="0.19.8"))


@pytest.mark.parametrize(
    "judge",
    [
        lambda: variables("NCCL_UNHEARD_OF_"),
        lambda: variables("NCLL_UNHEARD_OF_"),
        lambda: config(**unknown("train_batch_sizes_")),
        lambda: config(zero_optimization=unknown("stages_")),
        lambda: config(comms_logger=unknown("enabled_")),
        lambda: config(optimizer={"type": "AdamW", "params": unknown("weight_decay_")}),
        lambda: config(scheduler={"type": "WarmupLR", "params": unknown("warmup_num_steps_")}),
        lambda: config(
            zero_optimization={"offload_optimizer": {"device": [f"cpu{number}" for number in range(NAMES)]}}
        ),
        lambda: schema_findings({"metadata": {"name": "a"}, "spec": {"training": unknown("scripts_")}}),
    ],
    ids=["NCCL", "misspelt prefix", "top level", "strict", "plain", "optimizer", "scheduler", "enum", "job"],
)
def test_the_searches_of_one_object_are_bounded(judge: Callable[[], None], compared: list[str]) -> None:
    judge()
    assert len(compared) <= MOST


def test_a_name_of_any_length_takes_as_long_as_one_of_80_characters(compared: list[str]) -> None:
    variables("NCCL_" + "X" * 100_000)
    config(**{"train_batch_size" * 10_000: 1}, zero_optimization={"stage" * 10_000: 1})
    schema_findings({"metadata": {"name": "a"}, "spec": {"nodes" * 10_000: 1, "admission": "Always" * 10_000}})
    assert compared
    assert max(map(len, compared)) <= 80
