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
from deepspeed_operator.plan.advice.script import AS_IT_IS, NF4_AT_STAGE_3, Script, scripts
from deepspeed_operator.plan.engine.groups import groups_of
from deepspeed_operator.plan.engine.partitioning import model_bytes
from deepspeed_operator.plan.model.architecture import Model

SINGLE: Final = f"{ZERO}.use_multi_rank_bucket_allreduce"
HPZ: Final = f"{ZERO}.zero_hpz_partition_size"
_MORE_ACCUMULATION: Final = 4
_LARGEST_MICRO: Final = 16


@dataclass(frozen=True, slots=True)
class Change:
    """Keys of ds_config by their path, and the values to write there; `micro` and `accumulation` as they then are.

    `grows`: the global batch does. `numeric`: numbers are rounded more than before. `script`: what the script changes.
    """

    values: Mapping[str, Any]
    micro: int
    accumulation: int
    caveats: tuple[str, ...] = ()
    grows: bool = False
    numeric: bool = False
    script: Script = AS_IT_IS

    @property
    def size(self) -> int:
        """How many things are written otherwise."""
        return len(self.values) + len(self.script.words)

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
        for option, lossy in _options(setup, stage, slots, quantized=not batch):
            values = {**here, **precise[0], **moved, **option, **batch}
            words = (*caveats, lossy) if lossy else caveats
            if values:
                yield Change(values, size, steps, words, bool(grown), numeric=bool(precise[0] or lossy))


def with_scripts(setup: Setup, model: Model, micro: int, accumulation: int, slots: int) -> Iterator[Change]:
    """Yield what a script may do otherwise, alone and with another stage, hpZ or micro batch, at the same batch."""
    batches = [each for each in _batches(setup, micro, accumulation) if not each[3]]
    for script, stage, (batch, size, steps, _) in product(scripts(model), range(4), batches):
        here: dict[str, Any] = {} if stage == setup.stage else {f"{ZERO}.stage": stage}
        for option in ({}, *_near(setup, stage, slots)):
            yield _by(script, stage, {**here, **option, **batch}, size, steps)


def with_offloads(setup: Setup, model: Model, micro: int, accumulation: int) -> Iterator[Change]:
    """Yield what leaves least on the GPU, for where nothing else fits: on the host, and with other scripts, too."""
    here: dict[str, Any] = {} if setup.stage == ZeroStage.PARAMETERS else {f"{ZERO}.stage": int(ZeroStage.PARAMETERS)}
    batches = [each for each in _batches(setup, micro, accumulation) if not each[3] and each[1] <= micro]
    for script, names, (batch, size, steps, _) in product(
        (AS_IT_IS, *scripts(model)), (_OFFLOADS[:1], _OFFLOADS[1:], _OFFLOADS), batches
    ):
        moved = {f"{ZERO}.{name}": {"device": "cpu"} for name in names if device_of(setup, name) == "none"}
        stage = {} if setup.stage and _OFFLOADS[1] not in names else here
        if moved and (script is not AS_IT_IS or _OFFLOADS[1] in names):
            number = setup.stage if not stage else int(ZeroStage.PARAMETERS)
            words = (_OFFLOADED[name] for name in names)
            yield _by(script, number, {**stage, **moved, **batch}, size, steps, *words)


def _by(script: Script, stage: int, values: dict[str, Any], micro: int, accumulation: int, *caveats: str) -> Change:
    rounds = script.quantization is not None
    words = (*caveats, _ROUNDED) if rounds else caveats
    words = (*words, NF4_AT_STAGE_3) if rounds and stage == ZeroStage.PARAMETERS else words
    return Change(values, micro, accumulation, words, numeric=rounds, script=script)


_ROUNDED: Final = "numbers change: the frozen model is rounded"


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
    return [({}, ""), ({f"{ZERO}.offload_optimizer": {"device": "cpu"}}, _OFFLOADED["offload_optimizer"])]


_OFFLOADED: Final = {
    "offload_optimizer": "the optimizer then steps on the host's CPUs",
    "offload_param": "parameters then come from the host, which takes long",
}
_WEIGHTS: Final = "numbers change: weights are gathered in int8; never measured here, by ZeRO++'s paper half the bytes"
_GRADIENTS: Final = "numbers change: weights are gathered in int8, gradients sent in int4; never measured here"


def _options(setup: Setup, stage: int, slots: int, *, quantized: bool) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield options with what there is to say of numbers; `quantized`: also those that send smaller ones."""
    yield {}, ""
    multi_rank = setup.value(ZERO, "use_multi_rank_bucket_allreduce") is not False
    # Inside a node reduces to single roots were measured to gain nothing, and to lose 5 %.
    between_nodes = groups_of(setup, slots).data.nodes > 1
    if stage in (1, 2) and multi_rank and between_nodes and setup.on(ZERO, "reduce_scatter"):
        yield {SINGLE: False}, ""
    near = list(_near(setup, stage, slots))
    yield from ((option, "") for option in near)
    if not quantized or stage != ZeroStage.PARAMETERS or not between_nodes:
        return
    if setup.on(ZERO, "zero_quantized_weights") or precision_of(setup) is Precision.FP32:
        return
    for option in ({}, *near):
        yield {**option, _QWZ: True}, _WEIGHTS
        yield {**option, _QWZ: True, _QGZ: True}, _GRADIENTS


_QWZ: Final = f"{ZERO}.zero_quantized_weights"
_QGZ: Final = f"{ZERO}.zero_quantized_gradients"


def _near(setup: Setup, stage: int, slots: int) -> Iterator[dict[str, Any]]:
    """Yield hpZ in each node, where several nodes have several ranks."""
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
