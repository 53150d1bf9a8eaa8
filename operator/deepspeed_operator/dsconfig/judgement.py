"""The verdict on one configuration in one world."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepspeed_operator.api.status import Batch, Finding, Level, World
from deepspeed_operator.dsconfig.batch import derive_batch, read_batch_keys


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a configuration comes to; `batch` is None where it contradicts itself or there is none."""

    batch: Batch | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is Level.ERROR)


def judge(config: Mapping[str, Any] | None, world: World, where: str = "spec.dsConfig") -> Judgement:
    """Judge a configuration; `where` is the path of its source in the job. None: the program builds it in code."""
    if config is None:
        return Judgement(None, ())
    given = read_batch_keys(config, where)
    notes = [finding for finding in given.findings if finding.level is not Level.ERROR]
    if given.auto:
        notes.append(_left_to_hugging_face(given.auto, where))
    batch = derive_batch(config, world.data_parallel, where)
    if isinstance(batch, Batch):
        return Judgement(batch, tuple(notes))
    return Judgement(None, (*batch, *notes))


def _left_to_hugging_face(keys: tuple[str, ...], where: str) -> Finding:
    return Finding(
        level=Level.ADVICE,
        path=where,
        message=f'"auto" for {", ".join(keys)}: the Hugging Face integration fills it in; DeepSpeed alone refuses it.',
        fix="Without Hugging Face Trainer or Accelerate, write numbers.",
    )
