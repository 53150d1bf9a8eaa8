"""Beginning a run or an attempt: judged first, tried with the API server, recorded before anything is made."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from deepspeed_operator.api.attempt_status import MAX_CAUSE, AttemptOutcome, AttemptStatus, Phase
from deepspeed_operator.api.elastic import ElasticSize, RunElastic
from deepspeed_operator.api.failure_policy import FailurePolicy
from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.queueing import QueueStatus
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Finding, Level, Run, State, Workers
from deepspeed_operator.job.gang_scheduler import chosen_gang
from deepspeed_operator.job.image import declared_version
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.lint.pod_fields import field_findings
from deepspeed_operator.reconcile.actions import CountRuns, DryRunPod, JobEvent, Manifest, Outcome
from deepspeed_operator.reconcile.admission.configuration import SETTLING_REREAD, SOURCE_REREAD, settling
from deepspeed_operator.reconcile.admission.question import Admission, admission
from deepspeed_operator.reconcile.observe.observed import Observed, SetAside
from deepspeed_operator.reconcile.observe.unanswered import Unanswered
from deepspeed_operator.reconcile.report.blamed_nodes import excluded
from deepspeed_operator.reconcile.report.conditions import Statement
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import keep_status, report, timestamp
from deepspeed_operator.reconcile.report.restart_counts import left
from deepspeed_operator.reconcile.report.spec_changes import spec_digests
from deepspeed_operator.reconcile.report.verdict import Verdict, sentence
from deepspeed_operator.reconcile.runtime.observed_engine import ENGINE, WORLD
from deepspeed_operator.render.attempt import Attempt
from deepspeed_operator.render.kueue_workload import workload_name

# Another answer to the same pod needs a change elsewhere: a quota or a label soon, a new admission rule rarely.
RETRY_UNWELCOME: Final = timedelta(seconds=30)
RETRY_INVALID: Final = timedelta(minutes=5)
_MOST_HINTS: Final = 10
_POLICY: Final = "ValidatingAdmissionPolicy"  # so the API server begins what such a policy refuses


@dataclass(frozen=True, slots=True)
class RunRefusal:
    """Why the run that spec asks for is refused.

    `retry_at` is when it is to be judged again, None if only a change of spec makes a difference. `findings` and
    `memory` are what else was found out about it; None where it was not judged that far. With `acceptance` the job is
    accepted, and its run only waits.
    """

    verdict: Verdict
    retry_at: datetime | None
    findings: tuple[Finding, ...] | None = None
    memory: Statement | None = None
    acceptance: Verdict | None = None


def refused(observed: Observed, refusal: RunRefusal) -> Outcome:
    """Say that the job's first run is refused."""
    draft = StatusDraft.of(observed.job.status)
    if refusal.findings is not None:
        draft.findings.replace_all(refusal.findings)
    return report(
        observed,
        draft,
        verdict=refusal.verdict,
        check_at=refusal.retry_at,
        acceptance=refusal.acceptance,
        memory=refusal.memory,
    )


def begin_run(observed: Observed, installation: Installation) -> Outcome | RunRefusal:
    """Judge the run that spec asks for, and record it. Until then an earlier run's pods are left alone.

    An outcome that leaves the status as it is waits; Unanswered is raised for what judging needs.
    """
    judged = admission(observed, installation)
    if isinstance(judged, SetAside):
        return _set_aside(judged)
    if not judged.accepted:
        if judged.acceptance.reason in {Reason.CONFIG_NOT_FOUND, Reason.FILES_NOT_FOUND} and settling(observed):
            return keep_status(observed, check_at=observed.now + SETTLING_REREAD)
        reads = observed.job.spec.ds_config_from is not None or observed.job.spec.training.files is not None
        retry = observed.now + SOURCE_REREAD if reads else None
        return RunRefusal(judged.acceptance, retry, judged.findings, judged.memory)
    status, spec = observed.job.status, observed.job.spec
    draft = StatusDraft.of(status)
    draft.findings.replace_all(judged.findings)
    if spec.suspend and status.run is None:
        words = "The job is accepted and suspended: set spec.suspend to false to begin."
        verdict = Verdict(State.SUSPENDED, Reason.SUSPENDED, words)
        return report(observed, draft, verdict=verdict, acceptance=judged.acceptance, memory=judged.memory)
    refusal = _refusal_in_dry_run(observed, judged, installation)
    refusal = refusal or _refusal_beside_others(observed, judged, installation)
    if refusal is not None:
        return refusal
    if status.run is not None and observed.attempt.phase is not Phase.ENDED:
        old, number = status.run.id, observed.attempt.number
        words = f"Run {old!r} was replaced by run {spec.run_id!r}; the pods of attempt {number} end."
        draft.events.append(JobEvent("Normal", Reason.RUN_REPLACED, words))
    warnings = [finding for finding in judged.findings if finding.level is Level.WARNING]
    if warnings:
        count = "1 warning" if len(warnings) == 1 else f"{len(warnings)} warnings"
        words = f"{count}, listed in status.findings; the first: {warnings[0]}"
        draft.events.append(JobEvent("Warning", Reason.CONFIGURATION_WARNINGS, words))
    _record_run(observed, judged, installation, draft)
    # A suspended run gets an attempt without pods: those of the run before, and their result, are not this run's.
    phase = Phase.STOPPING if spec.suspend else Phase.STARTING
    return begin_attempt(observed, draft, phase=phase, memory=judged.memory)


def begin_attempt(
    observed: Observed,
    draft: StatusDraft,
    *,
    phase: Phase = Phase.STARTING,
    memory: Statement | None = None,
    fewer: ElasticSize | None = None,
    why: str = "",
) -> Outcome:
    """Record the next attempt. Its children are made, and the earlier ones' removed, once this is written.

    `memory` is what judging the run that begins with it has come to; None where the run goes on. `fewer`: the size that
    it has, and `why`; None: all nodes of the run.
    """
    now = timestamp(observed.now)
    assert draft.run is not None, "a run is recorded with its first attempt"
    size = fewer or _size_of_all(draft.run)
    if size is not None and size.nodes != draft.run.world.nodes:
        draft.resize(size)
    draft.settle_restarts()
    policy = draft.run.failure_policy or FailurePolicy()
    old_pods = any(not pod.released for pod in observed.pods)
    draft.queue = _with_workload(observed.job, draft.queue)
    if phase is Phase.STARTING and draft.queue is not None and draft.queue.name is not None:
        phase = Phase.QUEUED
    draft.attempt = AttemptStatus(
        number=observed.job.status.attempt_number + 1,
        phase=phase,
        start_time=now,
        admitted_time=None if old_pods or phase is Phase.QUEUED else now,
        restarts_left=left(draft.run, policy, observed.now),
        reached_step=draft.reached_step,
        excluded_nodes=(excluded(draft.run, observed.now) or None) if policy.avoid_blamed_nodes else None,
        resized=words_of_size(draft.run, fewer, why),
    )
    draft.workers = Workers()
    draft.transport = draft.plan = draft.engine = None
    draft.findings.replace({*WORLD, *ENGINE, Code.FASTER_MEASURED})
    return report(observed, draft, memory=memory, check_at=observed.now)


def _record_run(observed: Observed, judged: Admission, installation: Installation, draft: StatusDraft) -> None:
    """Write the run, in place of the one before, whose attempt ends with it unless it has ended."""
    spec, now = observed.job.spec, timestamp(observed.now)
    if draft.attempt is not None:
        draft.close_attempt(AttemptOutcome.REPLACED, now)
        draft.attempt = None
    draft.failure = draft.progress = draft.checkpoint = draft.goodput = draft.wall_time = None
    draft.queue = _queue(observed.job)
    draft.run = Run(
        id=spec.run_id,
        start_time=now,
        gang=chosen_gang(spec, installation.gangs),
        failure_policy=spec.failure_policy,
        defaults=observed.defaults,
        active_deadline_seconds=spec.lifecycle.active_deadline_seconds if spec.lifecycle is not None else None,
        world=judged.world,
        batch=judged.batch,
        elastic=_elastic(judged, observed.job.status.run),
        deepspeed_version=declared_version(spec, installation),
        config_digest=judged.config_digest,
        spec_digests=spec_digests(spec),
    )


def _elastic(judged: Admission, before: Run | None) -> RunElastic | None:
    """Return the sizes of the run that begins; what the run before has saved, it may have saved with other ranks."""
    elastic = judged.elastic
    if elastic is None or before is None or not elastic.converts:
        return elastic
    other = before.world.size != judged.world.size or (before.elastic is not None and before.elastic.resized)
    return elastic.model_copy(update={"resized": True}) if other else elastic


def _size_of_all(run: Run) -> ElasticSize | None:
    """Return the size of a run with all nodes that it was accepted with; None where it has no other."""
    return run.elastic.size_of(run.elastic.nodes) if run.elastic is not None else None


def words_of_size(run: Run, fewer: ElasticSize | None, why: str) -> str | None:
    """Return what the attempt has that is not as in spec; None: nothing. `fewer` and `why` as in begin_attempt."""
    universal = run.elastic is not None and run.elastic.loads_universal
    accumulation = fewer.accumulation if fewer is not None else None
    written = [
        *([f"gradient_accumulation_steps {accumulation}, so that the batch stays"] if accumulation is not None else []),
        *(["checkpoint.load_universal: true, since checkpoints may be of other ranks"] if universal else []),
    ]
    if fewer is None and not written:
        return None
    has = f"It has {fewer.nodes} nodes: {sentence(why)}" if fewer is not None else "It has all nodes again."
    beside = f" Its configuration has {'; and '.join(written)}." if written else ""
    return f"{has}{beside}"[:MAX_CAUSE]


def _queue(job: DeepSpeedJob) -> QueueStatus | None:
    """Return the queue of the run that begins; None where it has none and nothing is to be told to that of before."""
    before = job.status.queue
    if job.queue_name is None:
        return QueueStatus() if before is not None and before.held_workload is not None else None
    prebuilt = True if job.prebuilt_workload is not None else None
    return QueueStatus(name=job.queue_name, priority_class=job.queue_priority, prebuilt=prebuilt)


def _with_workload(job: DeepSpeedJob, queue: QueueStatus | None) -> QueueStatus | None:
    """Return the queue with the Workload of the attempt that begins, and the one before, which may still have quota."""
    if queue is None:
        return None
    before, name, given = job.status.queue, None, None
    if queue.name is not None:
        # Its label may have been taken away in the run, and so may it.
        given = (job.prebuilt_workload or queue.workload) if queue.prebuilt else None
        name = given or workload_name(job)
    held = before.held_workload if before is not None else None
    former = held if held != name else None
    return queue.model_copy(update={"workload": name, "former": former, "prebuilt": True if given else None})


def _set_aside(found: SetAside) -> RunRefusal:
    words = (
        f"The job is set aside, nothing was created: {found.why}. It is tried again at {timestamp(found.until)}. "
        "Make spec.dsConfig, spec.template or spec.model smaller or simpler; if they are small, please report this job."
    )
    return RunRefusal(Verdict(State.INVALID, Reason.QUARANTINED, words), found.until)


def _refusal_in_dry_run(observed: Observed, judged: Admission, installation: Installation) -> RunRefusal | None:
    """Return why the API server refuses a pod of the run, None if it accepts it; raise Unanswered to ask."""
    job, attempt = observed.job, observed.job.status.attempt_number + 1
    text = "" if judged.config_digest is not None else None  # a pod only tells whether there is a configuration

    def pod_of(job: DeepSpeedJob, attempt: int) -> Manifest:
        return Attempt(job, attempt, judged.world, text, installation).pod(0)

    def question() -> DryRunPod:
        nameless = job.model_copy(update={"metadata": job.metadata.model_copy(update={"name": "", "uid": ""})})
        return DryRunPod(pod, digest, _digest(pod_of(nameless, 0)), pods, replaces)

    pod = pod_of(job, attempt)
    # A quota still counts the pods of a run before, which end or are deleted first: how much will be free is not known.
    pods, replaces = judged.world.nodes, any(not pod.gone for pod in observed.pods)
    digest = _digest({"pod": pod, "pods": pods, "replaces": replaces})
    answer = observed.facts.dry_run
    if answer is None or answer.pod_digest != digest:
        raise Unanswered(question())
    if answer.refusal is None:
        return None
    retry_at = answer.answered_at + (RETRY_INVALID if answer.invalid else RETRY_UNWELCOME)
    if observed.now >= retry_at:
        raise Unanswered(question())
    if answer.quota and job.queue_name is not None:
        return None  # its pods are made when its turn comes
    if answer.quota:
        words = f"No pod was created: {sentence(answer.refusal)} Make room in the quota, or wait; it is tried again."
        verdict = Verdict(State.STARTING, Reason.PODS_REFUSED, words)
        return RunRefusal(verdict, retry_at, judged.findings, judged.memory, judged.acceptance)
    reason = Reason.TEMPLATE_REJECTED if answer.invalid else Reason.PODS_REFUSED
    hint = "Correct spec.template" if answer.invalid else "Correct spec.template, or what refuses it; it is tried again"
    if _POLICY in answer.refusal:
        # It may be about the namespace, the operator's own policy among them: no template helps.
        hint = "Do as that policy says, or ask the administrator; it is tried again"
    if answer.invalid:
        unknown = [
            f"{field.path}: {field.fix.rstrip('.')}" for field in field_findings(pod_template(job.spec))[:_MOST_HINTS]
        ]
        hint = "; ".join([hint, *unknown])
    words = f"The API server refuses the job's pods, nothing was created: {sentence(answer.refusal)} {hint}."
    return RunRefusal(Verdict(State.INVALID, reason, words), retry_at, judged.findings)


def _refusal_beside_others(observed: Observed, judged: Admission, installation: Installation) -> RunRefusal | None:
    """Return that the namespace has as many runs as it may have; None if it has not; raise Unanswered to ask.

    It is asked last, since the answer keeps the place for the job.
    """
    namespace, run, fleet = observed.job.metadata.namespace, observed.job.status.run, installation.fleet
    most = fleet.limits_of(namespace).max_jobs
    if most is None or (run is not None and run.completion_time is None):
        return None
    count = observed.facts.get(CountRuns(most, observed.now - RETRY_UNWELCOME))
    if count.others < most:
        return None
    words = (
        f"Namespace {namespace} has as many jobs with a run that has not ended as the platform team allows, {most} at "
        f"most ({fleet.setting(namespace, 'max_jobs')} of the operator's chart); nothing was created. It is tried "
        "again every 30 s: wait, or delete one that is suspended."
    )
    verdict = Verdict(State.INVALID, Reason.LIMIT_EXCEEDED, words)
    return RunRefusal(verdict, count.read_at + RETRY_UNWELCOME, judged.findings)


def _digest(pod: Manifest) -> str:
    return sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()
