"""The page that shows the matrix."""

from collections.abc import Mapping
from pathlib import Path

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.notes import Note, written
from tests.matrix.features import FEATURES
from tests.matrix.refusals import REFUSALS
from tests.matrix.rows import Feature, Refusal, Row
from tests.matrix.running import Result

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"
VERSION = "0.19.8"
_LONGEST_CELL = 240
# The name, the version and the verdict; what follows them in a line differs from machine to machine.
_COMPARED = 3

_HEAD = """\
# What really trains

Written by `pytest tests/matrix --update-golden`, which runs each row in a DeepSpeedJob of two ranks on two nodes, on
CPU. `pytest tests/matrix` compares the first three columns with a run of its own, of all that trains and of some that
is refused: the engines beside our rules (docs/oracle.md) refuse the rest again.

## Accepted, and trained

Six steps on the same samples. *Shown by* is what the run measured, and has only if the feature is in force.

| Feature | DeepSpeed | Result | Shown by | Loss | Seconds |
|---|---|---|---|---|---|
"""
_REFUSED = """
## Refused before anything starts

DeepSpeed reads each of these configurations without complaint; its engine then does not start. It says so when all pods
hold their accelerators; we say so before there is a pod, as far as it does not depend on the script.

| Configuration | DeepSpeed | DeepSpeed says | We say |
|---|---|---|---|
"""


def ours(row: Row, level: Level = Level.ERROR) -> list[Note]:
    """What we say about a row at this level, in the world that it runs in."""
    parallelism = row.parallelism
    circumstances = JudgementContext(world=row.ranks, version=VERSION, accelerator="cpu", parallelism=parallelism)
    return [note for note in validate(row.config, circumstances).notes if note.level is level]


def page(results: Mapping[str, Result]) -> str:
    """The page of these results."""
    features = [_feature(row, results[row.name]) for row in FEATURES if row.name in results]
    refusals = [_refusal(row, results[row.name]) for row in REFUSALS if row.name in results]
    return _HEAD + "\n".join(features) + "\n" + _REFUSED + "\n".join(refusals) + "\n"


def verdicts(text: str) -> set[tuple[str, ...]]:
    """What must be the same in every run."""
    return {tuple(line.split(" | ")[:_COMPARED]) for line in text.splitlines() if line.startswith("| ")}


def _feature(row: Feature, result: Result) -> str:
    told = result.ranks[0]
    shown = ", ".join(f"{name} {_plain(value)}" for name, value in row.shows.items())
    losses = told.get("losses", [])
    outcome = "trains" if losses else told["error"]
    change = f"{losses[0]:.3g} → {losses[-1]:.3g}" if losses else ""
    return _line(row.name, result.version, outcome, shown, change, f"{result.seconds:.1f}")


def _refusal(row: Refusal, result: Result) -> str:
    said = result.ranks[0].get("error", "trains")
    notes = [note for note in ours(row, row.level) if written(note.path) == row.path]
    words = " ".join(f"{row.level}: {row.path} {note.message}" for note in notes)
    return _line(row.name, result.version, said, words or row.reason)


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _line(*cells: str) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= _LONGEST_CELL else line[: _LONGEST_CELL - 1] + "…"
