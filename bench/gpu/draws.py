"""Configurations for the engine: the public ones, and drawn ones biased towards what only the engine reads."""

import copy
import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.judgement import JudgementContext, VersionVerdict, validate
from tests.oracle import corpus
from tests.oracle.compare import refusals
from tests.oracle.filling import filled

Config = Mapping[str, Any]
Change = tuple[str, Any]

VERSION: Final = "0.19.8"
CIRCUMSTANCES: Final = JudgementContext(1, VERSION, "cuda")
_SWITCH: Final = (True, False)
_HALVES: Final = ("fp32", "fp16", "bf16")
_HOST: Final = {"device": "cpu", "pin_memory": True}
_ADAM: Final = {"type": "AdamW", "params": {"lr": 1e-4}}
# Topic → path → values to choose from.
_TOPICS: Final[Sequence[Mapping[str, Sequence[Any]]]] = (
    {
        "optimizer.type": ("Adam", "AdamW", "Adagrad", "Lamb", "Lion", "Muon", "SGD", "RMSprop", "NAdam", "OneBitAdam"),
        "optimizer.params": ({}, {"lr": 1e-4}, {"lr": 1e-4, "weight_decay": 0.1}, {"lr": 1e-4, "betas": [0.9, 0.95]}),
        "optimizer.params.torch_adam": _SWITCH,
        "optimizer.params.adam_w_mode": _SWITCH,
        "optimizer.params.amsgrad": _SWITCH,
        "optimizer.params.eps": (1e-8, "1e-8"),
        "optimizer.params.lr": (1e-4, "1e-4", 0),
        "optimizer.params.momentum": (0.9,),
        "optimizer.params.fp32_optimizer_states": _SWITCH,
        "optimizer.legacy_fusion": _SWITCH,
        "zero_allow_untested_optimizer": _SWITCH,
        "zero_force_ds_cpu_optimizer": _SWITCH,
    },
    {
        "scheduler.type": ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle", "StepLR"),
        "scheduler.params": (
            {},
            {"warmup_num_steps": 10},
            {"total_num_steps": 100, "warmup_num_steps": 10},
            {"total_num_steps": 100, "warmup_num_steps": 100},
            {"step_size": 3},
            {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3},
            {"lr_range_test_min_lr": 1e-4},
        ),
        "scheduler.params.warmup_type": ("log", "linear", "cosine"),
        "scheduler.params.warmup_num_steps": (0, 1, 10, 1.5, "10"),
        "scheduler.params.warmup_max_lr": (1e-3, "1e-3"),
        "scheduler.params.total_num_steps": (2, 100, 0),
    },
    {
        "zero_optimization.stage": (1, 2, 3),
        "zero_optimization.offload_optimizer": (_HOST, {"device": "cpu"}, {"device": "none"}, {"device": "nvme"}),
        "zero_optimization.offload_optimizer.ratio": (0.0, 0.5, 1.0),
        "zero_optimization.offload_optimizer.super_offload": _SWITCH,
        "zero_optimization.offload_optimizer.nvme_path": ("/tmp/nvme",),
        "zero_optimization.offload_param": (_HOST, {"device": "none"}, {"device": "nvme", "nvme_path": "/tmp/nvme"}),
        "zero_optimization.zenflow": ({}, {"topk_ratio": 0.1, "update_interval": 2, "full_warm_up_rounds": 0}),
        "zero_optimization.zenflow.select_strategy": ("auto", "step", "epoch"),
        "zero_optimization.zenflow.select_interval": ("auto", 2),
        "zero_optimization.zenflow.steps_per_epoch": (10,),
        "zero_optimization.zenflow.overlap_step": _SWITCH,
    },
    {
        "zero_optimization.stage": (0, 1, 2, 3),
        "zero_optimization.overlap_comm": _SWITCH,
        "zero_optimization.reduce_scatter": _SWITCH,
        "zero_optimization.contiguous_gradients": _SWITCH,
        "zero_optimization.round_robin_gradients": _SWITCH,
        "zero_optimization.use_multi_rank_bucket_allreduce": _SWITCH,
        "zero_optimization.compute_grad_norm": _SWITCH,
        "zero_optimization.allgather_partitions": _SWITCH,
        "zero_optimization.allgather_bucket_size": (1000, 1001, 500000),
        "zero_optimization.reduce_bucket_size": (0, 10, 500000),
        "zero_optimization.sub_group_size": (0, 1, 1000, 10**9),
        "zero_optimization.elastic_checkpoint": _SWITCH,
        "zero_optimization.legacy_stage1": _SWITCH,
        "zero_optimization.ignore_unused_parameters": _SWITCH,
        "zero_optimization.load_from_fp32_weights": _SWITCH,
        "zero_optimization.parameter_alignment": (1, 2, 64),
    },
    {
        "zero_optimization.stage": (3,),
        "zero_optimization.zero_hpz_partition_size": (1, 2, 8),
        "zero_optimization.zero_quantized_weights": _SWITCH,
        "zero_optimization.zero_quantized_nontrainable_weights": _SWITCH,
        "zero_optimization.zero_quantized_gradients": _SWITCH,
        "zero_optimization.stage3_max_live_parameters": (0, 1, 10**9),
        "zero_optimization.stage3_prefetch_bucket_size": (0, 1, 500000),
        "zero_optimization.stage3_param_persistence_threshold": (0, 1, 10**6),
        "zero_optimization.stage3_module_granularity_threshold": (0, 1, 10**6),
        "zero_optimization.memory_efficient_linear": _SWITCH,
        "zero_optimization.allgather_sequential": _SWITCH,
        "zero_optimization.use_all_reduce_for_fetch_params": _SWITCH,
        "zero_optimization.leaf_module": ({"classes": ["torch.nn.Linear"]}, {"names": ["first"]}, {"classes": ["X"]}),
        "zero_optimization.enable_sanity_checks": _SWITCH,
        "zero_optimization.stage3_gather_16bit_weights_on_model_save": _SWITCH,
    },
    {
        "fp16": ({"enabled": True}, {"enabled": False}, {"enabled": True, "loss_scale": 128}),
        "bf16": ({"enabled": True}, {"enabled": False}),
        "fp16.auto_cast": _SWITCH,
        "fp16.fp16_master_weights_and_grads": _SWITCH,
        "fp16.initial_scale_power": (0, 16, 32),
        "fp16.hysteresis": (0, 1, 2),
        "fp16.min_loss_scale": (0, 1),
        "bf16.bf16_master_weights_and_grads": _SWITCH,
        "bf16.bf16_optimizer_states": _SWITCH,
        "bf16.immediate_grad_update": _SWITCH,
        "bf16.check_grad_overflow": _SWITCH,
        "zero_optimization.stage": (0, 1, 2, 3),
        "zero_optimization.offload_optimizer": (_HOST,),
    },
    {
        "data_types.grad_accum_dtype": _HALVES,
        "data_types.param_dtype": _HALVES,
        "data_types.buffer_dtype": _HALVES,
        "data_types.keep_in_fp32_modules": ([], ["first"]),
        "communication_data_type": _HALVES,
        "seq_parallel_communication_data_type": _HALVES,
        "torch_autocast": ({"enabled": True}, {"enabled": True, "dtype": "bfloat16"}, {"enabled": False}),
        "torch_autocast.dtype": ("bfloat16", "float16", "torch.bfloat16", "bf16"),
        "torch_autocast.lower_precision_safe_modules": (["torch.nn.Linear"], ["Linear"], []),
        "amp": ({"enabled": True}, {"enabled": False}),
        "zero_optimization.stage": (0, 1, 2, 3),
    },
    {
        "activation_checkpointing.partition_activations": _SWITCH,
        "activation_checkpointing.cpu_checkpointing": _SWITCH,
        "activation_checkpointing.contiguous_memory_optimization": _SWITCH,
        "activation_checkpointing.number_checkpoints": (None, 2, 4),
        "activation_checkpointing.profile": _SWITCH,
        "compile": ({}, {"deepcompile": True}, {"deepcompile": False}),
        "compile.offload_activation": _SWITCH,
        "compile.passes": ([], ["prefetch"]),
        "hybrid_engine": ({"enabled": True}, {"enabled": False}),
        "weight_quantization": ({"enabled": False}, {"enabled": True}),
    },
    {
        "tensorboard": ({"enabled": True, "output_path": "tb"}, {"enabled": True}),
        "csv_monitor": ({"enabled": True, "output_path": "csv", "job_name": "x"}, {"enabled": True}),
        "wandb": ({"enabled": True, "project": "x"},),
        "comet": ({"enabled": True, "mode": "get_or_create"},),
        "comms_logger": ({"enabled": True}, {"enabled": True, "verbose": True, "prof_ops": ["all_reduce"]}),
        "flops_profiler": ({"enabled": True}, {"enabled": True, "detailed": False, "module_depth": 1}),
        "flops_profiler.profile_step": (1, 2),
        "wall_clock_breakdown": _SWITCH,
        "memory_breakdown": _SWITCH,
        "dump_state": _SWITCH,
        "timers.throughput": ({"enabled": False}, {"enabled": True, "synchronized": False}),
        "log_level": ("info", "loud", "WARNING"),
        "steps_per_print": (1, 2, 10**9, "auto"),
    },
    {
        "data_efficiency": ({"enabled": False}, {"enabled": True, "data_routing": {"enabled": False}}),
        "data_efficiency.data_routing": ({"enabled": True}, {"enabled": True, "random_ltd": {"enabled": True}}),
        "data_efficiency.data_sampling": (
            {"enabled": True},
            {"enabled": True, "curriculum_learning": {"enabled": True}},
        ),
        "expert_parallel": ({"enabled": True}, {"enabled": True, "autoep_size": 1}, {"enabled": False}),
        "expert_parallel.preset_model": ("mixtral", "qwen3_moe", "x"),
        "expert_parallel.score_func": ("softmax", "relu"),
        "tensor_parallel": ({"autotp_size": 1}, {"autotp_size": 0}, {"autotp_size": 1, "tensor_parallel": {}}),
        "sequence_parallel_size": (1,),
        "use_data_before_expert_parallelism": _SWITCH,
        "aio": ({}, {"block_size": 1048576, "queue_depth": 8}, {"use_gds": True}),
        "checkpoint": ({"tag_validation": "Ignore"}, {"writer": {"type": "fast"}}, {"load_universal": True}),
        "autotuning": ({"enabled": True}, {"enabled": False}),
    },
    {
        "gradient_clipping": (0, 1.0, "1.0", None),
        "prescale_gradients": _SWITCH,
        "gradient_predivide_factor": (1.0, 2.0),
        "gradient_allreduce_op": ("mean", "sum"),
        "disable_allgather": _SWITCH,
        "managed_gradient_accumulation": _SWITCH,
        "gradient_accumulation_steps": (1, 2, 4),
        "dataloader_drop_last": _SWITCH,
        "disable_python_gc": _SWITCH,
        "zero_optimization.stage": (0, 1, 2, 3),
    },
)


def digest(config: Config) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def verdict(config: Config) -> VersionVerdict:
    return validate(config, CIRCUMSTANCES)


def questions(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Each configuration as the engine is to be given it; one that names no optimizer also without any."""
    for name in corpus.public():
        if name in corpus.configurations():
            yield from _asked({"name": name})
    for index, (base, changes) in enumerate(drawn(count, seed)):
        yield from _asked({"name": f"drawn {index}", "base": base, "changes": changes})


def config_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked, made again from the file and the changes that a question or a record names."""
    base = corpus.configurations()[question.get("base", question["name"])]
    return changed(base, question.get("changes", []))


def _asked(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    config = config_of(question)
    question = {**question, "digest": digest(config), "config": config}
    named = object_at(config.get("optimizer")).get("type") is not None
    yield {**question, "optimizer": "configuration" if named else "script"}
    if not named and object_at(config.get("zero_optimization")).get("stage") == 3:
        # As the Trainer does to evaluate; at stages 1 and 2 it takes ZeRO out of the configuration.
        yield {**question, "optimizer": "none"}


def drawn(count: int, seed: int) -> list[tuple[str, list[Change]]]:
    """That many different ones, none of which the configuration's class refuses: there we are compared elsewhere."""
    source = random.Random(seed)
    bases = [name for name in corpus.configurations() if not refusals(verdict(changed(_base(name), [])))]
    found: dict[str, tuple[str, list[Change]]] = {}
    while len(found) < count:
        base, changes = source.choice(bases), list(_changes(source))
        config = changed(_base(base), changes)
        if not refusals(verdict(config)):
            found.setdefault(digest(config), (base, changes))
    return list(found.values())


def _base(name: str) -> dict[str, Any]:
    return corpus.configurations()[name]


def _changes(source: random.Random) -> Iterator[Change]:
    if source.random() < 0.5:
        yield "optimizer", _ADAM
    for topic in source.sample(_TOPICS, source.choice((1, 1, 2))):
        for path in sorted(source.sample(sorted(topic), source.choice((1, 2, 3, 4)))):
            yield path, source.choice(topic[path])


def changed(base: Config, changes: Sequence[Change]) -> dict[str, Any]:
    """Apply the changes in order, then put numbers where "auto" stands."""
    config = copy.deepcopy(dict(base))
    for path, value in changes:
        *sections, key = path.split(".")
        section = config
        for step in sections:
            if not isinstance(section.get(step), dict):
                section[step] = {}
            section = section[step]
        section[key] = copy.deepcopy(value)
    return filled(config, 1)
