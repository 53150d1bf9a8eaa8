"""The next status of a job, as it is being written: each field has its type, each finding its code."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Self

from deepspeed_operator.api.attempt_status import (
    MAX_ATTEMPTS,
    MAX_CAUSE,
    AttemptOutcome,
    AttemptStatus,
    EndedAttempt,
    Obstacle,
    Phase,
    Replacement,
)
from deepspeed_operator.api.checkpoint import CheckpointStatus
from deepspeed_operator.api.elastic import ElasticSize
from deepspeed_operator.api.engine_report import Engine
from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.goodput import Goodput
from deepspeed_operator.api.plan_status import PlanStatus
from deepspeed_operator.api.progress import Progress
from deepspeed_operator.api.queueing import Placement, QueueStatus
from deepspeed_operator.api.reason_catalogue import CATALOGUE
from deepspeed_operator.api.restarts import RepeatedFailure
from deepspeed_operator.api.status import MAX_FINDINGS, DeepSpeedJobStatus, Failure, Finding, Run, Workers
from deepspeed_operator.api.transport import Transport
from deepspeed_operator.job.failure_rules import Budget
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.observe.rounds import Rounds
from deepspeed_operator.reconcile.observe.told_wall_time import ToldWallTime
from deepspeed_operator.reconcile.report.blamed_nodes import blamed
from deepspeed_operator.reconcile.report.restart_counts import with_restart, with_rounds


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

    `counted`: the workers as they are now, `moved`: the progress, `saved`: the newest checkpoint. A change of these
    alone is no news, and is written once a minute at most. `wall_time`: what agents tell of it, None where none does;
    `goodput` follows from it when something else is written.
    """

    run: Run | None
    attempt: AttemptStatus | None
    attempts: list[EndedAttempt]
    failure: Failure | None
    queue: QueueStatus | None
    workers: Workers | None
    transport: Transport | None
    plan: PlanStatus | None
    progress: Progress | None
    engine: Engine | None
    checkpoint: CheckpointStatus | None
    goodput: Goodput | None
    findings: Findings
    counted: Workers | None = None
    moved: Progress | None = None
    saved: CheckpointStatus | None = None
    wall_time: ToldWallTime | None = None
    events: list[JobEvent] = field(default_factory=list[JobEvent])

    @classmethod
    def of(cls, status: DeepSpeedJobStatus, *, counted: Workers | None = None) -> Self:
        """Return a draft that says what the status says; `counted` as above, None where the workers stay."""
        taken = {name: getattr(status, name) for name in _FIELDS}
        return cls(**taken, findings=Findings(status.findings), counted=counted)

    @property
    def reached_step(self) -> int | None:
        """The highest step that is known of the run; None if none is."""
        told = self.wall_time.told.reached if self.wall_time is not None else 0
        return max(told, (self.goodput.reached_step or 0) if self.goodput is not None else 0) or None

    def enter(self, phase: Phase, obstacle: Obstacle | None = None) -> None:
        """Say where the current attempt stands, and what keeps it from running, if anything does."""
        self._change_attempt(phase=phase, obstacle=obstacle, next_time=None)

    def back_off(self, until: str, why: Obstacle, nodes: int | None = None) -> None:
        """Say that the current attempt, which has failed, is followed by another one at this time.

        `nodes`: how many that one has; None: all of the run's.
        """
        self.enter(Phase.BACKING_OFF, why)
        self._change_attempt(next_time=until, next_nodes=nodes)

    def replace_pods(self, replacements: Sequence[Replacement]) -> None:
        """Say that these pods, too, take the places of lost ones."""
        assert self.attempt is not None, "an attempt is recorded before it loses pods"
        self._change_attempt(replacements=[*(self.attempt.replacements or ()), *replacements])

    def exclude_nodes(self, nodes: Sequence[str]) -> None:
        """Say which nodes further pods of the attempt keep off: none where its queue says which ones they go to."""
        placement = self.attempt.placement if self.attempt is not None else None
        chosen = placement is not None and placement.scheduling_gates
        self._change_attempt(excluded_nodes=None if chosen else list(nodes) or None)

    def count_rounds(self, rounds: Rounds, now: datetime) -> bool:
        """Count the restarts in place that an agent tells of; return whether there are more than were known."""
        assert self.run is not None, "a run is recorded with its first attempt"
        assert self.attempt is not None, "an attempt is recorded before its agents tell anything"
        before = self.attempt
        self.run, self.attempt = with_rounds(self.run, before, rounds, now)
        return self.attempt != before

    def count_restart(self, budget: Budget | None, repeated: RepeatedFailure | None, now: datetime) -> None:
        """Count the new attempt that follows against this budget, if any; `repeated` is the failure before it."""
        assert self.run is not None, "a run is recorded before anything restarts"
        self.run = with_restart(self.run, budget, now)
        self._change_run(repeated=repeated)

    def blame(self, node: str, now: datetime) -> None:
        """Say that a node was at fault."""
        assert self.run is not None, "a run is recorded before anything fails"
        self._change_run(blamed_nodes=blamed(self.run, node, now))

    def settle_restarts(self) -> None:
        """Count what was restarted in the pods of the attempt that has ended as the run's."""
        assert self.run is not None, "a run is recorded before its next attempt"
        if self.attempt is not None and self.attempt.restarts is not None:
            self._change_run(restarts=self.attempt.restarts.plus(self.run.restarts))
            self._change_attempt(restarts=None)

    def resize(self, size: ElasticSize) -> None:
        """Say that the attempt that begins has the ranks of this size."""
        assert self.run is not None, "a run is recorded with its first attempt"
        world = self.run.world
        ranks = {"nodes": size.nodes, "size": size.nodes * world.slots_per_node, "data_parallel": size.data_parallel}
        elastic = self.run.elastic.model_copy(update={"resized": True}) if self.run.elastic is not None else None
        self._change_run(world=world.model_copy(update=ranks), batch=size.batch, elastic=elastic)

    def explain_size(self, words: str | None) -> None:
        """Say what the current attempt has that is not as in spec; None: nothing."""
        self._change_attempt(resized=words)

    def place(self, placement: Placement) -> None:
        """Say where the queue has quota for the pods of the current attempt, which may be made now."""
        self.enter(Phase.STARTING)
        self._change_attempt(placement=placement)
        self.exclude_nodes(self.attempt.excluded_nodes or () if self.attempt is not None else ())

    def admit(self, since: str | None) -> None:
        """Say since when all pods of the current attempt may start; None where something keeps them from it."""
        self._change_attempt(admitted_time=since)

    def run_since(self, seen: str) -> None:
        """Say that all ranks of the current attempt run, and were first seen to at this time."""
        self.enter(Phase.RUNNING)
        self._change_attempt(running_time=seen)

    def complete_run(self, at: str) -> None:
        """Say when the run ended."""
        self._change_run(completion_time=at)

    def clean_up_run(self, at: str) -> None:
        """Say when what belonged to the ended run was deleted."""
        self._change_run(cleanup_time=at)

    def found_version(self, version: str) -> None:
        """Say which DeepSpeed the run's image has."""
        self._change_run(deepspeed_version=version)

    def close_attempt(self, outcome: AttemptOutcome, at: str, failure: Failure | None = None) -> None:
        """Add the current attempt to those that have ended, and its time to a run whose time is limited.

        A closed one stays as it is.
        """
        assert self.run is not None, "a run is recorded with its first attempt"
        assert self.attempt is not None, "only an attempt can end"
        if self.attempts and self.attempts[-1].number == self.attempt.number:
            if outcome is not AttemptOutcome.SUCCEEDED:
                return
            self.attempts = self.attempts[:-1]  # a result wins over what it was taken for
        if self.run.active_deadline_seconds is not None and self.attempt.running_time is not None:
            ran = moment(at) - moment(self.attempt.running_time)  # a node's clock may tell the end
            self._change_run(active_seconds=(self.run.active_seconds or 0) + max(int(ran.total_seconds()), 0))
        ended = EndedAttempt(
            number=self.attempt.number,
            nodes=self.run.world.nodes,
            rounds=self.attempt.round,
            run_id=self.run.id,
            start_time=self.attempt.start_time,
            running_time=self.attempt.running_time,
            end_time=at,
            outcome=outcome,
        )
        if failure is not None:
            entry = CATALOGUE.get(failure.reason)
            cause = {name: getattr(failure, name) for name in ("reason", "rank", "pod", "node")}
            more = {
                "category": entry.category if entry is not None else None,
                "message": failure.message.partition("\n")[0][:MAX_CAUSE],
            }
            ended = ended.model_copy(update={**cause, **more})
        self.attempts = [*self.attempts, ended][-MAX_ATTEMPTS:]

    def _change_attempt(self, **fields: object) -> None:
        assert self.attempt is not None, "an attempt is recorded before anything is said of it"
        self.attempt = self.attempt.model_copy(update=fields)

    def _change_run(self, **fields: object) -> None:
        assert self.run is not None, "a run is recorded before anything is said of it"
        self.run = self.run.model_copy(update=fields)

    def written_over(self, status: DeepSpeedJobStatus) -> DeepSpeedJobStatus:
        """Return the status with the draft's fields instead of its own."""
        taken = {name: getattr(self, name) for name in _FIELDS}
        return status.model_copy(update={**taken, "findings": self.findings.kept})


_NOT_IN_STATUS = frozenset({"findings", "counted", "moved", "saved", "wall_time", "events"})
_FIELDS = tuple(each.name for each in fields(StatusDraft) if each.name not in _NOT_IN_STATUS)
