"""The engine's verdicts on an H200 beside ours, as Markdown."""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.oracle.engine_verdicts import HEADER, Record, cells, deviations

_KINDS: Final = {"drawn": "drawn", "rule": "written for our rules"}
_TITLE: Final = "## On a GPU"
_TEXT: Final = """Written by `python -m bench.gpu.tables --write docs/oracle.md`, from bench/gpu/results/engine.jsonl.
Above, DeepSpeed reads configurations; here its engine starts with them on an H200 and trains two steps of a small
model, in one rank. The public files are asked, and configurations drawn from them and from our own with a bias towards
what only the engine reads: optimizers and schedulers, offloading, data types, ZeRO++, ZenFlow, monitors, activation
checkpointing; and some written for our rules, to confirm or refute each. Where the configuration names no optimizer,
the script passes one; at stage 3 the same is asked without any, to evaluate. `python -m bench.gpu.engine judge` writes
anew what we say of them."""


def page(records: Sequence[Record]) -> Iterator[str]:
    yield from (_TITLE, "", _TEXT, "", "<!-- engine -->", *table(records), "<!-- end -->")


def table(records: Sequence[Record]) -> Iterator[str]:
    if not records:
        return
    machine, answers = records[0], [each for each in records if "name" in each]
    yield f"DeepSpeed {machine['deepspeed']}, PyTorch {machine['torch'].partition('+')[0]}:"
    yield ""
    yield f"| configurations | {HEADER} |"
    yield "|---|---|---|---|---|---|"
    kinds: dict[str, list[Record]] = {"public": [], "drawn": [], "written for our rules": []}
    for each in answers:
        kinds[_KINDS.get(each["name"].split()[0], "public")].append(each)
    for kind, some in kinds.items():
        yield f"| {kind} | {cells(some).row()} |"
    for who, found in deviations(answers):
        yield from ("", f"Only {who}:", "")
        for why, names in found.items():
            yield f"* {why} ({len(names)}: {', '.join(dict.fromkeys(names))})"
