"""What changed between DeepSpeed versions for those who have a configuration. All of it is data, read from the sources
of the versions; what a version is tested with is the oracle's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Path = tuple[str, ...]
LONG_AGO: Final = "0.0.0"  # deprecated before every version that is supported, and still accepted


@dataclass(frozen=True, slots=True)
class Removed:
    """A key that the version refuses. `instead` is for those who used it, empty where nothing is lost in any case;
    `unused` are values with which it did nothing."""

    since: str
    path: Path
    meaning: str
    instead: str = ""
    unused: tuple[Any, ...] = (False, None)


@dataclass(frozen=True, slots=True)
class Renamed:
    """A key with a new name in the same section."""

    since: str
    path: Path
    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """A key for which another is written, whose value depends on the old one's; without a value there it goes."""

    since: str
    path: Path
    name: str
    values: Mapping[Any, Any]
    meaning: str


@dataclass(frozen=True, slots=True)
class NewDefault:
    """Another default. It matters where the key is absent and every `when` holds: a path, and values that it has."""

    since: str
    path: Path
    was: Any
    now: Any
    meaning: str
    when: tuple[tuple[Path, tuple[Any, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Values, or a kind of values, that the version refuses and that only a person can replace."""

    since: str
    path: Path
    meaning: str
    instead: str
    values: tuple[Any, ...] = ()
    fractions: bool = False


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A change that no key of the configuration undoes."""

    since: str
    meaning: str
    instead: str


Change = Removed | Renamed | Replaced | NewDefault | Refused | Behaviour

_ZERO: Final = "zero_optimization"
_OFF: Final[tuple[Any, ...]] = (False, None, {"enabled": False}, {})
_OFFLOADED: Final = ("cpu", "nvme")


def _never_in_bf16(key: str) -> Removed:
    meaning = "a key of fp16; it had no effect in bf16, which refuses it now."
    return Removed("0.17.1", ("bf16", key), meaning)


def _old_compile(key: str) -> Removed:
    meaning = "the section compile has other keys now, and refuses this one; scripts call engine.compile()."
    return Removed("0.16.0", ("compile", key), meaning)


CHANGES: Final[tuple[Change, ...]] = (
    Replaced(
        LONG_AGO, (_ZERO,), _ZERO, {True: {"stage": 1}, False: {"stage": 0}}, "a section now, with the stage in it."
    ),
    Renamed(LONG_AGO, ("bfloat16",), "bf16", "the section's old name."),
    Replaced(
        LONG_AGO,
        (_ZERO, "cpu_offload"),
        "offload_optimizer",
        {True: {"device": "cpu"}},
        "deprecated for the section offload_optimizer; together with it, DeepSpeed refuses the configuration.",
    ),
    Replaced(
        LONG_AGO,
        (_ZERO, "cpu_offload_params"),
        "offload_param",
        {True: {"device": "cpu"}},
        "an old name that DeepSpeed refuses; the section is offload_param.",
    ),
    Replaced(
        LONG_AGO,
        (_ZERO, "cpu_offload_param"),
        "offload_param",
        {True: {"device": "cpu"}},
        "deprecated for the section offload_param; together with it, DeepSpeed refuses the configuration.",
    ),
    Removed(
        LONG_AGO,
        (_ZERO, "cpu_offload_use_pin_memory"),
        "deprecated and without effect; pin_memory of offload_optimizer and offload_param decides.",
    ),
    Renamed(
        LONG_AGO,
        (_ZERO, "stage3_gather_fp16_weights_on_model_save"),
        "stage3_gather_16bit_weights_on_model_save",
        "deprecated: it gathers bf16 weights, too.",
    ),
    NewDefault("0.15.0", ("steps_per_print",), 10, None, "throughput is printed only where this key is set."),
    Renamed("0.16.0", ("aio", "thread_count"), "intra_op_parallelism", "the old name is silently ignored."),
    Renamed(
        "0.16.0",
        ("seq_parallel_comm_data_type",),
        "seq_parallel_communication_data_type",
        "the old name is silently ignored.",
    ),
    *(_old_compile(key) for key in ("enabled", "disable", "backend", "kwargs")),
    *(
        _never_in_bf16(key)
        for key in (
            "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
            "consecutive_hysteresis", "min_loss_scale", "fp16_master_weights_and_grads",
        )
    ),
    Refused(
        "0.17.1",
        ("fp16", "min_loss_scale"),
        "must be a whole number.",
        "Write 1 (the default) or another whole number.",
        fractions=True,
    ),
    NewDefault(
        "0.19.3",
        ("gradient_clipping",),
        0.0,
        1.0,
        "gradients are clipped to a norm of 1.0 unless this key says otherwise: losses differ.",
    ),
    NewDefault(
        "0.19.5",
        (_ZERO, "offload_optimizer", "pin_memory"),
        False,
        True,
        "offloaded state is in pinned memory: faster, but it needs memlock and cannot be swapped.",
        (((_ZERO, "offload_optimizer", "device"), _OFFLOADED), ((_ZERO, "stage"), (1, 2, 3))),
    ),
    NewDefault(
        "0.19.5",
        (_ZERO, "offload_param", "pin_memory"),
        False,
        True,
        "offloaded parameters are in pinned memory: faster, but it needs memlock and cannot be swapped.",
        (((_ZERO, "offload_param", "device"), _OFFLOADED), ((_ZERO, "stage"), (3,))),
    ),
    NewDefault(
        "0.19.5",
        ("bf16", "check_grad_overflow"),
        False,
        True,
        "steps whose bf16 gradients overflow are skipped.",
        ((("bf16", "enabled"), (True, "auto")),),
    ),
    Refused(
        "0.19.6",
        (_ZERO, "reduce_bucket_size"),
        "must be greater than 0.",
        "Remove it (500,000,000 elements), or write a size.",
        values=(0,),
    ),
    Behaviour(
        "0.19.6",
        "process groups give up after 10 minutes, not 30: a slow start or a long checkpoint may need more.",
        "Set the environment variable DEEPSPEED_TIMEOUT=30 (minutes; of the world group only).",
    ),
    Removed(
        "0.19.7",
        ("nebula",),
        "Nebula checkpoints are gone.",
        "Checkpoints are written by torch.save, or by checkpoint.writer.",
        _OFF,
    ),
    Removed("0.19.7", ("compression_training",), "the compression library is gone.", "Compress outside of DeepSpeed."),
    Removed("0.19.7", ("quantize_training",), "Mixture-of-Quantization is gone.", "Train without it.", _OFF),
    Removed("0.19.7", ("sparse_attention",), "sparse attention is gone.", "Use the model's own attention."),
    Removed(
        "0.19.7",
        (_ZERO, "mics_shard_size"),
        "MiCS is gone.",
        "zero_hpz_partition_size shards within a node, too (stage 3).",
        (-1, None),
    ),
    Removed("0.19.7", (_ZERO, "mics_hierarchical_params_gather"), "MiCS is gone."),
    Refused(
        "0.19.7",
        ("optimizer", "type"),
        "1-bit and 0/1 optimizers are gone.",
        "Write Adam or Lamb, and remove the parameters that only the old one had (freeze_step, cuda_aware, "
        "comm_backend_name, var_freeze_step, …).",
        values=("OneBitAdam", "OneBitLamb", "ZeroOneAdam"),
    ),
    Removed(
        "0.19.8",
        ("elasticity",),
        "elastic training is gone.",
        "It computed the batch sizes: write train_batch_size and train_micro_batch_size_per_gpu.",
        _OFF,
    ),
    Removed("0.19.8", ("amp",), "Apex AMP is gone.", "Enable bf16, fp16 or torch_autocast.", _OFF),
    Removed(
        "0.19.8",
        ("sparse_gradients",),
        "the flag is gone; embeddings built with sparse=True are still reduced sparsely.",
        "Build the embedding with sparse=True.",
    ),
    Removed("0.19.8", ("eigenvalue",), "eigenvalue-based quantization is gone.", "Train without it.", _OFF),
    Removed("0.19.8", ("graph_harvesting",), "graph harvesting is gone.", "Train without it."),
    Removed(
        "0.19.8",
        ("curriculum_learning",),
        "the legacy section is gone.",
        "Write data_efficiency.data_sampling.curriculum_learning, which needs curriculum_metrics.",
        _OFF,
    ),
    Removed("0.19.8", ("progressive_layer_drop",), "progressive layer dropping is gone.", "Train without it.", _OFF),
    Removed(
        "0.19.8",
        (_ZERO, "zeropp_loco_param"),
        "LoCo is gone.",
        "zero_quantized_gradients works without its error feedback.",
        (None, {}),
    ),
)  # fmt: skip
