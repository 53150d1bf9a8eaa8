"""Configurations that DeepSpeed reads without complaint, and whose engine then does not start."""

from typing import Any

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from tests.matrix.rows import BF16, CPU, Json, Refusal, by, config, scheduler, split

_NVME: Json = {"device": "nvme"}
_NO_NORM: Json = {"compute_grad_norm": False}
_MASTER: Json = {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}
_NO_CPU_OP = "This op had not been implemented on CPU backend"
_NO_PRESCALE = "pre-scale gradients is not yet supported with ZeRO-{} with reduce scatter enabled"
_NO_PREDIVIDE = "gradient_predivide_factor != 1.0 is not yet supported with ZeRO-{} with reduce scatter enabled"
_NO_PIPELINE = "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"
_ODD = "allgather_bucket_size must be a multiple of nccl_start_alignment_factor"


def _refusal(name: str, path: str, says: str, given: Json, script: str = "plain", **more: Any) -> Refusal:
    return Refusal(name, given, script, path=path, says=says, **more)


_OPTIMIZER = (
    _refusal("unknown optimizer", "optimizer.type", "Adan is not a supported DeepSpeed Optimizer", by("Adan")),
    _refusal(
        "parameter of no optimizer",
        "optimizer.params.rate",
        "unexpected keyword argument 'rate'",
        by("AdamW", rate=1),
    ),
    _refusal(
        "parameter of no optimizer of PyTorch",
        "optimizer.params.rate",
        "unexpected keyword argument 'rate'",
        by("SGD", rate=1),
        level=Level.WARNING,
    ),
    _refusal("AMSGrad", "optimizer.params.amsgrad", "does not support the AMSGrad variant", by("AdamW", amsgrad=True)),
    _refusal("max_grad_norm", "optimizer.params.max_grad_norm", "'gradient_clipping'", by("AdamW", max_grad_norm=1)),
    _refusal("untested optimizer", "optimizer.type", "You are using an untested ZeRO Optimizer", by("SGD", 1, lr=1)),
    _refusal("Lamb on CPU", "optimizer.type", _NO_CPU_OP, by("Lamb")),
    _refusal("Lion on CPU", "optimizer.type", _NO_CPU_OP, by("Lion")),
    _refusal(
        "Muon, stage 3",
        "zero_optimization.reduce_scatter",
        "Muon and reduce scatter cannot be used together",
        by("Muon", 3),
    ),
    _refusal("1-bit Adam", "optimizer.type", "OneBitAdam is not a supported DeepSpeed Optimizer", by("OneBitAdam")),
    *(
        Refusal(
            f"no optimizer, stage {stage}",
            config(stage, optimizer=None),
            says=f"zero stage {stage} requires an optimizer",
            reason="The script may pass an optimizer of its own.",
        )
        for stage in (1, 2)
    ),
    _refusal(
        "offload with the script's optimizer",
        "zero_optimization.offload_optimizer",
        "You are using ZeRO-Offload with a client provided optimizer",
        config(2, optimizer=None, zero={"offload_optimizer": CPU}),
        "client-optimizer",
        level=Level.WARNING,
    ),
)
_SCHEDULER = (
    _refusal(
        "scheduler without params", "scheduler.params", "must be a mapping", config(scheduler={"type": "WarmupLR"})
    ),
    _refusal(
        "unknown scheduler",
        "scheduler.type",
        "DeepSpeed does not recognize LR scheduler warmuplr",
        config(**scheduler("warmuplr")),
    ),
    _refusal(
        "parameter of no scheduler",
        "scheduler.params.steps",
        "unexpected keyword argument 'steps'",
        config(**scheduler("WarmupLR", steps=3)),
    ),
    _refusal(
        "warmup steps with a fraction",
        "scheduler.params.warmup_num_steps",
        "warmup_num_steps must be a positive integer",
        config(**scheduler("WarmupLR", warmup_num_steps=2.5)),
    ),
    _refusal(
        "WarmupDecayLR without its end",
        "scheduler.params.total_num_steps",
        "missing 1 required positional argument: 'total_num_steps'",
        config(**scheduler("WarmupDecayLR")),
    ),
)
_VALUES = (
    _refusal(
        "scheduler's learning rate in quotes",
        "scheduler.params.warmup_max_lr",
        "unsupported operand type(s) for -: 'str' and 'float'",
        config(**scheduler("WarmupLR", warmup_max_lr="1e-3")),
    ),
    _refusal(
        "OneCycle without a first half",
        "scheduler.params.cycle_first_step_size",
        "cycle_first_step_size must be positive",
        config(**scheduler("OneCycle", cycle_min_lr=1e-4, cycle_max_lr=1e-3, cycle_first_step_size=0)),
    ),
    _refusal("clipping in quotes", "gradient_clipping", "'>' not supported", config(1, gradient_clipping="1.0")),
    _refusal("log level", "log_level", "not one of the valid logging levels", config(log_level="verbose")),
    _refusal(
        "buffers of no known type",
        "data_types.buffer_dtype",
        "'bf8' is not a valid DtypeEnum",
        config(data_types={"buffer_dtype": "bf8"}, **BF16),
    ),
    _refusal(
        "autocast of a class without its package",
        "torch_autocast.lower_precision_safe_modules",
        "Failed to import lower precision safe module Linear",
        config(torch_autocast={"enabled": True, "dtype": "bfloat16", "lower_precision_safe_modules": ["Linear"]}),
    ),
    _refusal(
        "scores of experts applied in the middle",
        "expert_parallel.score_apply",
        "score_apply must be one of",
        config(1, expert_parallel={"enabled": True, "score_apply": "mid"}),
    ),
)
_NUMBERS = (
    _refusal(
        "bf16 with fp32 accumulation, stage 0",
        "data_types.grad_accum_dtype",
        "unsupported mix of model_dtype=torch.bfloat16 and grad_accum_dtype=torch.float32",
        config(data_types={"grad_accum_dtype": "fp32"}, **BF16),
    ),
    _refusal(
        "parameters of another precision",
        "data_types.param_dtype",
        "data_types.param_dtype='fp32' conflicts with the enabled precision mode",
        config(data_types={"param_dtype": "fp32"}, **BF16),
    ),
    *(
        _refusal(
            f"bf16 master weights without offload, stage {stage}",
            "bf16.bf16_master_weights_and_grads",
            f"Master weights feature requires ZeRO-{stage} Offload with DeepSpeedCPUAdam",
            config(stage, **_MASTER),
        )
        for stage in (1, 3)
    ),
    *(
        refusal
        for stage in (2, 3)
        for refusal in (
            _refusal(
                f"prescaled gradients, stage {stage}",
                "prescale_gradients",
                _NO_PRESCALE.format(stage),
                config(stage, prescale_gradients=True),
            ),
            _refusal(
                f"predivided gradients, stage {stage}",
                "gradient_predivide_factor",
                _NO_PREDIVIDE.format(stage),
                config(stage, gradient_predivide_factor=2.0),
            ),
        )
    ),
    _refusal(
        "no gradient norm, but clipping",
        "zero_optimization.compute_grad_norm",
        "zero_optimization.compute_grad_norm=false requires gradient_clipping=0",
        config(1, zero=_NO_NORM),
    ),
    _refusal(
        "no gradient norm, but offload",
        "zero_optimization.compute_grad_norm",
        "zero_optimization.compute_grad_norm=false does not support optimizer offload",
        config(1, gradient_clipping=0, zero={**_NO_NORM, "offload_optimizer": CPU}),
    ),
    _refusal(
        "no gradient norm of fp32 sums",
        "zero_optimization.compute_grad_norm",
        "does not support ZeRO Stage 1 with BF16 parameters and FP32 gradient accumulation",
        config(1, gradient_clipping=0, data_types={"grad_accum_dtype": "fp32"}, zero=_NO_NORM, **BF16),
    ),
    _refusal(
        "bf16 master weights with Lion",
        "bf16.bf16_master_weights_and_grads",
        "Master weights feature requires ZeRO-2 Offload with DeepSpeedCPUAdam",
        config(2, optimizer={"type": "Lion", "params": {}}, zero={"offload_optimizer": CPU}, **_MASTER),
    ),
    _refusal(
        "own accumulation with overlap",
        "managed_gradient_accumulation",
        "managed_gradient_accumulation=False supports ZeRO overlap_comm only with ZeRO stage 2",
        config(1, managed_gradient_accumulation=False, zero={"overlap_comm": True}),
    ),
    _refusal(
        "own accumulation in a pipeline",
        "managed_gradient_accumulation",
        "managed_gradient_accumulation=False is not supported with pipeline parallelism",
        config(managed_gradient_accumulation=False),
        "pipelined",
        parallelism=ParallelDegrees(pipeline=2),
    ),
    _refusal(
        "own accumulation with DeepCompile",
        "managed_gradient_accumulation",
        "managed_gradient_accumulation=False is not supported with DeepCompile",
        config(1, managed_gradient_accumulation=False, compile={"deepcompile": True}),
    ),
    _refusal(
        "accumulation in no known type",
        "data_types.grad_accum_dtype",
        "result type Float can't be cast to the desired output type Char",
        config(1, data_types={"grad_accum_dtype": "int8"}),
    ),
)
_ZERO = (
    *(
        _refusal(
            f"odd allgather bucket, stage {stage}",
            "zero_optimization.allgather_bucket_size",
            _ODD,
            config(stage, zero={"allgather_bucket_size": 499_999_999}),
        )
        for stage in (1, 2)
    ),
    _refusal(
        "NVMe optimizer without path",
        "zero_optimization.offload_optimizer.nvme_path",
        "expected str, bytes or os.PathLike object, not NoneType",
        config(3, zero={"offload_optimizer": _NVME}),
    ),
    _refusal(
        "NVMe parameters without path",
        "zero_optimization.offload_param.nvme_path",
        '"nvme_path" in DeepSpeed Config cannot be None',
        config(3, zero={"offload_param": _NVME}),
    ),
    _refusal(
        "SuperOffload on CPU",
        "zero_optimization.offload_optimizer.super_offload",
        "SuperOffload only supports NVIDIA CUDA GPUs",
        config(3, zero={"offload_optimizer": {**CPU, "super_offload": True}}),
    ),
    _refusal(
        "quantized weights on CPU",
        "zero_optimization.zero_quantized_weights",
        _NO_CPU_OP,
        config(3, zero={"zero_quantized_weights": True}),
    ),
    _refusal(
        "ZenFlow without offload",
        "zero_optimization.zenflow",
        "Zenflow must be used with cpu offload",
        config(1, zero={"zenflow": {}}),
    ),
    _refusal(
        "legacy_stage1",
        "zero_optimization.legacy_stage1",
        "The deprecated version of ZeRO Stage 1 is not supported",
        config(1, zero={"legacy_stage1": True}),
    ),
    _refusal(
        "ZenFlow with a number and no strategy",
        "zero_optimization.zenflow.select_interval",
        "select_interval would be overwritten",
        config(1, zero={"offload_optimizer": CPU, "zenflow": {"select_interval": 4}}),
    ),
    _refusal(
        "ZenFlow with a strategy and no number",
        "zero_optimization.zenflow.select_interval",
        "select_interval must be a number",
        config(1, zero={"offload_optimizer": CPU, "zenflow": {"select_strategy": "step"}}),
    ),
    _refusal(
        "no gradient norm, but ZenFlow",
        "zero_optimization.compute_grad_norm",
        "zero_optimization.compute_grad_norm=false does not support ZenFlow",
        config(1, gradient_clipping=0, zero={**_NO_NORM, "offload_optimizer": CPU, "zenflow": {}}),
    ),
    _refusal(
        "quantized weights with autocast",
        "torch_autocast.enabled",
        "Cannot enable both torch autocast and zero quantized weights",
        config(3, torch_autocast={"enabled": True, "dtype": "bfloat16"}, zero={"zero_quantized_weights": True}),
    ),
    _refusal(
        "hierarchical partitions (hpZ) 2 of 3 ranks",
        "zero_optimization.zero_hpz_partition_size",
        "3 is not divisible by 2",
        config(3, zero={"zero_hpz_partition_size": 2}),
        job="three",
        ranks=3,
    ),
)
_PARALLEL = (
    *(
        _refusal(
            f"pipeline 2, stage {stage}",
            "zero_optimization.stage",
            _NO_PIPELINE,
            config(stage),
            "pipelined",
            parallelism=ParallelDegrees(pipeline=2),
        )
        for stage in (2, 3)
    ),
    Refusal(
        "experts 2, stage 3",
        config(3),
        "experts",
        "experts",
        ParallelDegrees(expert=2),
        says="Native DeepSpeed MoE is not supported with ZeRO Stage 3",
        reason="AutoEP's experts work there: the script decides.",
    ),
    _refusal(
        "experts on 3 of 2 ranks",
        "",
        "2 is not divisible by 3",
        config(1),
        "three-experts",
        job="experts",
        parallelism=ParallelDegrees(expert=3),
    ),
    _refusal(
        "tensor 3 of 2 ranks",
        "tensor_parallel.autotp_size",
        "cannot reshape tensor of 0 elements",
        config(1, **split(3)),
        "tensor-parallel",
    ),
    _refusal(
        "tensor 2, and 4 inside",
        "tensor_parallel.tp.tp_size",
        "does not match tensor_parallel.autotp_size",
        config(1, tensor_parallel={**split(2)["tensor_parallel"], "tp": {"tp_size": 4}}),
        "tensor-parallel",
    ),
    _refusal(
        "mesh of no number",
        "data_parallel_size",
        "arange() received an invalid combination of arguments",
        config(1, sequence_parallel_size=1, data_parallel_size="2"),
    ),
    _refusal(
        "mesh that is not the world",
        "data_parallel_size",
        "Mesh should not be bigger than default world size 2, but found 4 ranks",
        config(1, sequence_parallel_size=2, data_parallel_size=2),
    ),
)

REFUSALS = (*_OPTIMIZER, *_SCHEDULER, *_VALUES, *_NUMBERS, *_ZERO, *_PARALLEL)
