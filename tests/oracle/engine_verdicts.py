"""What engines did beside what we say of the same configurations, and why the two differ where they do."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

Record = Mapping[str, Any]

# `exited`: autotuning ends the program by itself.
_STARTED: Final = frozenset({"trained", "evaluated", "exited"})
_NO_OPTIMIZER: Final = "neither the configuration nor the script has an optimizer: nothing is reduced or offloaded"
UNEXPLAINED: Final = "unexplained"
# What the engine says → why we do not refuse it. Reviewed: each is about the script, its model, or the machine.
_MISSES: Final[Mapping[str, str]] = {
    r"No module named '(wandb|comet_ml|tensorboard)'": "a monitor whose package this machine lacks",
    "client provided optimizer": "an optimizer of torch.optim that the script passes: we warn of it",
    "'CROSS_SIZE'": "a variable that this benchmark does not set; DeepSpeed's launcher does, and our agent",
    "not done after": "`hybrid_engine` compiles for longer than the time limit",
    "requires an optimizer|must provide optimizer|zenflow_need_update": "neither the configuration nor the script has "
    "an optimizer",
    "_set_zero_group_parallelism": "hpZ where the script passes no optimizer either: we warn of it",
    r"Adagrad\.__init__": "an optimizer of PyTorch's, whose parameters its version decides: we warn of it",
    "must have the same dtype, but got Half": "`fp16.auto_cast` with floating-point inputs: we warn of it",
    "for %: 'int' and 'str'": '`"auto"` in a place that a framework may fill: we warn of it',
    "async_io op": "an op that cannot be built on this machine, which has no libaio",
    "no MoE layers detected": "the model of this benchmark has no experts",
    "PassManager": "the compiler that Muon needs fails on this machine: we warn of it",
    "output with shape|size of tensor a": "modules of this model that `leaf_module` or "
    "`stage3_module_granularity_threshold` names: another model trains",
    "'UniversalParallelInfo' object has no attribute 'dp_rank'": "`checkpoint.writer` without an mpu of the script's: "
    "we warn of it",
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
        return _NO_OPTIMIZER if record["optimizer"] == "none" else UNEXPLAINED
    said = f"{record.get('type')}: {record['says']}"
    return next((why for pattern, why in _MISSES.items() if re.search(pattern, said)), UNEXPLAINED)


def unexplained(records: Iterable[Record]) -> list[Record]:
    return [each for each in records if differs(each) and reason(each) == UNEXPLAINED]


def deviations(records: Iterable[Record]) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """Yield who alone refuses, and the names of what is refused by the reason, the most frequent first."""
    differing = [each for each in records if differs(each)]
    for who, ours in (("the engine refuses", True), ("we refuse", False)):
        found: dict[str, list[str]] = defaultdict(list)
        for each in differing:
            if started(each) != ours:
                found[reason(each)].append(each["name"])
        yield who, dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))
