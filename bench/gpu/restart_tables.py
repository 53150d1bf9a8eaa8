"""What a failed rank cost, part by part: medians of each launcher's restarts at a stage."""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

Record = Mapping[str, Any]
# Marks that a rank prints, each the end of a part of its start.
_PARTS: Final = (
    ("imports", "started", "imported"),
    ("initialize", "imported", "initialized"),
    ("load", "initialized", "loaded"),
    ("first step", "loaded", "stepped"),
)
_AGENTS: Final = ("detected in", "stopped in", "barrier")
HEAD: Final = (
    *("stage", "launcher", "restarts", "detect", "stop", "barrier", "kill → exec"),
    *(name for name, _, _ in _PARTS),
    *("kill → all step again", "each"),
)
_NAMES: Final = {
    "warm": "`dsjob run`, warm",
    "cold": "`dsjob run`, cold",
    "torchrun": "`torchrun --max-restarts`",
    "deepspeed": "`deepspeed`, started again",
}


def rows(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a row for each stage and launcher, in seconds; `–` where a launcher does not tell.

    What was to be warm and started cold, as the agents said, counts as cold.
    """
    restarts = [each for each in records if each["restart"] != "first"]
    groups = dict.fromkeys((each["stage"], _launcher(each)) for each in restarts)
    for stage, launcher in sorted(groups, key=lambda group: (group[0], list(_NAMES).index(group[1]))):
        same = [each for each in restarts if (each["stage"], _launcher(each)) == (stage, launcher)]
        times = [each["seconds"] for each in same]
        yield (
            str(stage),
            _NAMES[launcher],
            str(len(same)),
            *(_told(same, name) for name in _AGENTS),
            _median([each["started"] for each in times]),
            *(_median([each[last] - each[first] for each in times]) for _, first, last in _PARTS),
            _median([each["stepped"] for each in times]),
            " ".join(f"{each['stepped']:.1f}" for each in times),
        )


def _launcher(record: Record) -> str:
    return "cold" if any("with cold interpreters" in line for line in record["said"]) else record["launcher"]


def _told(same: Sequence[Record], name: str) -> str:
    """The median of what the agents say of a part that they do."""
    lines = [line for each in same for line in each["said"]]
    found = [match[1] for line in lines for match in re.finditer(rf"{name} ([\d.]+) s", line)]
    return _median([float(each) for each in found]) if found else "–"


def _median(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f}"
