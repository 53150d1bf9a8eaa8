"""Our verdict beside DeepSpeed's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, VersionVerdict, validate_for
from deepspeed_operator.dsconfig.notes import CheckPhase, Note
from deepspeed_operator.dsconfig.schema import schema_of
from tests.oracle.deviations import reason_of
from tests.oracle.oracle import Answer, Config, Oracle


@dataclass
class Comparison:
    """How many verdicts agree, deviate for a listed reason, and differ: a bug."""

    version: str
    accepted: int = 0  # by DeepSpeed
    agreed: int = 0
    listed: Counter[str] = field(default_factory=Counter[str])
    bugs: list[str] = field(default_factory=list[str])

    @property
    def all(self) -> int:
        return self.agreed + self.listed.total() + len(self.bugs)


def compare(version: str, oracle: Oracle, questions: Sequence[tuple[str, Config, Sequence[int]]]) -> Comparison:
    """Each question is a name, a configuration and the world sizes to judge it at."""
    comparison = Comparison(version)
    answers = oracle.ask([(config, worlds) for _, config, worlds in questions])
    for (name, config, worlds), said in zip(questions, answers, strict=True):
        for world, answer in zip(worlds, said, strict=True):
            _note(comparison, f"{name} at {world}", config, world, answer)
    return comparison


def _note(comparison: Comparison, name: str, config: Config, world: int, answer: Answer) -> None:
    verdict = validate_for(schema_of(comparison.version), config, JudgementContext(world, accelerator="cpu"))
    comparison.accepted += answer.accepted
    errors = refusals(verdict)
    ours = _batch(verdict) if not errors else None
    if (not errors and answer.accepted and (ours is None or ours == answer.batch)) or (errors and not answer.accepted):
        comparison.agreed += 1
    else:
        reason = reason_of(config, errors, answer)
        if reason:
            comparison.listed[reason] += 1
        else:
            said = "; ".join(f"{'.'.join(map(str, note.path))}: {note.message}" for note in errors)
            theirs = f"accepted, {answer.batch}" if answer.accepted else answer.reason
            judged = f"{name}, DeepSpeed {comparison.version}"
            comparison.bugs.append(f"{judged}\n  we: {said or f'accepted, {ours}'}\n  DeepSpeed: {theirs}\n  {config}")


def refusals(verdict: VersionVerdict) -> list[Note]:
    """What we say DeepSpeed refuses while it reads the configuration; its class is asked about nothing else."""
    return [note for note in verdict.notes if note.level is Level.ERROR and note.phase is CheckPhase.CONFIG]


def _batch(verdict: VersionVerdict) -> list[float] | None:
    batch = verdict.batch
    if batch is None or None in (batch.train, batch.micro_per_gpu, batch.accumulation):
        return None
    return [batch.train, batch.micro_per_gpu, batch.accumulation]  # pyright: ignore[reportReturnType]
