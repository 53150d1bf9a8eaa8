"""What one rank passes to collectives in one optimizer step. Counted from the code: the papers' volumes are smaller.

The terms are compared with DeepSpeed's own calls in tests/oracle/test_traffic.py. What is not compared there makes the
total a lower bound, and is named in `unproven`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.setup import ZERO, Setup
from deepspeed_operator.plan.gathers import Limits, gathered, persistent
from deepspeed_operator.plan.model import Model

PROVEN_VERSIONS: Final = ("0.15.4", "0.19.8")
ALL_REDUCE: Final = "all-reduce"
REDUCE: Final = "reduce"
ALL_GATHER: Final = "all-gather"
REDUCE_SCATTER: Final = "reduce-scatter"
# How often the payload passes through a rank's link, in units of (ranks − 1) ÷ ranks.
_PASSES: Final = {ALL_REDUCE: 2, REDUCE: 1, ALL_GATHER: 1, REDUCE_SCATTER: 1}
_FP32: Final = ("fp32", "float32", "torch.float32", "float")
_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}
# Optimizers that reduce by themselves, or more than their gradients.
_OTHER_OPTIMIZERS: Final = ("OneBitAdam", "ZeroOneAdam", "OneBitLamb", "Muon")


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes of the whole tensor, over all calls of a step, among the data-parallel ranks."""

    collective: str
    payload: int
    what: str


@dataclass(frozen=True, slots=True)
class Traffic:
    ranks: int
    terms: tuple[Term, ...]
    unproven: tuple[str, ...]

    def payload(self) -> dict[str, int]:
        """Return the payload of each collective."""
        totals: dict[str, int] = {}
        for term in self.terms:
            totals[term.collective] = totals.get(term.collective, 0) + term.payload
        return totals

    @property
    def wire(self) -> float:
        """Bytes that pass each way through a rank's link, as rings do it."""
        return sum(self.wire_of(collective) for collective in _PASSES)

    def wire_of(self, collective: str) -> float:
        """The part of one collective."""
        share = (self.ranks - 1) / self.ranks
        return _PASSES[collective] * share * self.payload().get(collective, 0)


def communication(setup: Setup, model: Model, accumulation: int) -> Traffic:
    """Return what a step of `accumulation` micro steps costs."""
    ranks = setup.division.shards or setup.world
    terms = () if ranks == 1 else tuple(_terms(setup, model, accumulation, ranks))
    return Traffic(ranks, terms, tuple(_unproven(setup, model)))


def model_bytes(setup: Setup) -> int:
    """Bytes of a parameter as the model computes with it."""
    return 2 if setup.bf16 or setup.fp16 else 4


def _terms(setup: Setup, model: Model, accumulation: int, ranks: int) -> Iterator[Term]:
    stage, width = setup.stage, model_bytes(setup)
    asked = setup.plain("communication_data_type")
    reduced = model.parameters * (_BYTES.get(str(asked).lower(), width) if asked else width)
    if stage == 0:
        yield Term(ALL_REDUCE, reduced, "gradients, once a step")
        if replaced_by_bf16_optimizer(setup):
            yield Term(ALL_GATHER, model.parameters * width, "parameters after the step")
    elif stage < 3:
        single = setup.on(ZERO, "reduce_scatter") and not setup.on(ZERO, "use_multi_rank_bucket_allreduce")
        single = single and not _bf16_optimizer(setup)
        times = accumulation if stage == 2 else 1
        how = f"gradients, at each of {accumulation} micro steps" if stage == 2 else "gradients, once a step"
        yield Term(REDUCE if single else ALL_REDUCE, reduced * times, how)
        yield Term(ALL_GATHER, model.parameters * width, "parameters after the step")
    else:
        yield from _stage_3(setup, model, accumulation, reduced, ranks)


def _stage_3(setup: Setup, model: Model, accumulation: int, reduced: int, ranks: int) -> Iterator[Term]:
    width = model_bytes(setup)
    limits = Limits(*(int(setup.value(ZERO, name)) for name in _LIMITS))
    if model.modules:
        kept = persistent(model.modules, *(int(setup.value(ZERO, name)) for name in _PERSISTENCE))
        stays = setup.schema.numbers < _RELEASES_FIRST_MODULE
        gathers = gathered(model.modules, kept, limits, accumulation, first_stays=stays)
        elements = sum(_padded(tensor.elements, ranks) for tensor in gathers)
        held = sum(_padded(tensor.elements, ranks) for tensor in kept)
    else:
        # Without modules: what is gathered at least, once for forward and backward.
        elements, held = model.parameters * accumulation, 0
    yield Term(ALL_GATHER, elements * width, f"parameters, at each of {accumulation} micro steps")
    if held:
        yield Term(ALL_GATHER, held * width, "small parameters, once a step")
    yield Term(REDUCE_SCATTER, reduced * accumulation, f"gradients, at each of {accumulation} micro steps")


# The first version known to let go of the first module after a backward pass.
_RELEASES_FIRST_MODULE: Final = (0, 19, 8)
_LIMITS: Final = ("max_live_parameters", "max_reuse_distance", "prefetch_bucket_size")
# Limits that the Hugging Face Trainer writes for "auto".
_FILLED: Final = ("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
_PERSISTENCE: Final = ("param_persistence_threshold", "model_persistence_threshold")


def _padded(elements: int, ranks: int) -> int:
    return -(-elements // ranks) * ranks


def replaced_by_bf16_optimizer(setup: Setup) -> bool:
    """Whether stage 0 in bf16 partitions the optimizer's state all the same: up to 0.16, there is no other wrapper."""
    return setup.stage == 0 and setup.bf16 and setup.schema.numbers < (0, 17, 0)


def _bf16_optimizer(setup: Setup) -> bool:
    """Whether stage 1 is done by BF16_Optimizer, which knows none of ZeRO's options."""
    return setup.stage == 1 and setup.bf16 and accumulates_in_fp32(setup) and not offloads(setup)


def accumulates_in_fp32(setup: Setup) -> bool:
    return setup.section("data_types").get("grad_accum_dtype") in _FP32


def offloads(setup: Setup) -> bool:
    device = device_of(setup, "offload_optimizer")
    return setup.stage > 0 and (device not in (None, "none") or setup.on(ZERO, "cpu_offload"))


def device_of(setup: Setup, section: str) -> str | None:
    """Return where optimizer states or parameters are put, None for where they are used."""
    found: Any = setup.value(ZERO, section)
    device: Any = cast(Mapping[str, Any], found).get("device") if isinstance(found, Mapping) else None
    return str(getattr(device, "value", device)) if device is not None else None


def _unproven(setup: Setup, model: Model) -> Iterator[str]:
    if setup.schema.version not in PROVEN_VERSIONS:
        yield f"DeepSpeed {setup.schema.version} (counted: {', '.join(PROVEN_VERSIONS)})"
    if setup.fp16:
        yield "fp16"
    if setup.stage == 3 and not model.modules:
        yield "stage 3 of a model whose modules are not known"
    if setup.stage == 3 and model.parameters != sum(tensor.elements for module in model.modules for tensor in module):
        yield "tied parameters at stage 3"
    division = setup.division
    sizes = {"tensor": division.tensor, "pipeline": division.pipeline, "sequence": division.sequence}
    yield from (f"{name} parallelism" for name, size in {**sizes, "expert": division.expert}.items() if size > 1)
    yield from _unproven_options(setup)


def _unproven_options(setup: Setup) -> Iterator[str]:
    changed: dict[str, Any] = {
        "zero_hpz_partition_size": 1,
        "zero_quantized_weights": False,
        "zero_quantized_gradients": False,
        "zero_quantized_nontrainable_weights": False,
        "use_all_reduce_for_fetch_params": False,
        "module_granularity_threshold": 0,
    }
    yield from (name for name, default in changed.items() if setup.value(ZERO, name) not in (None, default))
    yield from (name for name in ("offload_optimizer", "offload_param") if device_of(setup, name) not in (None, "none"))
    yield from (name for name in ("cpu_offload", "cpu_offload_param") if setup.on(ZERO, name))
    if setup.stage and not setup.on(ZERO, "contiguous_gradients"):
        yield "contiguous_gradients: false"
    if setup.stage == 3:
        yield from _unproven_at_stage_3(setup)
    if setup.value(ZERO, "zenflow") is not None:
        yield "zenflow"
    if setup.section("optimizer").get("type") in _OTHER_OPTIMIZERS:
        yield f"the optimizer {setup.section('optimizer')['type']}"
    yield from (name for name in ("sparse_gradients", "elasticity") if setup.config.get(name))
    yield from (name for name in ("torch_autocast", "compile", "amp") if setup.section(name).get("enabled"))
    if setup.section("compile").get("deepcompile"):
        yield "deepcompile"


def _unproven_at_stage_3(setup: Setup) -> Iterator[str]:
    if not setup.on(ZERO, "reduce_scatter"):
        yield "reduce_scatter: false at stage 3"
    if not setup.value(ZERO, "max_reuse_distance") and setup.value(ZERO, "prefetch_bucket_size"):
        yield "stage3_max_reuse_distance: 0 while prefetching"
    yield from (f"{key}: auto" for key, value in setup.section(ZERO).items() if value == AUTO and key in _FILLED)
