"""What the engine refuses when it starts; that DeepSpeed's own does so is what tests/matrix and tests/oracle show."""

from typing import Any

import pytest

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.notes import CheckPhase, written
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.versions import SUPPORTED
from tests.unit.dsconfig.verdicts import ADAM, BATCH, CPU_OFFLOAD, NEWEST, places, said, verdict_on

HALF_OFFLOADED: dict[str, Any] = {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}
REFUSED_AT_START: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"optimizer": {"type": "adamx"}}, {}, "optimizer.type", "Write adam"),
    ({"optimizer": {"type": "sgd"}}, {}, "optimizer.type", "Write SGD"),
    ({"optimizer": {"type": "OneBitAdam"}}, {}, "optimizer.type", "has been removed"),
    ({"optimizer": {"type": "SGD"}, "zero_optimization": {"stage": 1}}, {}, "optimizer.type", "zero_allow_untested"),
    ({"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}}}, {},
     "optimizer.params.max_grad_norm", "gradient_clipping"),
    ({"optimizer": {"type": "AdamW", "params": {"lrr": 1e-4}}}, {}, "optimizer.params.lrr", "Write lr."),
    ({"optimizer": {"type": "Adam", "params": {"bettas": [0.9, 0.95]}}}, {}, "optimizer.params.bettas", "Write betas."),
    ({"optimizer": {"type": "AdamW", "params": {"warmup": 10}}}, {}, "optimizer.params.warmup", "Remove warmup."),
    ({"optimizer": {"type": "Adagrad", "params": {"lr_decy": 1}}}, {}, "optimizer.params.lr_decy", "Write lr_decay."),
    ({"optimizer": {"type": "SGD", "params": {"lr": 1, "momentun": 0.9}}}, {}, "optimizer.params.momentun", "momentum"),
    ({"optimizer": {"type": "Lion", "params": {"eps": 1e-8}}}, {}, "optimizer.params.eps", "no such parameter"),
    ({"optimizer": {"type": "AdamW", "params": {"foreach": True}}}, {}, "optimizer.params.foreach", "no such"),
    ({"optimizer": {"type": "Lion"}}, {"accelerator": "cpu"}, "optimizer.type", "not implemented for CPUs"),
    ({"scheduler": {"type": "warmuplr", "params": {}}}, {}, "scheduler.type", "Write WarmupLR"),
    ({"scheduler": {"type": "WarmupLR"}}, {}, "scheduler.params", "is missing"),
    ({"scheduler": {"type": "WarmupDecayLR", "params": {}}}, {}, "scheduler.params.total_num_steps", "is missing"),
    ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1e3}}}, {},
     "scheduler.params.warmup_num_steps", "whole"),
    ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, {},
     "zero_optimization.offload_param.nvme_path", "is missing"),
    ({"zero_optimization": {"stage": 2}}, {"parallelism": ParallelDegrees(pipeline=2)},
     "zero_optimization.stage", "pipeline"),
    ({"prescale_gradients": True, "zero_optimization": {"stage": 2}}, {}, "prescale_gradients", "reduce_scatter"),
    ({"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}, {},
     "data_types.grad_accum_dtype", "stage 0"),
    ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}}, {},
     "zero_optimization.zero_hpz_partition_size", "divided"),
    ({"zero_optimization": {"stage": 1, "compute_grad_norm": False}}, {},
     "zero_optimization.compute_grad_norm", "gradient_clipping"),
    ({"zero_optimization": {"stage": 2, "zenflow": {}}}, {}, "zero_optimization.zenflow", "offloaded"),
    ({**ADAM, "zero_optimization": {"stage": 1, **CPU_OFFLOAD}, "fp16": {"fp16_master_weights_and_grads": True},
      "bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}, {},
     "fp16.fp16_master_weights_and_grads", "excludes bf16."),
    ({**ADAM, "bf16": {"enabled": True}, "torch_autocast": {"enabled": True, "dtype": "float16"}}, {},
     "torch_autocast.dtype", "No inf checks"),
    ({"optimizer": {"type": "Muon"}, "zero_optimization": {"stage": 3}}, {},
     "zero_optimization.reduce_scatter", "Muon"),
    ({"optimizer": {"type": "AdamW", "params": {"learning_rate": 1e-4}}}, {},
     "optimizer.params.learning_rate", "Write lr."),
    ({"optimizer": {"type": "Adam", "params": {"lr": "1e-4"}}}, {}, "optimizer.params.lr", "must be a number"),
    ({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}}, {}, "optimizer.params.betas", "two numbers"),
    ({"optimizer": {"type": "Adam", "params": {"amsgrad": True}}}, {}, "optimizer.params.amsgrad", "AMSGrad"),
    ({"optimizer": {"type": "Lion", "params": {"eps": 1e-8}}}, {}, "optimizer.params.eps", "no such parameter"),
    ({"optimizer": {"type": "Adagrad", "params": {"lr_decay": 0.1}}, "zero_optimization": {"stage": 2, **CPU_OFFLOAD}},
     {}, "optimizer.params.lr_decay", "when it is offloaded"),
    ({"optimizer": {"type": "Lion"}, "bf16": {"enabled": True, "bf16_master_weights_and_grads": True},
      "zero_optimization": {"stage": 2, **CPU_OFFLOAD}}, {}, "bf16.bf16_master_weights_and_grads", "Adam optimizer"),
    ({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "1e-4"}}}, {},
     "scheduler.params.warmup_max_lr", "without quotes"),
    ({"scheduler": {"type": "WarmupLR", "params": []}}, {}, "scheduler.params", "must be an object {…}, not []"),
    ({"gradient_clipping": "1.0"}, {}, "gradient_clipping", 'must be a number, not "1.0"'),
    ({"steps_per_print": 0}, {}, "steps_per_print", "the engine divides by it"),
    ({"log_level": "verbose"}, {}, "log_level", "one of debug, info"),
    ({"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}}, {}, "tensor_parallel.tp.tp_size", "match"),
    ({"gradient_clipping": 0, "bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"},
      "zero_optimization": {"stage": 1, "compute_grad_norm": False}}, {},
     "zero_optimization.compute_grad_norm", "added up in fp32"),
    ({"gradient_predivide_factor": None, "zero_optimization": {"stage": 2}}, {},
     "gradient_predivide_factor", "reduce_scatter"),
    ({"bf16": {"enabled": True}, "data_types": {"buffer_dtype": "bf8"}}, {}, "data_types.buffer_dtype", "bf8"),
    ({"torch_autocast": {"enabled": True, "lower_precision_safe_modules": ["Linear"]}}, {},
     "torch_autocast.lower_precision_safe_modules", "torch.nn.Linear"),
    ({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_step_size": 0}}}, {},
     "scheduler.params.lr_range_test_step_size", "above 0"),
    ({"expert_parallel": {"enabled": True, "comm_backend": "nccl"}}, {},
     "expert_parallel.comm_backend", "one of comm, deepep"),
    ({"expert_parallel": {"enabled": True, "preset_model": "x"}}, {},
     "expert_parallel.preset_model", "one of deepseek_v2,"),
    ({"expert_parallel": {"enabled": True, "autoep_size": "2"}}, {}, "expert_parallel.autoep_size", "whole number"),
    ({"sequence_parallel_size": 2, "data_parallel_size": "4"}, {}, "data_parallel_size", "Write data_parallel_size: 4"),
    ({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": {"x": 1}}}}, {},
     "scheduler.params.warmup_min_lr", "Write a number."),
    ({"scheduler": {"type": 1.5, "params": {}}}, {}, "scheduler.type", "must be text"),
    ({"data_efficiency": {"data_routing": {"random_ltd": {"enabled": True, "total_layer_num": 24,
      "random_ltd_layer_num": 22}}}}, {},
     "data_efficiency.data_routing.random_ltd.random_ltd_schedule", "random_ltd needs it"),
    ({"aio": {"use_gds": True}}, {"accelerator": "cpu"}, "aio.use_gds", "NVIDIA"),
    ({"managed_gradient_accumulation": False, "zero_optimization": {"stage": 1, "overlap_comm": True}}, {},
     "managed_gradient_accumulation", "below ZeRO stage 2"),
    ({"optimizer": {"type": "Lion"}, "zero_optimization": {"stage": 2, **CPU_OFFLOAD}}, {"accelerator": "cpu"},
     "optimizer.type", "not implemented for CPUs"),
    ({"optimizer": {"type": "Adagrad"}, "zero_optimization": {"stage": 2, **CPU_OFFLOAD}}, {"accelerator": "cpu"},
     "optimizer.type", "not implemented for CPUs"),
    ({"zero_optimization": {"stage": 3, "zero_quantized_nontrainable_weights": True}}, {"accelerator": "cpu"},
     "zero_optimization.zero_quantized_nontrainable_weights", "quantizer"),
    ({"optimizer": {"type": "SGD"}, "zero_allow_untested_optimizer": True, "zero_optimization": HALF_OFFLOADED}, {},
     "zero_optimization.offload_optimizer.ratio", "Adam and AdamW only"),
    ({**ADAM, "zero_optimization": {**HALF_OFFLOADED, "zenflow": {}}}, {},
     "zero_optimization.offload_optimizer.ratio", "ZenFlow"),
    ({**ADAM, "zero_optimization": {"stage": 0, "zenflow": {}}}, {}, "zero_optimization.zenflow", "at stage 0"),
    ({**ADAM, "zero_optimization": {"stage": 3, "zenflow": {}}}, {"accelerator": "cpu"},
     "zero_optimization.zenflow", "on CUDA devices"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "circumstances", "place", "words"), REFUSED_AT_START)
def test_what_the_engine_refuses_when_it_starts(
    config: dict[str, Any], circumstances: dict[str, Any], place: str, words: str
) -> None:
    verdict = verdict_on({**BATCH, **config}, **circumstances)
    (note,) = [note for note in verdict.notes if written(note.path) == place and note.level is Level.ERROR]
    assert note.phase is (CheckPhase.CONFIG if place == "aio.use_gds" else CheckPhase.ENGINE)
    assert words in f"{note.message} {note.fix}"


def test_what_an_optimizer_takes_depends_on_who_steps_it() -> None:
    def refused(parameter: str, version: str = NEWEST, **config: Any) -> bool:
        given = {"type": "AdamW", "params": {parameter: 1, **config.pop("params", {})}}
        return verdict_on({**BATCH, "optimizer": given, **config}, version=version).refused

    host: dict[str, Any] = {"zero_optimization": {"stage": 2, **CPU_OFFLOAD}}
    assert refused("capturable")
    assert not refused("capturable", params={"torch_adam": True})
    assert not refused("set_grad_none")
    assert refused("set_grad_none", **host)
    assert not refused("fp32_optimizer_states", **host)
    assert [version for version in SUPPORTED if refused("fp32_optimizer_states", version)] == list(SUPPORTED[:6])


def test_a_scheduler_may_replace_what_is_no_number() -> None:
    def level(name: str, key: str = "lr", params: dict[str, Any] | None = None, **config: Any) -> Level:
        optimizer = {"type": "AdamW", "params": {"lr": 1e-4, key: "1e-4", **config.pop("optimizer", {})}}
        scheduler = {"type": name, "params": params or {}}
        verdict = verdict_on({**BATCH, "optimizer": optimizer, "scheduler": scheduler, **config})
        (note,) = [note for note in verdict.notes if written(note.path) == f"optimizer.params.{key}"]
        return note.level

    cycle = {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}
    replacing: list[tuple[str, dict[str, Any]]] = [
        ("WarmupLR", {}),
        ("WarmupDecayLR", {"total_num_steps": 9}),
        ("LRRangeTest", {}),
        ("OneCycle", cycle),
    ]
    for name, params in replacing:
        assert level(name, params=params) is Level.WARNING
        assert level(name, params=params, optimizer={"torch_adam": True}) is Level.ERROR
        assert level(name, params=params, zero_optimization={"stage": 2, **CPU_OFFLOAD}) is Level.ERROR
        assert level(name, "weight_decay", params) is Level.ERROR
    assert level("WarmupCosineLR", params={"total_num_steps": 9}) is Level.ERROR
    assert level("OneCycle", "betas", cycle) is Level.WARNING
    assert level("OneCycle", "betas", {**cycle, "cycle_momentum": False}) is Level.ERROR
    assert level("WarmupLR", "betas") is Level.ERROR


def test_zenflow_at_stage_0_is_refused_where_no_pass_works() -> None:
    def refused(zenflow: dict[str, Any], **config: Any) -> bool:
        return verdict_on({**BATCH, "zero_optimization": {"stage": 0, "zenflow": zenflow}, **config}).refused

    assert refused({})  # without an optimizer, too: to evaluate
    assert not refused({"update_interval": 2})
    assert not refused({"full_warm_up_rounds": 9})
    assert refused({"update_interval": 2}, optimizer=ADAM["optimizer"])
    assert refused({"full_warm_up_rounds": 9}, optimizer=ADAM["optimizer"])


def test_a_window_of_no_steps_is_refused_where_the_scale_changes_and_something_trains() -> None:
    def level(**config: Any) -> Level | None:
        fp16 = {"enabled": True, "loss_scale_window": 0, **config.pop("fp16", {})}
        notes = verdict_on({**BATCH, "fp16": fp16, **config}, version="0.18.9").notes
        return next((note.level for note in notes if written(note.path) == "fp16.loss_scale_window"), None)

    assert level(**ADAM) is Level.ERROR
    assert level() is Level.WARNING
    assert level(**ADAM, fp16={"loss_scale": 128}) is None
    assert level(**ADAM, fp16={"enabled": False}) is None


def test_one_version_fails_with_gloo_where_its_ranks_gather_parameters() -> None:
    def told(version: str, stage: int, world: int, accelerator: str = "cpu") -> bool:
        config = {**BATCH, "zero_optimization": {"stage": stage}}
        verdict = verdict_on(config, version=version, world=world, accelerator=accelerator)
        return "gloo" in said(verdict, "zero_optimization.stage")

    assert [version for version in SUPPORTED if told(version, 2, 2)] == ["0.18.9"]
    assert [stage for stage in range(4) if told("0.18.9", stage, 2)] == [1, 2]
    assert not told("0.18.9", 2, 1)
    assert not told("0.18.9", 2, 2, "cuda")


def test_master_weights_of_fp16_need_offloading_where_fp16_is_on_or_the_version_does_not_look() -> None:
    config = {**BATCH, "fp16": {"fp16_master_weights_and_grads": True}, "zero_optimization": {"stage": 2}}
    assert [version for version in SUPPORTED if not verdict_on(config, version=version).refused] == list(SUPPORTED[:2])


def test_a_writer_of_checkpoints_needs_to_know_its_ranks() -> None:
    def said_of(version: str, stage: int, **writer: str) -> str:
        config = {**BATCH, "checkpoint": {"writer": {"type": "fast", **writer}}, "zero_optimization": {"stage": stage}}
        return said(verdict_on(config, version=version), "checkpoint.writer.data_parallel")

    assert 'Write data_parallel: "replica"' in said_of(NEWEST, 2)
    assert said_of(NEWEST, 2, data_parallel="replica") == said_of(NEWEST, 3) == said_of("0.15.4", 2) == ""


def test_muon_needs_a_compiler_since_it_is_compiled() -> None:
    config = {**BATCH, "optimizer": {"type": "Muon"}, "zero_optimization": {"stage": 2}}
    told = [version for version in SUPPORTED if "g++" in said(verdict_on(config, version=version), "optimizer.type")]
    assert told == list(SUPPORTED[3:])
    assert not verdict_on(config).refused


def test_a_parameter_that_another_pytorch_may_have_is_a_warning() -> None:
    verdict = verdict_on({**BATCH, "optimizer": {"type": "SGD", "params": {"lr": 1, "warp": 9}}})
    assert not verdict.refused
    assert "of PyTorch 2.6 has no such parameter" in said(verdict, "optimizer.params.warp")


CURRICULUM: dict[str, Any] = {
    **{"enabled": True, "min_difficulty": 8, "max_difficulty": 64},
    "schedule_config": {"total_curriculum_step": 10, "difficulty_step": 8},
}
OF_OLD_VERSIONS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"amp": {"enabled": True}, "zero_optimization": {"stage": 1}}, "0.19.7", "amp.enabled", "ZeRO"),
    ({"amp": {"enabled": True}, "bf16": {"enabled": True}}, "0.19.7", "amp.enabled", "bf16"),
    ({"tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 3}}, "0.19.2",
     "zero_optimization.stage", "AutoTP"),
    ({"optimizer": {"type": "Adam", "params": {"fp32_optimizer_states": True}}}, "0.19.5",
     "optimizer.params.fp32_optimizer_states", "no such parameter"),
    ({"bf16": {"enabled": True}, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "0.17.6",
     "torch_autocast.enabled", "together with bf16"),
    ({**ADAM, "zero_optimization": {"stage": 2, "zenflow": {}, **CPU_OFFLOAD}}, "0.19.2",
     "zero_optimization.zenflow", "zero_allow_untested_optimizer"),
    ({"optimizer": {"type": "Muon"}, "zero_allow_untested_optimizer": True,
      "zero_optimization": {"stage": 3, "reduce_scatter": False}}, "0.17.6", "optimizer.type", "stage 3"),
    ({"optimizer": {"type": "Muon"}, "zero_optimization": {"stage": 2}}, "0.17.6", "optimizer.type", "untested"),
    ({**ADAM, "zero_optimization": {"stage": 1, "reduce_bucket_size": 0}}, "0.19.5",
     "zero_optimization.reduce_bucket_size", "divided by"),
    ({"curriculum_learning": {"enabled": True, "min_difficulty": 8, "max_difficulty": 64}}, "0.19.7",
     "curriculum_learning.schedule_type", "is missing"),
    ({"curriculum_learning": {**CURRICULUM, "schedule_type": "fixed_root"}}, "0.19.7",
     "curriculum_learning.schedule_config.root_degree", "fixed_root needs it"),
    ({"curriculum_learning": {**CURRICULUM, "schedule_type": "linear"}}, "0.19.7",
     "curriculum_learning.schedule_type", "one of fixed_linear"),
    ({**ADAM, "zero_optimization": {"stage": 3, "zenflow": {}, **CPU_OFFLOAD}}, "0.18.9",
     "zero_optimization.zenflow", "zero_allow_untested_optimizer"),
    ({**ADAM, "zero_optimization": {"stage": 3, "zenflow": {}}}, "0.17.6", "zero_optimization.zenflow", "1 and 2 only"),
    ({**ADAM, "zero_optimization": {"stage": 1},
      "fp16": {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 0}}, "0.18.9",
     "fp16.loss_scale_window", "is divided by"),
    ({"progressive_layer_drop": {"enabled": True, "theta": 0.5}}, "0.15.4",
     "progressive_layer_drop.gamma", "is missing"),
    ({"zero_optimization": {"stage": 3, "mics_shard_size": 3}}, "0.19.6",
     "zero_optimization.mics_shard_size", "divided by 3"),
    ({"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "bf16"}}, "0.16.9",
     "data_types.grad_accum_dtype", "stage 0"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "version", "place", "words"), OF_OLD_VERSIONS)
def test_what_only_old_versions_refuse(config: dict[str, Any], version: str, place: str, words: str) -> None:
    before, now = verdict_on({**BATCH, **config}, version=version), verdict_on({**BATCH, **config})
    assert places(before, Level.ERROR) == [place]
    assert words in said(before, place)
    refused_now = {note.path for note in now.notes if note.phase is CheckPhase.ENGINE and note.level is Level.ERROR}
    assert place not in map(written, refused_now)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Lion", "Lamb", "SGD", "Adagrad", "Muon"])
def test_an_optimizer_with_its_usual_parameters_is_accepted(name: str) -> None:
    usual = {"lr": 1e-4, "weight_decay": 0.01, **({"momentum": 0.9} if name == "SGD" else {})}
    assert not verdict_on({**BATCH, "optimizer": {"type": name, "params": usual}}).refused


@pytest.mark.parametrize(
    "params",
    [
        {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
        {"torch_adam": True, "adam_w_mode": True, "fused": True},
        {"bias_correction": True, "set_grad_none": True, "amsgrad": False},
    ],
)
def test_parameters_of_adam_that_are_found_in_real_files(params: dict[str, Any]) -> None:
    assert not verdict_on({**BATCH, "optimizer": {"type": "AdamW", "params": params}}).refused


ACCEPTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {
            "bf16": {"enabled": True},
            "data_types": {"grad_accum_dtype": "fp32"},
            "zero_optimization": {"stage": 1, "reduce_bucket_size": 0, "allgather_bucket_size": 1001},
        },
        {"version": "0.15.4"},
    ),
    (
        {
            "bf16": {"enabled": True, "bf16_master_weights_and_grads": True},
            "fp16": {"fp16_master_weights_and_grads": True},
            "data_types": {"grad_accum_dtype": "fp32"},
            "zero_optimization": {"stage": 1},
        },
        {},
    ),
    ({"managed_gradient_accumulation": False, "zero_optimization": {"stage": 3}}, {}),
    ({"aio": {"use_gds": True}}, {"accelerator": "cuda"}),
    ({"steps_per_print": None, "log_level": "WARNING"}, {}),
    ({"expert_parallel": {"enabled": False, "score_apply": "mid"}}, {}),
    ({"scheduler": {"type": "OneCycleLR", "params": {"anneal_strategy": "cos", "max_lr": 1, "total_steps": 9}}}, {}),
]


STEPS: dict[str, Any] = {"scheduler": {"type": "StepLR", "params": {"step_size": 3}}}
TORCH_SCHEDULERS: list[tuple[dict[str, Any], Level, str, str]] = [
    ({**STEPS, "zero_optimization": {"stage": 1}}, Level.ERROR, "scheduler.type", "ZeRO stage 1 DeepSpeed wraps"),
    ({**STEPS, "bf16": {"enabled": True}}, Level.ERROR, "scheduler.type", "bf16 DeepSpeed wraps"),
    ({"scheduler": {"type": "StepLR", "params": {}}}, Level.ERROR, "scheduler.params.step_size", "StepLR needs it"),
    ({"scheduler": {"type": "StepLR", "params": {"step_size": 3, "gama": 1}}}, Level.ERROR, "scheduler.params.gama",
     "Write gamma."),
    ({"scheduler": {"type": "StepLR", "params": {"step_size": 3, "mine": 1}}}, Level.WARNING, "scheduler.params.mine",
     "unless the image's PyTorch has it"),
    ({"scheduler": {"type": "StepLR", "params": {"step_size": 3, "verbose": True}}}, Level.WARNING,
     "scheduler.params.verbose", "newer than 2.6"),
    ({"scheduler": {"type": "LambdaLR", "params": {"lr_lambda": "x"}}}, Level.ERROR, "scheduler.type", "a function"),
    ({"scheduler": {"type": "ReduceLROnPlateau", "params": {}}}, Level.WARNING, "scheduler.type", "no plateau"),
    ({"scheduler": {"type": "StepRL", "params": {}}}, Level.ERROR, "scheduler.type", "Write StepLR."),
]  # fmt: skip


@pytest.mark.parametrize(("config", "level", "place", "words"), TORCH_SCHEDULERS)
def test_schedulers_of_pytorch_are_judged_by_their_signatures(
    config: dict[str, Any], level: Level, place: str, words: str
) -> None:
    verdict = verdict_on({**BATCH, **config})
    assert places(verdict, level) == [place]
    assert words in said(verdict, place)


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("stage", [0, 2])
def test_fp16_on_cpus_is_an_error_where_no_cpu_could_train_it(version: str, stage: int) -> None:
    config = {**BATCH, "fp16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    verdict = verdict_on(config, version=version, accelerator="cpu")
    never = version == "0.15.4" and stage == 0
    assert "fp16.enabled" in places(verdict, Level.ERROR if never else Level.WARNING)
    assert verdict.refused == never
    assert "fp16.enabled" not in places(verdict_on(config, version=version, accelerator="cuda"), Level.WARNING)


def test_where_the_optimizer_is_wrapped_none_of_pytorchs_schedulers_is_recommended() -> None:
    verdict = verdict_on({**BATCH, "scheduler": {"type": "StepRL", "params": {}}, "zero_optimization": {"stage": 2}})
    assert "Write WarmupLR, for example." in said(verdict, "scheduler.type")


def test_what_a_version_does_not_read_divides_no_ranks() -> None:
    config = {**BATCH, "tensor_parallel": {"autotp_size": 3}, "expert_parallel": {"enabled": True, "autoep_size": 3}}
    assert places(verdict_on(config, version="0.15.4"), Level.ERROR) == []
    assert places(verdict_on(config), Level.ERROR) == ["tensor_parallel.autotp_size"]


@pytest.mark.parametrize("version", SUPPORTED)
def test_fp16_master_weights_need_an_offloaded_optimizer(version: str) -> None:
    config = {**BATCH, "fp16": {"enabled": True, "fp16_master_weights_and_grads": True}}
    alone = verdict_on({**config, "zero_optimization": {"stage": 2}}, version=version)
    assert places(alone, Level.ERROR) == ["fp16.fp16_master_weights_and_grads"]
    assert not verdict_on({**config, "zero_optimization": {"stage": 2, **CPU_OFFLOAD}}, version=version).refused


def test_a_version_accumulates_at_stage_0_as_it_can() -> None:
    config = {**BATCH, "bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    refusing = [version for version in SUPPORTED if verdict_on(config, version=version).refused]
    assert refusing == list(SUPPORTED[SUPPORTED.index("0.18.9") :])


@pytest.mark.parametrize(("config", "circumstances"), ACCEPTED)
def test_what_the_engine_does_not_refuse(config: dict[str, Any], circumstances: dict[str, Any]) -> None:
    assert not verdict_on({**BATCH, **config}, **circumstances).refused
