"""A key of the top level that is so near to one of DeepSpeed's that nothing else can be meant.

DeepSpeed ignores what it does not know there, so `zero_optimisation` trains at stage 0.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final, cast

from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.schema import TOP, Key, Schema, schema_of

# Without one of these the training computes something else; without the others, such as wandb, it only says less.
_COMPUTED_WITH: Final = frozenset(
    {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"}
    | {"gradient_predivide_factor", "prescale_gradients", "gradient_allreduce_op", "communication_data_type"}
    | {"optimizer", "scheduler", "zero_optimization", "fp16", "bf16", "bfloat16", "amp", "torch_autocast", "data_types"}
    | {"tensor_parallel", "expert_parallel", "sequence_parallel_size", "curriculum_learning", "data_efficiency"}
    | {"progressive_layer_drop", "compression_training"}
)
# Sections that do nothing without a value for this key.
_SWITCHES: Final = ("enabled", "type", "stage")
# Names shorter than the first may be words of their own (comment is two letters off comet): only case and underscores
# are forgiven. From the first on one letter is, from the second on two.
_ONE_EDIT, _TWO_EDITS = 8, 12
_MOST_EDITS: Final = 2
_LONGEST: Final = 40


def misspelt(schema: Schema, config: Mapping[str, Any], key: str) -> str | None:
    """Return the key that this one is meant to be, where DeepSpeed without it would train something else."""
    meant = _nearest(key, _names(schema.version))
    if meant is None or meant in config or not _asks_for_something(schema, meant, config[key]):
        return None
    return meant


@cache
def _names(version: str) -> tuple[str, ...]:
    return tuple(sorted(_COMPUTED_WITH & schema_of(version).sections[TOP].keys.keys()))


@lru_cache(maxsize=4096)
def _nearest(key: str, names: tuple[str, ...]) -> str | None:
    if len(key) > _LONGEST or "-" in key:  # programs that write their names with - read them under another one
        return None
    return next((name for name in names if _is_near(key, name)), None)


def _is_near(key: str, name: str) -> bool:
    if name in key and (key.endswith(name) or not any(map(str.isalpha, key.replace(name, "")))):
        return False  # _optimizer, xoptimizer and optimizer_2 are how a section is put aside
    if _plain(key) == _plain(name):
        return True
    allowed = 0 if len(name) < _ONE_EDIT else 1 if len(name) < _TWO_EDITS else _MOST_EDITS
    if abs(len(key) - len(name)) > allowed or len(set(key) ^ set(name)) > 2 * allowed:
        return False  # cheap, and true of nearly all
    return _edits(key, name) <= allowed


def _plain(text: str) -> str:
    return text.replace("_", "").lower()


def _edits(one: str, other: str) -> int:
    """Count the letters to insert, delete, replace, or exchange with their neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                row[j] = min(row[j], older[j - 2] + 1)
    return row[-1]


def _asks_for_something(schema: Schema, name: str, value: object) -> bool:
    """Whether the value, under the right name, would change what is computed."""
    entry = schema.sections[TOP].keys[name]
    fields = _fields(schema, name, entry)
    if fields is not None:
        section: Mapping[str, Any] = cast(Mapping[str, Any], value) if isinstance(value, dict) else {}
        switches = [switch for switch in _SWITCHES if switch in fields]
        asked = [section.get(switch) for switch in switches] if switches else [section]
        return any(each and each != AUTO for each in asked)
    plain = isinstance(value, bool | int | float | str)
    return plain and bool(value) and value not in (AUTO, entry.default) and not entry.refused(value, False, False)


def _fields(schema: Schema, name: str, entry: Key) -> Mapping[str, Any] | None:
    """Return the keys of a section; None where the key has a plain value."""
    if entry.model is not None:
        return schema.models[entry.model]["fields"]
    return schema.sections[name].keys if name in schema.sections else None
