"""Every rule of ours by which an engine does not start, beside DeepSpeed's own word in every version.

The configurations are those of tests/unit/dsconfig/test_engine.py, each refused for one reason, on one rank.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deepspeed_operator import dsconfig
from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.notes import CheckPhase, Note, written
from deepspeed_operator.dsconfig.versions import SUPPORTED, ranges
from tests.matrix.refusals import REFUSALS
from tests.oracle.engine_verdicts import Record
from tests.oracle.engines import answered, refusal
from tests.oracle.oracle import Config
from tests.unit.dsconfig.test_engine import OF_OLD_VERSIONS, REFUSED_AT_START, TORCH_SCHEDULERS
from tests.unit.dsconfig.verdicts import ADAM, BATCH

# DeepSpeed's words → why it refuses here what it may not elsewhere.
ELSEWHERE = {
    "No module named 'cupy'": "a package that is not installed here",
    "This op had not been implemented on CPU backend": "an op that CPUs lack",
    "StepLR.__init__() got an unexpected keyword argument 'mine'": "another PyTorch may have it: a warning",
}
# What is compared, or divided by, in the first two steps only.
_IN_A_STEP = {
    *("gradient_clipping", "steps_per_print", "zero_optimization.zenflow", "fp16.loss_scale_window"),
    *("torch_autocast.dtype", "zero_optimization.reduce_bucket_size"),
}
# DeepSpeed's own Adam is compiled, and not here; PyTorch's looks at these when it is made, its own in a step.
_BY_TORCH = {"optimizer.params.lr", "optimizer.params.betas"}
_SHOWN = 90
# Rows of tests/matrix whose reasons the lists of tests/unit do not have.
_OF_THE_MATRIX = {
    "no gradient norm, but offload",
    "no gradient norm, but ZenFlow",
    "quantized weights with autocast",
    "quantized weights on CPU",
    "ZenFlow with a number and no strategy",
    "ZenFlow with a strategy and no number",
    "odd allgather bucket, stage 2",
    "SuperOffload on CPU",
    "legacy_stage1",
    "Lamb on CPU",
}
_ZENFLOW_ALONE: Config = {
    "optimizer": {"type": "AdamW"},
    "zero_optimization": {"stage": 2, "zenflow": {}, "offload_optimizer": {"device": "cpu"}},
}
MARKS = ("<!-- refusals -->\n", "<!-- /refusals -->\n")


class Rule(NamedTuple):
    """A configuration, and where we refuse it."""

    place: str
    config: Config


class Answer(NamedTuple):
    """What one version comes to: our errors, and how DeepSpeed refuses; None where its engine starts."""

    ours: list[Note]
    theirs: str | None

    @property
    def agree(self) -> bool:
        explained = self.theirs is not None and any(words in self.theirs for words in ELSEWHERE)
        return bool(self.ours) == (self.theirs is not None) or (not self.ours and explained)


Answers = dict[str, list[Answer]]  # by version, in the order of the rules


def rules() -> list[Rule]:
    """Those that one rank can be asked about."""
    given = [(place, config) for config, _, place, _ in [*REFUSED_AT_START, *OF_OLD_VERSIONS, *TORCH_SCHEDULERS]]
    given += [(row.path, row.config) for row in REFUSALS if row.path and row.name in _OF_THE_MATRIX]
    given += [("zero_optimization.zenflow", _ZENFLOW_ALONE)]
    found: list[Rule] = []
    for place, config in given:
        optimizer: dict[str, Any] = config.get("optimizer", ADAM["optimizer"])
        if place in _BY_TORCH:
            optimizer = {**optimizer, "params": {"torch_adam": True, **optimizer["params"]}}
        sizes = {} if "train_micro_batch_size_per_gpu" in config else BATCH
        found.append(Rule(place, {**sizes, **config, "optimizer": optimizer}))
    return found


def answers(versions: Iterable[str] = SUPPORTED) -> Answers:
    """Ask each version, which is imported once."""
    return {version: judged(version, answered(version, questions())) for version in versions}


def questions() -> list[Record]:
    """Return what is asked of an engine about each rule."""
    return [
        {"rule": at, "config": rule.config, "optimizer": "configuration", "steps": 2 * (rule.place in _IN_A_STEP)}
        for at, rule in enumerate(rules())
    ]


def judged(version: str, told: Iterable[Record]) -> list[Answer]:
    """Return for each rule what we say, and of `told` what the version's engine did."""
    theirs = {each["rule"]: refusal(each) for each in told}
    return [Answer(_errors(rule, version), theirs[at]) for at, rule in enumerate(rules())]


def _errors(rule: Rule, version: str) -> list[Note]:
    notes = validate(rule.config, JudgementContext(1, version, accelerator="cpu")).notes
    return [note for note in notes if note.level is Level.ERROR and note.phase is not CheckPhase.SILENT]


def write(path: Path) -> None:
    """Ask all versions, and write the table into the page."""
    before, _, rest = path.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    path.write_text(before + MARKS[0] + table(answers()) + MARKS[1] + after, encoding="utf-8")


def table(found: Answers) -> str:
    """Return a row for each place, reason and set of versions; then what tests/matrix shows on the cluster."""
    lines = dict.fromkeys(_lines(found))
    ours = {line.split("`")[1] for line in lines}
    for row in REFUSALS:
        if row.refused_by_us and row.path and row.path not in ours:
            lines[f"| `{row.path}` | | {SUPPORTED[-1]}, on the cluster | {row.says} |"] = None
    head = ["| where | code | refused by | in DeepSpeed's words |", "|---|---|---|---|"]
    return "\n".join([*head, *lines]) + "\n"


def _lines(found: Answers) -> Iterator[str]:
    for at, rule in enumerate(rules()):
        refusing = [version for version in SUPPORTED if any(_at(rule, note) for note in found[version][at].ours)]
        if not refusing:
            continue
        newest = found[refusing[-1]][at]
        code = next(note.code for note in newest.ours if _at(rule, note))
        words = re.sub(r"\s+", " ", (newest.theirs or "").replace("|", "\\|"))
        words = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
        yield f"| `{rule.place}` | [{code}](findings.md#{code}) | {ranges(set(refusing))} | {words} |"


def _at(rule: Rule, note: Note) -> bool:
    return written(note.path) == rule.place


def codes_that_refuse() -> set[str]:
    """Codes with which our source says that an engine does not start; Lightning's own are another test's."""
    found: set[str] = set()
    for path in Path(dsconfig.__path__[0]).glob("*.py"):
        calls = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)]
        named = [call for call in calls if getattr(call.func, "id", "").strip("_") == "refused"]
        arguments = [each for call in named for each in call.args if path.stem != "lightning"]
        found |= {
            Code[each.attr].value
            for each in arguments
            if isinstance(each, ast.Attribute) and getattr(each.value, "id", "") == "Code"
        }
    return found
