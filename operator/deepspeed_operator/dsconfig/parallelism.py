"""How many ranks DeepSpeed divides the batch by, and how many of them see different data."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import KEYS
from deepspeed_operator.dsconfig.kinds import is_digits
from deepspeed_operator.dsconfig.notes import Note, Path, error, refused, warning
from deepspeed_operator.dsconfig.schema import TOP, Schema
from deepspeed_operator.dsconfig.wording import plural, quoted

SEQUENCE = "sequence_parallel_size"
DATA = "data_parallel_size"
_LARGEST_WORLD: Final = 10_000 * 1024  # a job's nodes and slots at most


@dataclass(frozen=True, slots=True)
class ParallelDegrees:
    """What the script does with its ranks; None where nothing is declared."""

    tensor: int | None = None
    pipeline: int | None = None
    sequence: int | None = None
    expert: int | None = None


@dataclass(frozen=True, slots=True)
class Division:
    """`divisor` is DeepSpeed's "world_size" of the batch arithmetic; `shards` see different samples.

    None where the ranks cannot be divided so; the notes say why.
    """

    divisor: int | None
    shards: int | None
    tensor: int = 1
    pipeline: int = 1
    sequence: int = 1
    expert: int = 1
    notes: list[Note] = field(default_factory=list[Note])


def divide(schema: Schema, config: Mapping[str, Any], world: int, declared: ParallelDegrees) -> Division:
    """Divide the ranks as this version does it for this configuration and script."""
    notes: list[Note] = []
    # A section that a version does not read divides nothing; it is told as ignored.
    unread = {"tensor_parallel", "expert_parallel"} - schema.sections[TOP].keys.keys()
    config = {key: value for key, value in config.items() if key not in unread}
    tensor = _agreed(notes, _auto_tensor(config), declared.tensor, ("tensor_parallel", "autotp_size"), "tensor")
    expert = _agreed(notes, _auto_expert(config), declared.expert, ("expert_parallel", "autoep_size"), "expert")
    configured = _sequence(schema, config, notes)
    sequence = _agreed(notes, configured, declared.sequence, (SEQUENCE,), "sequence")
    pipeline = declared.pipeline or 1
    model = tensor * pipeline * sequence
    # AutoTP's ranks are in no mpu that the configuration class could ask: it counts them as data-parallel ones.
    counted = model // tensor if _auto_tensor(config) else model
    divisor = None if world % counted else world // counted
    if configured and world % configured:
        notes.append(_part_of_a_rank(world, configured))
        return Division(None, None, tensor, pipeline, sequence, expert, notes)
    if world % model:
        path = _where(configured if declared.sequence is None else None, _auto_tensor(config))
        notes.append(_indivisible(path, world, {"tensor": tensor, "pipeline": pipeline, "sequence": sequence}))
        return Division(divisor, None, tensor, pipeline, sequence, expert, notes)
    notes += _mesh(config, world)
    if (world // pipeline) % expert:
        notes.append(_experts(world // pipeline, expert, config))
    shards = world // model
    if configured and configured > 1 and declared.sequence is None and DATA not in config:
        notes.append(_sequence_alone(configured, world))
        shards = world // (tensor * pipeline)
    return Division(divisor, shards, tensor, pipeline, sequence, expert, notes)


def worlds(config: Mapping[str, Any], declared: ParallelDegrees) -> tuple[int, ...]:
    """Return worlds into which the sizes that are written fit, each by itself and all together; first that of one rank.

    What is a finding in all of them is one in every world: none of the sizes is too large or no divisor in each.
    """
    zero, tensor = object_at(config, "zero_optimization"), object_at(config, "tensor_parallel")
    train, micro, accumulation, data, sequence = (config.get(key) for key in (*KEYS, DATA, SEQUENCE))
    steps = [each for each in (micro, accumulation) if type(each) is int and each > 0]
    written = [
        *(train // step for step in (*steps, math.prod(steps)) if type(train) is int),
        *(zero.get(key) for key in ("zero_hpz_partition_size", "mics_shard_size")),
        *(tensor.get("autotp_size"), object_at(tensor, "tp").get("tp_size")),
        object_at(config, "expert_parallel").get("autoep_size"),
        *(sequence, data, data * sequence if type(data) is int and type(sequence) is int else None),
        *asdict(declared).values(),
    ]
    sizes = sorted({size for size in written if type(size) is int and 1 < size <= _LARGEST_WORLD})
    return tuple(sorted({1, *sizes, math.lcm(*sizes), math.prod(sizes)}))


def _agreed(notes: list[Note], configured: int | None, declared: int | None, path: Path, name: str) -> int:
    if configured is not None and declared is not None and configured != declared:
        message = f"{configured} contradicts spec.parallelism.{name}, which is {declared}."
        notes.append(
            error(path, Code.CONTRADICTORY_SIZES, message, f"Write the same number in both, or leave {name} out.")
        )
    return configured or declared or 1


def _auto_tensor(config: Mapping[str, Any]) -> int | None:
    section = object_at(config.get("tensor_parallel"))
    size = section.get("autotp_size")
    if (isinstance(size, str) and is_digits(size)) or (isinstance(size, float) and size.is_integer()):
        section = {"autotp_size": int(size)}  # as pydantic takes it
    return _above_one(section, "autotp_size")


def _auto_expert(config: Mapping[str, Any]) -> int | None:
    section = config.get("expert_parallel")
    return _above_one(section, "autoep_size") if object_at(section).get("enabled") else None


def _above_one(section: Any, key: str) -> int | None:
    size = object_at(section).get(key)
    return size if type(size) is int and size > 1 else None


def _sequence(schema: Schema, config: Mapping[str, Any], notes: list[Note]) -> int | None:
    """The configuration's size; versions that do not read the key have it listed as ignored."""
    size = config.get(SEQUENCE)
    if SEQUENCE not in config or SEQUENCE not in schema.sections[TOP].keys:
        return None
    if type(size) is int and size > 0:
        return size
    quietly = schema.rules["unreadable_sequence_parallel_size"] and not isinstance(size, int | float)
    consequence = (
        "DeepSpeed then computes batch sizes for one rank, without a word" if quietly else "DeepSpeed divides by it"
    )
    message = f"must be a whole number above 0, not {quoted(size)}: {consequence}."
    notes.append(error((SEQUENCE,), Code.SEQUENCE_SIZE, message, f"Write {SEQUENCE}: 2, for example, or remove it."))
    return None


def _where(sequence: int | None, tensor: int | None) -> Path:
    """The key of the configuration that asks for a division, if one does."""
    return (SEQUENCE,) if sequence else ("tensor_parallel", "autotp_size") if tensor else ()


def _indivisible(path: Path, world: int, sizes: Mapping[str, int]) -> Note:
    factors = " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    message = f"the world's {plural(world, 'rank')} cannot be divided by {factors}."
    fix = "Choose nodes × slotsPerNode as a multiple of that product."
    return refused(path, Code.INDIVISIBLE_RANKS, message, fix)


def _part_of_a_rank(world: int, size: int) -> Note:
    message = (
        f"the world's {plural(world, 'rank')} cannot be divided by {size}: DeepSpeed computes with a part of a rank."
    )
    return error((SEQUENCE,), Code.INDIVISIBLE_SEQUENCE, message, "Choose a size that divides nodes × slotsPerNode.")


def _mesh(config: Mapping[str, Any], world: int) -> list[Note]:
    data, sequence = config.get(DATA), config.get(SEQUENCE)
    if DATA in config and type(sequence) is int and not (type(data) is int and data > 0):
        message = f"must be a whole number above 0, not {quoted(data)}: DeepSpeed makes a mesh of it."
        return [refused((DATA,), Code.INVALID_VALUE, message, f"Write {DATA}: {max(world // max(sequence, 1), 1)}.")]
    if type(data) is not int or type(sequence) is not int or data * sequence == world:
        return []
    message = f"{DATA} {data} × {SEQUENCE} {sequence} is {data * sequence}, and the world has {plural(world, 'rank')}."
    fix = (
        f"Write {DATA}: {world // sequence}."
        if sequence > 0 and world % sequence == 0
        else "Write sizes that multiply."
    )
    return [refused((DATA,), Code.MESH_SIZE, message, fix)]


def _experts(ranks: int, expert: int, config: Mapping[str, Any]) -> Note:
    path: Path = ("expert_parallel", "autoep_size") if _auto_expert(config) else ()
    message = f"experts over {expert} ranks do not fit into {plural(ranks, 'rank')}."
    return refused(path, Code.INDIVISIBLE_RANKS, message, "Choose a size that divides the ranks.")


def _sequence_alone(size: int, world: int) -> Note:
    return warning(
        (SEQUENCE,),
        Code.SEQUENCE_SIZE_ALONE,
        f"alone, it divides the batch sizes by {size}, while DeepSpeed's engine and its data loader still treat all "
        f"{plural(world, 'rank')} as data-parallel ones.",
        f"Give {DATA} too, or declare spec.parallelism.sequence where the script splits sequences itself.",
    )
