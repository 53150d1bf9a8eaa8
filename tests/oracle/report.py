"""The long comparison, written down as docs/oracle.md."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.gpu.tables import lines_of
from bench.gpu.verdicts import page
from deepspeed_operator.dsconfig.notes import written
from deepspeed_operator.dsconfig.versions import SUPPORTED
from tests.oracle import corpus, engine_report
from tests.oracle.compare import Comparison, compare
from tests.oracle.draws import WORLDS, corpus_questions, drawn_questions
from tests.oracle.oracle import oracle
from tests.oracle.silence import silent_notes

_NEWEST = SUPPORTED[-1]
_RESULTS = Path(__file__).resolve().parents[2] / "bench" / "gpu" / "results"


def write(file: Path, count: int, seed: int) -> None:
    rows = [_compared(version, count, seed) for version in SUPPORTED]
    on_a_gpu = page(lines_of(_RESULTS, "engine"))
    lines = [_head(count, seed), *rows, "", *_deviations(), *_silence(), "", *_ON_CPUS, "", *on_a_gpu]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    bugs = [bug for bugs in _BUGS.values() for bug in bugs]
    print(f"{file}: {len(bugs)} unexplained differences")
    if bugs:
        raise SystemExit("\n\n".join(bugs))


_ON_CPUS = "".join(engine_report.MARKS).splitlines()
_BUGS: dict[str, list[str]] = defaultdict(list)
_LISTED: Counter[str] = Counter()


def _compared(version: str, count: int, seed: int) -> str:
    with oracle(version) as judge:
        real = compare(version, judge, corpus_questions())
        drawn = compare(version, judge, drawn_questions(version, count, seed))
    for comparison in (real, drawn):
        _BUGS[version] += comparison.bugs
        _LISTED.update(comparison.listed)
    print(version, _cells(real), _cells(drawn), flush=True)
    return f"| {version} | {_cells(real)} | {_cells(drawn)} |"


def _cells(comparison: Comparison) -> str:
    numbers = (comparison.all, comparison.accepted, comparison.agreed, comparison.listed.total(), len(comparison.bugs))
    return " | ".join(f"{number:,}" for number in numbers)


_HEAD = """# How we judge configurations, beside DeepSpeed itself

Written by `make oracle-full`, not by hand. Every verdict, and every batch size that it comes to, is compared with
DeepSpeed's own configuration class of that version, run beside a CPU PyTorch.

* Real: {public} public ds_config files and {own} written for these tests, of which {read} can be read (by DeepSpeed's
  parser as by ours), at world sizes {worlds}. `"auto"` is replaced by what the Hugging Face
  Trainer would put there before both judge.
* Drawn: {count:,} different configurations a version, which hypothesis makes by mutating the real ones: other types,
  ranges, unknown, misspelt and removed keys, other sections, other batch sizes, up to three changes each, at one of
  these world sizes (seed {seed}; `make test` draws 300 a version with a new seed each time).

Accepted: by DeepSpeed. Agree: the same verdict and, where accepted, the same batch sizes. Listed: a difference that is
meant, explained below. Differ: a bug.

| DeepSpeed | real | accepted | agree | listed | differ | drawn | accepted | agree | listed | differ |
|---|---|---|---|---|---|---|---|---|---|---|"""
_SILENCE = """## What DeepSpeed passes over in silence in the public files

DeepSpeed {version} ignores or overrides something in {silent} of {read} files without a word. Each place is named by
one of our warnings:

| where | warning | files |
|---|---|---|"""


def _head(count: int, seed: int) -> str:
    worlds = ", ".join(map(str, WORLDS))
    public, own, read = len(corpus.public()), len(corpus.own()), len(corpus.configurations())
    return _HEAD.format(public=public, own=own, read=read, worlds=worlds, count=count, seed=seed)


def _deviations() -> list[str]:
    lines = ["## Differences that are meant", ""]
    return [*lines, *(f"* {reason} ({number} of the above)" for reason, number in sorted(_LISTED.items())), ""]


def _silence() -> list[str]:
    """Per place and rule, how many public files have it; then the files."""
    read = {name: config for name, config in corpus.configurations().items() if name in corpus.public()}
    found = {name: places for name, config in read.items() if (places := _silent_places(config))}
    by_place = Counter(place for places in found.values() for place in places)
    return [
        _SILENCE.format(version=_NEWEST, silent=len(found), read=len(read)),
        *(f"| `{place[0]}` | {place[1]} | {number} |" for place, number in sorted(by_place.items(), key=_most_first)),
        "",
        "The files:",
        "",
        *(f"* {name}: {', '.join(f'`{place}`' for place, _ in places)}" for name, places in sorted(found.items())),
    ]


def _most_first(item: tuple[Any, int]) -> tuple[int, Any]:
    return -item[1], item[0]


def _silent_places(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    notes = silent_notes(_NEWEST, config)
    return list(dict.fromkeys((written(note.path), note.code) for note in notes))
