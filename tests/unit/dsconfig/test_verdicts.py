"""What is refused, ignored or worth knowing, in words; that DeepSpeed agrees is what tests/oracle shows."""

from typing import Any

import pytest

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.schema import schema_of
from deepspeed_operator.dsconfig.strict import KNOWN_CHECKS
from deepspeed_operator.dsconfig.versions import SUPPORTED
from tests.unit.dsconfig.verdicts import BATCH, CPU_OFFLOAD, places, said, verdict_on

ARTICLE: dict[str, Any] = {
    "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}},
    "scheduler": {
        "type": "WarmupLR",
        "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-4, "warmup_num_steps": 1000},
    },
    "fp16": {"enabled": True, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
        "reduce_scatter": True,
        "contiguous_gradients": True,
    },
    "gradient_clipping": 1.0,
}


def test_the_article_on_two_cpus() -> None:
    verdict = verdict_on(ARTICLE, 2, accelerator="cpu")
    assert places(verdict, Level.ERROR) == ["train_batch_size"]
    ignored = ["zero_optimization.offload_param", "zero_optimization.reduce_scatter"]
    assert places(verdict, Level.WARNING) == ["fp16.enabled", *ignored]
    advised = places(verdict, Level.ADVICE)
    assert {"zero_optimization.offload_optimizer", "scheduler.params.warmup_min_lr"} <= set(advised)
    assert not {"optimizer", "scheduler"} & set(advised), "nobody knows what the script passes; its engine will tell"
    assert "fp16.loss_scale" in said(verdict, "")


def test_the_article_on_eight_gpus_has_one_error() -> None:
    verdict = verdict_on(ARTICLE, 8, accelerator="cuda")
    assert places(verdict, Level.ERROR) == ["train_batch_size"]
    assert "train_batch_size 256" in said(verdict, "train_batch_size")


REFUSED_WHILE_READ: list[tuple[dict[str, Any], str, str]] = [
    ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage", "must be one of 0, 1, 2, 3, not 4"),
    ({"zero_optimization": {"offload_parm": {}}}, "zero_optimization.offload_parm", "nearest that exists is offload_"),
    ({"zero_optimization": {"stage": "x", "a": 1}}, "zero_optimization.a", "unknown key"),
    ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "fp16.enabled", "cannot be simultaneously enabled"),
    ({"amp": {"enabled": False}}, "amp", "whatever its value"),
    ({"zero_optimization": {"mics_shard_size": -1}}, "zero_optimization.mics_shard_size", "whatever its value"),
    ({"bf16": {"loss_scale": 0}}, "bf16.loss_scale", "it belongs in fp16"),
    ({"wall_clock_breakdown": "true"}, "wall_clock_breakdown", 'must be true or false, not "true"'),
    ({"communication_data_type": "float16"}, "communication_data_type", "must be one of bf16, fp16, fp32"),
    ({"optimizer": "adam"}, "optimizer", "must be an object"),
    ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}},
     "zero_optimization.offload_optimizer.ratio", "stage 3 only"),
    ({"zero_optimization": {"cpu_offload": True, **CPU_OFFLOAD}}, "zero_optimization.cpu_offload", "both together"),
    ({"fp16": {"enabled": True, "min_loss_scale": 0}}, "fp16.min_loss_scale", "above 0"),
    ({"gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}}, "gradient_allreduce_op", "stage 3"),
    ({"data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": True}}}},
     "data_efficiency.data_sampling.dynamic_batching.max_tokens", "is missing"),
    ({"zero_optimization": {"offload_optimizer": {"device": "CPU"}}},
     "zero_optimization.offload_optimizer.device", 'Write device: "cpu"'),
    ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage", "Write stage: 3"),
    ({"wandb": None}, "wandb", "must be an object {…}, not null"),
    ({"vocabulary_size": "50257"}, "vocabulary_size", 'must be a number, not "50257"'),
    ({"timers": None}, "timers", "must be an object {…}, not null"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "place", "words"), REFUSED_WHILE_READ)
def test_what_deepspeed_refuses_while_it_reads(config: dict[str, Any], place: str, words: str) -> None:
    verdict = verdict_on({**BATCH, **config})
    assert place in places(verdict, Level.ERROR)
    assert words in said(verdict, place)


IGNORED: list[tuple[dict[str, Any], str, str]] = [
    ({"optimiser": {}}, "optimiser", "nearest that exists is optimizer"),
    ({"offload_optimizer": {"device": "cpu"}}, "offload_optimizer", "belongs in zero_optimization"),
    ({"activation_checkpointing": {"partitioned_activations": True}},
     "activation_checkpointing.partitioned_activations", "partition_activations"),
    ({"activation_checkpointing": {"partition_activations": True}}, "activation_checkpointing", "checkpoint"),
    ({"aio": {"thread_count": 1}}, "aio.thread_count", "DeepSpeed 0.15.4 knows it"),
    ({"zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1}},
     "zero_optimization.stage3_max_live_parameters", "stage 3 only"),
    ({"zero_optimization": CPU_OFFLOAD}, "zero_optimization.offload_optimizer", "nothing is offloaded"),
    ({"tensor_parallel": {"tp": {"tp_size": 2}}}, "tensor_parallel.tp.tp_size", "autotp_size: 2"),
    ({"optimizer": {"params": {"lr": 1}}}, "optimizer.params", "without a type"),
    ({"zero_optimization": True}, "zero_optimization", "stage: 1"),
    ({"pipeline": {"stages": 2}}, "pipeline.stages", "PipelineModule"),
    ({"pipeline": {"stage": 2}}, "pipeline.stage", "does not read this key"),
    ({"expert_parallel": {"enabled": True, "ep_size": 2}}, "expert_parallel.ep_size", "does not read this key"),
    ({"max_grad_norm": 1.0}, "max_grad_norm", "Write gradient_clipping."),
    ({"dump_state": "false"}, "dump_state", '"false" is text, which DeepSpeed takes for true'),
    ({"aio": {"block_size": "1M"}}, "aio.block_size", "expects a number"),
    ({"zero_optimization": {"stage": "2"}}, "zero_optimization.stage", "Write stage: 2, without quotes."),
    ({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cosine"}}},
     "scheduler.params.warmup_type", "quietly becomes log"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "place", "words"), IGNORED)
def test_what_deepspeed_ignores_is_a_warning(config: dict[str, Any], place: str, words: str) -> None:
    verdict = verdict_on({**BATCH, **config})
    assert place in places(verdict, Level.WARNING)
    assert not verdict.refused
    assert words in said(verdict, place)


def test_a_refused_section_is_not_taken_for_stage_0() -> None:
    zero = {"stage": 3, "stage3_prefetch_bucket_size": 0.5, "stage3_max_live_parameters": 1}
    verdict = verdict_on({**BATCH, "zero_optimization": zero})
    assert places(verdict, Level.ERROR) == ["zero_optimization.stage3_prefetch_bucket_size"]
    assert places(verdict, Level.WARNING) == []


def test_a_value_that_is_refused_has_no_remark_beside_it() -> None:
    verdict = verdict_on({**BATCH, "gradient_clipping": "1.0", "zero_optimization": "auto"})
    assert len({note.path for note in verdict.notes}) == len(verdict.notes)


def test_a_plain_configuration_has_nothing_to_say() -> None:
    config = {**BATCH, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}, "steps_per_print": 10}
    assert verdict_on(config, accelerator="cuda").notes == ()


def test_all_errors_come_at_once_and_first() -> None:
    verdict = verdict_on({"train_batch_size": 7, "optimiser": {}, "fp16": {"a": 1}, "zero_optimization": {"stage": 9}})
    levels = [note.level for note in verdict.notes]
    assert levels == sorted(levels, key=list(Level).index)
    assert set(places(verdict, Level.ERROR)) == {"train_batch_size", "fp16.a", "zero_optimization.stage"}


def test_a_version_between_two_is_judged_by_the_older_and_says_so() -> None:
    verdict = verdict_on({**BATCH, "amp": {"enabled": False}}, version="0.19.7.post1")
    assert verdict.version == "0.19.7"
    assert not verdict.refused
    between = verdict_on(BATCH, version="0.18.3")
    assert between.version == "0.17.6"
    assert "judged as 0.17.6" in said(between, "")


def test_what_changed_since_the_version_that_judges_is_said() -> None:
    assert "since DeepSpeed 0.19.3, 1.0 by default" in said(verdict_on(BATCH, version="0.19.3"), "gradient_clipping")
    assert said(verdict_on({**BATCH, "gradient_clipping": 0.5}, version="0.19.3"), "gradient_clipping") == ""
    assert said(verdict_on(BATCH, version="0.18.3"), "gradient_clipping") == ""


def test_a_key_that_some_versions_refuse_and_others_ignore_has_one_finding() -> None:
    verdict = validate({**BATCH, "bf16": {"enable": True}}, JudgementContext(8))
    assert places(verdict, Level.WARNING) == ["bf16.enable"]
    assert "DeepSpeed 0.17.6–0.19.8 rejects this: unknown key" in said(verdict, "bf16.enable")


def test_without_a_version_only_what_all_refuse_is_an_error() -> None:
    config = {**BATCH, "amp": {"enabled": False}, "fp16": {"enabled": "yes, please"}, "zero_optimization": {"stage": 7}}
    verdict = validate(config, JudgementContext(8))
    assert places(verdict, Level.ERROR) == ["zero_optimization.stage"]
    assert "DeepSpeed 0.19.8 rejects this" in said(verdict, "amp")
    assert "DeepSpeed 0.17.6–0.19.8 rejects this" in said(verdict, "fp16.enabled")


def test_without_a_version_what_all_refuse_for_different_reasons_is_an_error_too() -> None:
    config = {**BATCH, "amp": 1, "zero_optimization": {"log_trace_cache_warnings": False}}
    assert all(validate(config, JudgementContext(8, version)).refused for version in SUPPORTED)
    assert validate(config, JudgementContext(8)).refused


def test_auto_is_listed_with_what_fills_it_in_and_never_an_error() -> None:
    config = {
        **dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_clipping"), "auto"),
        "fp16": {"enabled": "auto"},
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "sub_group_size": "auto"},
    }
    for version in SUPPORTED:
        verdict = verdict_on(config, version=version)
        assert not verdict.refused, version
        assert "optimizer.params.lr: learning_rate" in said(verdict, "")
        assert "filled in by nobody" in said(verdict, "zero_optimization.sub_group_size")


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_check_of_deepspeeds_models_is_known_here(version: str) -> None:
    """A new version's schema may bring a validator that the notation cannot express: it has to be written by hand."""
    for model in schema_of(version).models.values():
        assert set(model.get("checks", ())) <= KNOWN_CHECKS
        for field in model["fields"].values():
            assert set(field.get("checks", ())) <= KNOWN_CHECKS


@pytest.mark.parametrize(
    ("zero", "size", "refused"),
    [(True, {"device": "cpu"}, True), (True, "5e8", True), (True, 500, False), (False, "x", False), ({}, "x", False)],
)
def test_the_bucket_of_years_ago_is_read_where_zero_is_true(zero: object, size: object, refused: bool) -> None:
    verdict = verdict_on({**BATCH, "zero_optimization": zero, "allgather_size": size}, 1)
    assert places(verdict, Level.ERROR) == (["allgather_size"] if refused else [])


AUTOCAST: dict[str, Any] = {**BATCH, "bf16": {"enabled": True}, "torch_autocast": {"enabled": True}}


def test_between_two_known_versions_only_what_both_refuse_is_an_error() -> None:
    (found,) = [note for note in verdict_on(AUTOCAST, version="0.18.3").notes if note.path[0:1] == ("torch_autocast",)]
    assert found.level is Level.WARNING
    assert found.message.startswith("DeepSpeed 0.17.6 rejects this, and 0.18.9 does not: ")
    assert verdict_on(AUTOCAST, version="0.17.6").refused
    both = verdict_on({**BATCH, "optimizer": {"type": "Adamx", "params": {}}}, version="0.18.3")
    assert places(both, Level.ERROR) == ["optimizer.type"]


def test_a_version_newer_than_all_is_judged_by_the_newest_alone() -> None:
    assert verdict_on({**BATCH, "optimizer": {"type": "OneBitAdam", "params": {}}}, version="0.20.0").refused
