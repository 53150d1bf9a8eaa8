"""The long comparison with engines on CPUs, written into docs/oracle.md.

What an engine did is kept in the cache, by what was asked: a comparison that was ended goes on where it was, and a rule
that has changed is judged at once.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from deepspeed_operator.dsconfig.schema import schema_of
from dev.cluster.settings import CACHE
from tests.oracle import corpus
from tests.oracle.engine_draws import Question, drawn, real
from tests.oracle.engine_verdicts import HEADER, Record, cells, deviations, unexplained
from tests.oracle.engines import SCRIPT, VERSIONS, WORLDS, answered, context_of, with_errors

MARKS: Final = ("<!-- engines on CPUs -->\n", "<!-- end of engines on CPUs -->\n")
_TEXT: Final = """## Engines on CPUs

Written by `make oracle-full`, too. Above, DeepSpeed reads configurations; here its engine starts with them and trains
two steps of a small model on CPUs (PyTorch {torch}, gloo), in one rank and in two.

* Real: the {public} public files in both worlds.
* Drawn: {count:,} different configurations a version that DeepSpeed's configuration class accepts, from the real files
  with a bias towards what only the engine reads: optimizers and schedulers, offloading, data types, ZeRO++, ZenFlow,
  monitors, activation checkpointing, curriculum, compile, tensor and expert parallelism (seed {seed}).

Where the configuration names no optimizer, the script passes one; at stage 3 the same is asked without any, to
evaluate. The compiled steps of DeepSpeed's CPU optimizers are replaced by ones that check their arguments, and
`torch.compile` is off: there is no compiler. fp16 is taken for supported, which depends on the CPU.

| DeepSpeed | configurations | {header} |
|---|---|---|---|---|---|---|"""


def write(file: Path, count: int, seed: int) -> None:
    """Ask what was not asked before, and write the section between its marks.

    count, seed: of the configurations that are drawn for each version.

    Raises SystemExit with what nobody has explained.
    """
    before, _, rest = file.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    records = {
        version: kept(version, [*real(corpus.public(), WORLDS), *drawn(count, seed, context_of(version), WORLDS)])
        for version in VERSIONS
    }
    release, public = schema_of(VERSIONS[-1]).torch, len(corpus.public())
    text = _TEXT.format(torch=release, public=public, count=count, seed=seed, header=HEADER)
    lines = [text, *_rows(records), *_reasons(records)]
    file.write_text(before + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + after, encoding="utf-8")
    wrong = [f"{version}: {each}" for version, some in records.items() for each in unexplained(some)]
    print(f"{file}: {len(wrong)} unexplained differences of engines")
    if wrong:
        raise SystemExit("\n".join(wrong))


def kept(version: str, questions: Sequence[Question]) -> list[Record]:
    """Ask the version's engine what it was not asked before, and return all records."""
    asked = [question.asked() for question in questions]
    file = CACHE / "oracle" / "answers" / f"{version}-{hashlib.sha256(SCRIPT.read_bytes()).hexdigest()[:12]}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    known = {_key(each): each for each in map(json.loads, file.read_text().splitlines())}
    for answer in answered(version, [each for each in asked if _key(each) not in known]):
        known[_key(answer)] = answer
        with file.open("a") as lines:
            lines.write(f"{json.dumps(answer)}\n")
    # Some come to the same configuration.
    return list(with_errors(version, [{**known[_key(each)], **_named(each)} for each in asked]))


def _named(asked: Record) -> Record:
    return {key: value for key, value in asked.items() if key != "config"}


def _key(record: Record) -> tuple[str, str, int]:
    return record["digest"], record["optimizer"], record.get("world", 1)


def _rows(records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    for version, some in records.items():
        for kind in ("real", "drawn"):
            of_kind = [each for each in some if ("base" in each) is (kind == "drawn")]
            yield f"| {version} | {kind} | {cells(of_kind).row()} |"


def _reasons(records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    for who, found in deviations([{**each, "name": version} for version, some in records.items() for each in some]):
        yield from ("", f"Only {who}:", "")
        for why, versions in found.items():
            counts = ", ".join(f"{version}: {versions.count(version)}" for version in VERSIONS if version in versions)
            yield f"* {why} ({counts})"
