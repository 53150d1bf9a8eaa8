"""Features that the operator accepts: DeepSpeed trains them."""

from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from tests.matrix.rows import BF16, CPU, Feature, Json, config, scheduler, split

_SGD: Json = {"type": "SGD", "params": {"lr": 1.0}}
_CSV: Json = {"enabled": True, "output_path": "/tmp/monitor", "job_name": "matrix"}
_RECOMPUTE: Json = {"partition_activations": False, "number_checkpoints": 1}
_ACCUMULATE: Json = {"data_types": {"grad_accum_dtype": "fp32"}}
_WARMUP: Json = {"warmup_max_lr": 0.02, "warmup_type": "linear"}

FEATURES = (
    *(
        Feature(f"bf16, stage {stage}", config(stage, **BF16), shows={"dtype": "bfloat16", "stage": stage})
        for stage in range(4)
    ),
    Feature(
        "bf16 with fp32 accumulation, stage 1",
        config(1, **BF16, **_ACCUMULATE),
        shows={"dtype": "bfloat16", "wrapper": "BF16_Optimizer"},
    ),
    *(
        Feature(
            f"accumulation 4, stage {stage}",
            config(stage, gradient_accumulation_steps=4),
            shows={"accumulation": 4, "batch": 64, "steps": 6, "stage": stage},
        )
        for stage in range(4)
    ),
    # Plain gradient descent with rate 1: each of the six steps is as long as its gradient, cut to 0.01.
    Feature(
        "gradient clipping",
        config(optimizer=_SGD, gradient_clipping=0.01),
        shows={"optimizer": "SGD", "moved": "0.06"},
    ),
    Feature(
        "WarmupLR",
        config(**scheduler("WarmupLR", warmup_num_steps=4, **_WARMUP)),
        shows={"rates": ["0", "0", "0.005", "0.01", "0.015", "0.02"]},
    ),
    Feature(
        "WarmupDecayLR",
        config(**scheduler("WarmupDecayLR", warmup_num_steps=2, total_num_steps=8, **_WARMUP)),
        shows={"rates": ["0", "0", "0.01", "0.02", "0.0167", "0.0133"]},
    ),
    *(
        Feature(
            f"optimizer offload to CPU, stage {stage}",
            config(stage, zero={"offload_optimizer": CPU}),
            shows={"optimizer": "DeepSpeedCPUAdam", "offloaded": ["optimizer"], "stage": stage},
        )
        for stage in (1, 2, 3)
    ),
    Feature(
        "parameter offload to CPU, stage 3",
        config(3, zero={"offload_optimizer": CPU, "offload_param": CPU}),
        shows={"offloaded": ["optimizer", "parameters"], "stage": 3},
    ),
    # Six steps run the body twelve times.
    Feature(
        "activation checkpointing",
        config(2, activation_checkpointing=_RECOMPUTE),
        "recomputed",
        shows={"steps": 6, "forwards": 12},
    ),
    Feature(
        "comms logger",
        config(1, comms_logger={"enabled": True}),
        "logged",
        shows={"operations": ["all_gather_into_tensor", "all_reduce", "broadcast"]},
    ),
    Feature("CSV monitor", config(1, csv_monitor=_CSV), "monitored", shows={"files": ["Train_Samples_lr.csv"]}),
    Feature("dsConfigFrom", config(2, gradient_accumulation_steps=2), job="from", shows={"stage": 2, "batch": 32}),
    Feature(
        "pipeline 2",
        config(1, gradient_accumulation_steps=4),
        "pipelined",
        "divide",
        ParallelDegrees(pipeline=2),
        shows={"batch": 32, "layers": 2},
    ),
    *(
        Feature(
            f"tensor 2 (AutoTP), stage {stage}",
            config(stage, **split(2)),
            "tensor-parallel",
            "divide",
            ParallelDegrees(tensor=2),
            shows={"hidden": 32, "stage": stage},
        )
        for stage in (0, 1)
    ),
    *(
        Feature(
            f"experts 2, stage {stage}",
            config(stage),
            "experts",
            "experts",
            ParallelDegrees(expert=2),
            shows={"experts": 1, "stage": stage},
        )
        for stage in (0, 2)
    ),
    # Of eight samples each rank holds four positions of the sequence, and attention sees all eight.
    Feature(
        "sequence 2 (Ulysses)",
        config(1, sequence_parallel_size=2, data_parallel_size=1),
        "sequence-parallel",
        "experts",
        ParallelDegrees(sequence=2),
        shows={"sequence": 8, "stage": 1},
    ),
)
