"""The next status of a job, as it is being written: each field has its type, each finding its code."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Self

from deepspeed_operator.api.engine_report import Engine
from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.plan_status import PlanStatus
from deepspeed_operator.api.status import MAX_FINDINGS, Batch, DeepSpeedJobStatus, Failure, Finding, Workers, World
from deepspeed_operator.api.transport import Transport
from deepspeed_operator.reconcile.actions import JobEvent


class Findings:
    """The findings of a status: whoever knows more replaces those of his codes, and no others."""

    def __init__(self, before: Sequence[Finding]) -> None:
        self._before = tuple(before)
        self._now = list(before)

    @property
    def kept(self) -> list[Finding]:
        """Those that status has room for."""
        return self._now[:MAX_FINDINGS]

    def replace(self, codes: Collection[Code], *findings: Finding, last: bool = False) -> None:
        """Let these findings take the place of those with one of the codes.

        They come first unless `last`: of more findings than status holds the last are not kept, and what an event
        announces would be announced again.
        """
        others = [each for each in self._now if each.code not in codes]
        self._now = [*others, *findings] if last else [*findings, *others]

    def replace_all(self, findings: Iterable[Finding]) -> None:
        """Let another run's findings take the place of all."""
        self._now = list(findings)

    def add(self, *findings: Finding) -> None:
        """Add those that are not there yet."""
        self._now += [each for each in findings if each not in self._now]

    def had(self, code: Code) -> bool:
        """Whether the status has a finding of this code, as it was written last."""
        return any(each.code == code for each in self._before)

    def knew(self, finding: Finding) -> bool:
        """Whether the status has this finding, as it was written last."""
        return any((each.path, each.message) == (finding.path, finding.message) for each in self._before)


@dataclass(slots=True, kw_only=True)
class StatusDraft:
    """What the next status will be, but for what follows from the verdict; and the events that go with it.

    `counted`: the workers as they are now. A change of these alone is no news, and is written once a minute at most.
    """

    run_id: str | None
    start_time: str | None
    completion_time: str | None
    world: World | None
    batch: Batch | None
    config_digest: str | None
    judged_by: dict[str, str] | None
    deepspeed_version: str | None
    failure: Failure | None
    attempt: int | None
    attempt_time: str | None
    admitted_time: str | None
    workers: Workers | None
    transport: Transport | None
    plan: PlanStatus | None
    engine: Engine | None
    findings: Findings
    counted: Workers | None = None
    events: list[JobEvent] = field(default_factory=list[JobEvent])

    @classmethod
    def of(cls, status: DeepSpeedJobStatus, *, counted: Workers | None = None) -> Self:
        """Return a draft that says what the status says; `counted` as above, None where the workers stay."""
        taken = {name: getattr(status, name) for name in _FIELDS}
        return cls(**taken, findings=Findings(status.findings), counted=counted)

    def stop_clocks(self) -> None:
        """Say that the attempt was told to end: none of its clocks runs any more."""
        self.attempt_time = self.admitted_time = None

    def written_over(self, status: DeepSpeedJobStatus) -> DeepSpeedJobStatus:
        """Return the status with the draft's fields instead of its own."""
        taken = {name: getattr(self, name) for name in _FIELDS}
        return status.model_copy(update={**taken, "findings": self.findings.kept})


_FIELDS = tuple(each.name for each in fields(StatusDraft) if each.name not in {"findings", "counted", "events"})
