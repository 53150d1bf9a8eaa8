"""What engines did beside what we say of the same configurations, and why the two differ where they do."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

Record = Mapping[str, Any]

# `exited`: autotuning ends the program by itself.
_STARTED: Final = frozenset({"trained", "evaluated", "exited"})
_NO_OPTIMIZER: Final = "neither the configuration nor the script has an optimizer: nothing is reduced or offloaded"
NO_STEP: Final = "ZenFlow sets the accumulation to 0, and the benchmark took no step for that"
UNEXPLAINED: Final = "unexplained"
_WARNED: Final = "we warn of it"
# What the engine says → why we do not refuse it. Reviewed: each is about the script, its model, or the machine.
_MISSES: Final[Mapping[str, str]] = {
    r"No module named '(wandb|comet_ml|tensorboard)'": "a monitor whose package this machine lacks",
    "client provided optimizer": "an optimizer of torch.optim that the script passes: we warn of it",
    "'CROSS_SIZE'": "a variable that this benchmark does not set; DeepSpeed's launcher does, and our agent",
    "not done after": "`hybrid_engine` compiles for longer than the time limit",
    "requires an optimizer|must provide optimizer|zenflow_need_update": "neither the configuration nor the script has "
    "an optimizer",
    "_set_zero_group_parallelism": "hpZ where the script passes no optimizer either: we warn of it",
    r"\b(Adam|AdamW|Adagrad|SGD|RMSprop|NAdam)\.__init__\(\) got": "an optimizer of PyTorch's, whose parameters its "
    "version decides: we warn of it",
    "for -: 'str' and 'float'": "text as a rate, which some schedulers replace: we warn of it",
    "must have the same dtype, but got Half": "`fp16.auto_cast` with floating-point inputs: we warn of it",
    "for %: 'int' and 'str'": '`"auto"` in a place that a framework may fill: we warn of it',
    "(async_io|pin_memory) op|Ninja is required": "ops that cannot be built on this machine, which "
    "lacks libaio and ninja",
    "import apex/amp|No module named 'cupy'": "a package that is not installed here: Apex AMP, CuPy",
    "gloo does not implement": "what gloo lacks in this PyTorch: MiCS needs NCCL",
    "SplitBackward0 is a view": "gloo gathers into parts of what has gradients, another library may not: we warn of it",
    "Torch not compiled with CUDA": "ZenFlow at stage 3 on CPUs, where the script passes the optimizer: we warn of it",
    "object has no attribute '(reduce_gradients|zenflow_state|_sync_selective_optimizer_lr)'": "ZenFlow at stage 0, "
    "where the script passes the optimizer: we warn of it",
    "integer modulo by zero": "`loss_scale_window` 0, where the script passes the optimizer: we warn of it",
    "float floor division by zero": "`reduce_bucket_size` 0, where the script passes the optimizer: we warn of it",
    "ZenFlowSelectiveAdamW\\(\\) argument after": "ZenFlow, which takes its parameters from the configuration, where "
    "the script passes the optimizer",
    "Not able to determine model policy": "the model of this benchmark is none that tensor parallelism knows",
    "loss must be a scalar tensor": "`hybrid_engine`, which is for models that generate, as this benchmark's does not",
    "no MoE layers detected": "the model of this benchmark has no experts",
    r"zeros\(\) received .* got \(NoneType.*overlap_step": "ZenFlow's `overlap_step`, whose op is not built here",
    "PassManager": "the compiler that Muon needs fails on this machine: we warn of it",
    "output with shape|size of tensor a": "modules of this model that `leaf_module` or "
    "`stage3_module_granularity_threshold` names: another model trains",
    "object has no attribute 'dp_rank'|no attribute 'get_pipeline_model_parallel_world_size'": "`checkpoint.writer` "
    "without an mpu of the script's: we warn of it",
    "(element 0 of tensors does not require grad|tuple index out of range).*hybrid.engine": "`hybrid_engine`, which is "
    "for models that generate, as this benchmark's does not",
    "Cannot access accelerator device": "pinned memory, for which a PyTorch without GPUs looks for an accelerator",
    r"Invalid device string: '\d'": "tensor parallelism, whose batches this version sends to a GPU by its number",
    "'log_name'": "`comms_logger` beside tensor parallelism, a defect of DeepSpeed's that we do not tell",
    "'NoneType' object is not callable.*graph_harvesting": "`graph_harvesting`, which captures the work of a GPU",
    "constructed with fp32_optimizer_states=False": "bf16 states offloaded under an optimizer of the script's: we warn "
    "of it",
    "is only supported with ZeRO Stage 1, 2, or 3.*zero-misspelt": "a section's name that is misspelt, which is an "
    "error of its own",
}


class Cells(NamedTuple):
    """How many of the configurations that were asked both, one or none of the two refuse."""

    asked: int
    both_start: int
    both_refuse: int
    only_engine_refuses: int
    only_we_refuse: int

    def row(self) -> str:
        return " | ".join(f"{count:,}" for count in self)


HEADER: Final = "asked | both start | both refuse | only the engine refuses | only we refuse"


def started(record: Record) -> bool:
    return record["did"] in _STARTED


def differs(record: Record) -> bool:
    return started(record) == bool(record["errors"])


def cells(records: Sequence[Record]) -> Cells:
    """`errors` of a record are ours."""
    found = Counter((started(each), not each["errors"]) for each in records)
    return Cells(len(records), *(found[cell] for cell in ((True, True), (False, False), (False, True), (True, False))))


def reason(record: Record) -> str:
    """Why the two may differ; UNEXPLAINED where nothing here says so."""
    if started(record):
        tried = record.get("steps") or "zenflow" not in str(record.get("changes"))
        return _NO_OPTIMIZER if record["optimizer"] == "none" else UNEXPLAINED if tried else NO_STEP
    # Some words alone say too little: what they were about is in the names of what was asked.
    said = f"{record.get('type')}: {record['says']} {record.get('base', '')} {record.get('changes', '')}"
    return next((why for pattern, why in _MISSES.items() if re.search(pattern, said)), UNEXPLAINED)


def unexplained(records: Iterable[Record]) -> list[Record]:
    """Return what differs for no reviewed reason, or for one that we say we warn of where the record has no warning."""
    differing = [each for each in records if differs(each)]
    return [
        each
        for each in differing
        if reason(each) == UNEXPLAINED or (reason(each).endswith(_WARNED) and not each.get("warnings", True))
    ]


def deviations(records: Iterable[Record]) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield who alone refuses, and the names of what is refused by the reason, the most frequent first."""
    differing = [each for each in records if differs(each)]
    for who, ours in (("the engine refuses", True), ("we refuse", False)):
        found: dict[str, list[str]] = defaultdict(list)
        for each in differing:
            if started(each) != ours:
                found[reason(each)].append(each["name"])
        yield who, dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))
