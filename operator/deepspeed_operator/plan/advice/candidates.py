"""Changes of a configuration that could make training faster or smaller: the same model, ranks and network."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, cast

from deepspeed_operator.dsconfig.batch import ACCUMULATION, MICRO, TRAIN
from deepspeed_operator.dsconfig.offload import device_of
from deepspeed_operator.dsconfig.schema import TOP
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.job.precision import Precision, precision_of
from deepspeed_operator.plan.engine.groups import groups_of
from deepspeed_operator.plan.engine.partitioning import model_bytes
from deepspeed_operator.plan.model.architecture import Model

SINGLE: Final = f"{ZERO}.use_multi_rank_bucket_allreduce"
HPZ: Final = f"{ZERO}.zero_hpz_partition_size"
_MORE_ACCUMULATION: Final = 4
_LARGEST_MICRO: Final = 16


@dataclass(frozen=True, slots=True)
class Change:
    """Keys of ds_config by their path, and the values to write there; `micro` and `accumulation` as they then are."""

    values: Mapping[str, Any]
    micro: int
    accumulation: int
    caveats: tuple[str, ...] = ()
    grows: bool = False

    @property
    def caveat(self) -> str:
        return "; ".join(self.caveats)


def changed(config: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Return the configuration with the change made."""
    made = copy.deepcopy(dict(config))
    for path, value in change.values.items():
        *sections, key = path.split(".")
        section = made
        for name in sections:
            inner: Any = section.get(name)
            below: dict[str, Any] = cast(dict[str, Any], inner) if isinstance(inner, dict) else {}
            section[name] = below
            section = below
        section[key] = value
    return made


def changes(setup: Setup, micro: int, accumulation: int, slots: int, half: Precision) -> list[Change]:
    """Return every combination of stage, precision, offload and batch that is worth a look; `half`: the GPU's type."""
    found: list[Change] = []
    for change in _combinations(setup, micro, accumulation, slots, half):
        # Stage 0 offloads nothing, whatever is written.
        if all(change.values != other.values for other in found):
            found.append(change)
    return found


def _combinations(setup: Setup, micro: int, accumulation: int, slots: int, half: Precision) -> Iterator[Change]:
    for stage, precise, (offload, why), (batch, size, steps, grown) in product(
        range(4), _precisions(setup, half), _offloads(setup), _batches(setup, micro, accumulation)
    ):
        here: dict[str, Any] = {} if stage == setup.stage else {f"{ZERO}.stage": stage}
        moved = offload if stage else {}
        if not stage and any(device_of(setup, name) != "none" for name in _OFFLOADS):
            moved = {f"{ZERO}.{name}.device": "none" for name in _OFFLOADS if device_of(setup, name) != "none"}
        caveats = tuple(each for each in (*precise[1:], why if stage and moved else "", grown) if each)
        for option in _options(setup, stage, slots):
            values = {**here, **precise[0], **moved, **option, **batch}
            if values:
                yield Change(values, size, steps, caveats, bool(grown))


_TENSOR_CAVEAT: Final = (
    "neither its memory nor its time was measured; a Hugging Face model alone is divided so, the script must give all "
    "ranks of a group the same samples, and train_batch_size counts them once for each rank"
)


def divisions(setup: Setup, model: Model, micro: int, accumulation: int, slots: int) -> Iterator[Change]:
    """Yield tensor parallelism inside a node, the narrowest first, at the same samples a step.

    Pipelines are no change of a configuration: they need a script of their own.
    """
    shape, division = model.shape, setup.division
    taken = division.tensor * division.pipeline * division.sequence * division.expert
    if shape is None or not model.modules or taken > 1 or "tensor_parallel" not in setup.schema.sections[TOP].keys:
        return
    groups = shape.keys * shape.heads // shape.queries
    train = setup.config.get(TRAIN)
    for ranks, stage in product((2, 4, 8), range(setup.stage, 4)):
        if slots % ranks or shape.heads % ranks or groups % ranks:
            continue
        values: dict[str, Any] = {"tensor_parallel.autotp_size": ranks, ACCUMULATION: accumulation * ranks}
        values |= {f"{ZERO}.stage": stage} if stage != setup.stage else {}
        values |= {TRAIN: train * ranks} if isinstance(train, int) else {}
        yield Change(values, micro, accumulation * ranks, (_TENSOR_CAVEAT,))


# Keys, micro batch and accumulation, and what there is to say.
_Batch = tuple[dict[str, Any], int, int, str]
_OFFLOADS: Final = ("offload_optimizer", "offload_param")
_HALF_CAVEAT: Final = "numbers change: the model computes in {}, beside master weights in fp32"
_PLAIN_CAVEAT: Final = "; faster by less where the script allows TF32"


def _precisions(setup: Setup, half: Precision) -> list[tuple[dict[str, Any], str]]:
    """Keep it, or compute in the 16-bit type that the GPU multiplies fastest."""
    kept: tuple[dict[str, Any], str] = ({}, "")
    if half is Precision.FP16 and setup.bf16:
        return [kept, ({"bf16.enabled": False, "fp16.enabled": True}, _HALF_CAVEAT.format(half))]
    if model_bytes(setup) == 2:
        return [kept]
    plain = _PLAIN_CAVEAT if half is Precision.BF16 and precision_of(setup) is Precision.FP32 else ""
    return [kept, ({f"{half}.enabled": True}, _HALF_CAVEAT.format(half) + plain)]


def _offloads(setup: Setup) -> list[tuple[dict[str, Any], str]]:
    """Keep it, take it back, or, where there is none, move the optimizer to the host."""
    used = [name for name in _OFFLOADS if device_of(setup, name) != "none"]
    if used:
        return [({}, ""), ({f"{ZERO}.{name}.device": "none" for name in used}, "")]
    return [({}, ""), ({f"{ZERO}.offload_optimizer": {"device": "cpu"}}, "the optimizer then steps on the host's CPUs")]


def _options(setup: Setup, stage: int, slots: int) -> Iterator[dict[str, Any]]:
    yield {}
    multi_rank = setup.value(ZERO, "use_multi_rank_bucket_allreduce") is not False
    # Inside a node reduces to single roots were measured to gain nothing, and to lose 5 %.
    between_nodes = groups_of(setup, slots).data.nodes > 1
    if stage in (1, 2) and multi_rank and between_nodes and setup.on(ZERO, "reduce_scatter"):
        yield {SINGLE: False}
    near = int(setup.value(ZERO, "zero_hpz_partition_size") or 1)
    if stage == ZeroStage.PARAMETERS and 1 < slots < setup.world and near != slots:
        yield {HPZ: slots}


def _batches(setup: Setup, micro: int, accumulation: int) -> Iterator[_Batch]:
    """Micro batches traded against accumulation at the same global batch; then a batch that grows."""
    for times in (1, 2, 4, 8):
        if accumulation % times == 0 and (times == 1 or micro * times <= _LARGEST_MICRO):
            yield _batch(setup, micro * times, accumulation // times, micro, accumulation)
        if times > 1 and micro % times == 0:
            yield _batch(setup, micro // times, accumulation * times, micro, accumulation)
    yield _batch(setup, micro, accumulation * _MORE_ACCUMULATION, micro, accumulation)


def _batch(setup: Setup, micro: int, accumulation: int, before: int, steps: int) -> _Batch:
    values: dict[str, Any] = {}
    if accumulation != steps:
        values[ACCUMULATION] = accumulation
    if micro != before:
        values[MICRO] = micro
    samples = setup.data_ranks
    now, then = before * steps * samples, micro * accumulation * samples
    if now == then:
        return values, micro, accumulation, ""
    train = setup.config.get(TRAIN)
    if isinstance(train, int):
        values[TRAIN] = train * then // now
    return values, micro, accumulation, f"the global batch grows from {now} to {then} samples"
