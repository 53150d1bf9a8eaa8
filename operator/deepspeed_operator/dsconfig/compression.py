"""compression_training, in the versions that still have it: groups that users name, each with parameters of its own."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.notes import Note, Path, error
from deepspeed_operator.dsconfig.wording import quoted

GROUPS: Final = "different_groups"
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "weight_quantization": ("start_bits", "target_bits"),
    "activation_quantization": ("bits",),
    "sparse_pruning": ("dense_ratio",),
    "row_pruning": ("dense_ratio",),
    "head_pruning": ("dense_ratio",),
    "channel_pruning": ("dense_ratio",),
}


def group_notes(groups: Mapping[str, Any], path: Path) -> Iterator[Note]:
    """Judge the groups of one method; `path` ends with the method and `different_groups`."""
    needed = _NEEDED.get(str(path[-2]), ())
    for name, group in groups.items():
        parameters = object_at(group, "params")
        if not isinstance(object_at(group).get("params"), dict):
            message = f"must be an object with params, itself an object, not {quoted(group)}."
            yield error((*path, name), Code.INVALID_VALUE, message, "Write params: {…}, or remove the group.")
            continue
        for key in needed:
            if key not in parameters:
                message = "is missing, and every group of this method needs it."
                yield error((*path, name, "params", key), Code.MISSING_KEY, message, f"Write {key}.")
