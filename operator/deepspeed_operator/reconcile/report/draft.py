"""The next status of a job, as it is being written: each field has its type, each finding its source."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Self

from deepspeed_operator.api.engine_report import Engine
from deepspeed_operator.api.plan_status import PlanStatus
from deepspeed_operator.api.status import MAX_FINDINGS, Batch, DeepSpeedJobStatus, Failure, Finding, Workers, World
from deepspeed_operator.api.transport import Transport
from deepspeed_operator.reconcile.actions import JobEvent


@dataclass(frozen=True, slots=True)
class FindingSource:
    """Where findings come from. Status does not keep it: they are known by their path and how their message begins.

    `path`: None if theirs differ. `trails`: whether they come last. Of more findings than status holds the last are not
    kept, so that what an event announces must come first: it would be announced again.
    """

    begins: tuple[str, ...] = ("",)
    path: str | None = None
    trails: bool = False

    def owns(self, finding: Finding) -> bool:
        return self.path in {None, finding.path} and finding.message.startswith(self.begins)


class Findings:
    """The findings of a status; a source replaces its own and no other's."""

    def __init__(self, before: Sequence[Finding]) -> None:
        self._before = tuple(before)
        self._now = list(before)

    @property
    def kept(self) -> list[Finding]:
        """Those that status has room for."""
        return self._now[:MAX_FINDINGS]

    def replace(self, source: FindingSource, *findings: Finding) -> None:
        """Let the source have these findings instead of those that it had."""
        others = [each for each in self._now if not source.owns(each)]
        self._now = [*others, *findings] if source.trails else [*findings, *others]

    def replace_all(self, findings: Iterable[Finding]) -> None:
        """Let another run's findings take the place of all."""
        self._now = list(findings)

    def add(self, *findings: Finding) -> None:
        """Add those that are not there yet."""
        self._now += [each for each in findings if each not in self._now]

    def had(self, source: FindingSource) -> bool:
        """Whether the status has a finding of this source, as it was written last."""
        return any(map(source.owns, self._before))

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
