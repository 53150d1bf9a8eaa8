"""The engine's verdicts on an H200 beside ours, as Markdown, and why they differ where they do."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Record = Mapping[str, Any]

_STARTED: Final = frozenset({"trained", "evaluated"})
_KINDS: Final = {"drawn": "drawn", "rule": "written for our rules"}
_NO_OPTIMIZER: Final = "neither the configuration nor the script has an optimizer: nothing is reduced or offloaded"
# What the engine says → why we do not refuse it.
_MISSES: Final[Mapping[str, str]] = {
    r"No module named '(wandb|comet_ml)'": "a monitor whose package this machine lacks",
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
    "Unknown preset_model": "**a miss of ours**: `expert_parallel.preset_model` is not checked",
}
_TITLE: Final = "## On a GPU"
_TEXT: Final = """Written by `python -m bench.gpu.tables --write docs/oracle.md`, from bench/gpu/results/engine.jsonl.
Above, DeepSpeed reads configurations; here its engine starts with them on an H200 and trains two steps of a small
model, in one rank. The public files are asked, and configurations drawn from them and from our own with a bias towards
what only the engine reads: optimizers and schedulers, offloading, data types, ZeRO++, ZenFlow, monitors, activation
checkpointing; and some written for our rules, to confirm or refute each. Where the configuration names no optimizer,
the script passes one; at stage 3 the same is asked without any, to evaluate. `python -m bench.gpu.engine judge` writes
anew what we say of them."""


def started(record: Record) -> bool:
    return record["did"] in _STARTED


def page(records: Sequence[Record]) -> Iterator[str]:
    yield from (_TITLE, "", _TEXT, "", "<!-- engine -->", *table(records), "<!-- end -->")


def table(records: Sequence[Record]) -> Iterator[str]:
    if not records:
        return
    machine, answers = records[0], [each for each in records if "name" in each]
    yield f"DeepSpeed {machine['deepspeed']}, PyTorch {machine['torch'].partition('+')[0]}:"
    yield ""
    yield "| configurations | asked | both start | both refuse | only the engine refuses | only we refuse |"
    yield "|---|---|---|---|---|---|"
    kinds: dict[str, list[Record]] = {"public": [], "drawn": [], "written for our rules": []}
    for each in answers:
        kinds[_KINDS.get(each["name"].split()[0], "public")].append(each)
    for kind, some in kinds.items():
        cells = Counter((started(each), not each["errors"]) for each in some)
        counts = (len(some), *(cells[cell] for cell in ((True, True), (False, False), (False, True), (True, False))))
        yield f"| {kind} | {' | '.join(map(str, counts))} |"
    yield from _deviations(answers)


def _deviations(answers: Sequence[Record]) -> Iterator[str]:
    for who, ours in (("the engine refuses", True), ("we refuse", False)):
        found: dict[str, list[str]] = defaultdict(list)
        for each in answers:
            if started(each) != ours and bool(each["errors"]) != ours:
                found[reason(each)].append(each["name"])
        yield ""
        yield f"Only {who}:"
        yield ""
        for why, names in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
            yield f"* {why} ({len(names)}: {', '.join(dict.fromkeys(names))})"


def reason(record: Record) -> str:
    """Why the two may differ; "unexplained" where nothing here says so."""
    if started(record):
        return _NO_OPTIMIZER if record["optimizer"] == "none" else "unexplained"
    said = f"{record.get('type')}: {record['says']}"
    return next((why for pattern, why in _MISSES.items() if re.search(pattern, said)), "unexplained")
