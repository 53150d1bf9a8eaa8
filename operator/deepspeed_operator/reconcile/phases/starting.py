"""Bringing an attempt up: what it still needs, and what keeps it from running."""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import Obstacle
from deepspeed_operator.api.names import content_name
from deepspeed_operator.api.reason_catalogue import CATALOGUE
from deepspeed_operator.api.reasons import Category, Reason
from deepspeed_operator.api.status import AcceleratorSource, Failure, Level
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.ports import ports
from deepspeed_operator.job.template import TEMPLATE
from deepspeed_operator.job.world import world_of
from deepspeed_operator.lint.fleet_limits import limit_findings
from deepspeed_operator.lint.template_rules import template_findings
from deepspeed_operator.reconcile.actions import (
    Action,
    CreatePods,
    DeleteConfigMaps,
    Ensure,
    EnsureToken,
    ReadAgent,
)
from deepspeed_operator.reconcile.admission.configuration import Configuration, attempt_text, run_configuration
from deepspeed_operator.reconcile.failure.attempt_end import Failed
from deepspeed_operator.reconcile.failure.slow_start import recorded, unheard_of
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView, moment
from deepspeed_operator.reconcile.observe.unanswered import Unanswered
from deepspeed_operator.reconcile.phases.half_placed import half_placed, holding
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run, template_changed
from deepspeed_operator.reconcile.report.verdict import sentence
from deepspeed_operator.render.attempt import Attempt
from deepspeed_operator.render.content import conversion_seconds

# The agents of a gang whose containers all run know better who is missing: they get to say it first.
AGENTS_SAY_FIRST: Final = timedelta(seconds=30)
READ_AGENT_EVERY: Final = timedelta(seconds=30)
_LONGEST_SILENCE: Final = 4  # an agent that never answers is asked every 2^4 × 30 s in the end
_MOST_GATES: Final = 5
_PULL_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_NO_ROOM: Final = "It starts when a node has room; or lower spec.slotsPerNode, or the requests in spec.template."
# Who asked for an accelerator that no node has, where the template did not.
_ASKED: Final = (
    "Each pod requests {slots} {resource} because spec.template names no accelerator, and the chart says so of"
)
_FROM: Final = {
    AcceleratorSource.WORKER_IMAGE: f"{_ASKED} its worker image (worker.accelerator).",
    AcceleratorSource.INSTALL_DEFAULT: f"{_ASKED} jobs with an image of their own (defaultAccelerator).",
}
_MOST_NODES: Final = 5
_AVOIDED: Final = (
    "Nodes {nodes} are avoided, since they were at fault twice within 24 h: to use them, set "
    "spec.failurePolicy.avoidBlamedNodes to false, with a new spec.runId."
)
_TO_CPU: Final = "To train on CPUs, limit the trainer to {resource}: 0 in spec.template."
_NO_CLAIM: Final = (
    "It starts when the claim can be used: `kubectl describe pvc` says what it waits for, such as a StorageClass; else "
    "create or correct it, or correct spec.template."
)


def children(observed: Observed, gang: Gang, installation: Installation) -> tuple[Action, ...] | Obstacle:
    """Return what makes the attempt's children exist, or why they cannot be made yet.

    Unanswered is raised to read the run's configuration, which they carry.
    """
    if is_of_another_run(observed):
        return of_another_run(observed) if gang.missing else ()
    source = run_configuration(observed)
    if isinstance(source, Obstacle):
        return source
    attempt = _attempt(observed, gang, source, installation)
    needed = (
        Ensure(attempt.service(), doubted=True),
        Ensure(attempt.config_map(), doubted=True),
        EnsureToken(attempt.secret(), gang.attempt),
        *(Ensure(each, doubted=True) for each in attempt.pod_groups()),
    )
    if not gang.missing:
        return needed
    wrong = made_wrong(observed, installation)
    if wrong is not None:
        return wrong
    pods = CreatePods(gang.attempt, tuple(attempt.pod(index) for index in gang.missing))
    return (*needed, pods, *outdated(observed, gang, installation))


def of_another_run(observed: Observed) -> Obstacle:
    run_id, before = observed.job.spec.run_id, observed.run.id
    words = f"pods are missing, and spec is that of run {run_id!r}: set spec.runId back to {before!r} with the spec of "
    words = f"{words}that run to start it, or correct run {run_id!r}."
    return Obstacle(reason=Reason.INVALID_SPEC, message=words)


def outdated(observed: Observed, gang: Gang, installation: Installation) -> tuple[Action, ...]:
    """Return the deletion of what earlier attempts have left, once this one's ConfigMap and pods are there."""
    name, uid = gang.job, observed.job.metadata.uid
    first = max(observed.job.status.oldest_config_map or 1, observed.facts.oldest_config_map or 1)
    names = tuple(content_name(name, uid, attempt) for attempt in range(first, gang.attempt))
    return (DeleteConfigMaps(gang.attempt, names, installation.gangs),) if names else ()


def made_wrong(observed: Observed, installation: Installation) -> Obstacle | None:
    """The API server cannot see into the template, and so lets it change in a run: a new attempt may not take it."""
    spec, world = observed.job.spec, observed.run.world
    errors = [f"{each}" for each in observed.job.excess]
    errors += [f"{each}" for each in template_findings(spec, installation) if each.level is Level.ERROR]
    exceeded = [f"{each}" for each in limit_findings(observed.job, installation) if each.path.startswith(TEMPLATE)]
    if exceeded and template_changed(observed):  # else the run was accepted with it
        errors += exceeded
    slots = world_of(spec).slots_per_node
    if slots != world.slots_per_node:
        errors.append(f"it has {slots} accelerators for the run's {world.slots_per_node} ranks per pod")
    if not errors:
        return None
    words = f"spec.template was changed in the run, and no pods can be made of it: {'; '.join(errors)} "
    hint = "Correct it, or change spec.runId to begin a run with what it says."
    return Obstacle(reason=Reason.INVALID_SPEC, message=words + hint)


def addresses(
    observed: Observed, gang: Gang, installation: Installation, *, doubted: bool = False
) -> tuple[Action, ...]:
    """Return what publishes the pods' addresses under the names of the hostfile."""
    known = gang.addresses
    if not known:
        return ()
    attempt = _attempt(observed, gang, None, installation)
    return tuple(Ensure(each, doubted) for each in attempt.endpoint_slices(known))


def _attempt(observed: Observed, gang: Gang, source: Configuration | None, installation: Installation) -> Attempt:
    run = observed.run
    text = attempt_text(source, run) if source is not None else None
    kept = source.text if source is not None and run.elastic is not None else None
    return Attempt(observed.job, gang.attempt, run.world, text, installation, kept)


def consult_agent(observed: Observed, gang: Gang, *, early: bool = False) -> None:
    """Raise Unanswered when rank 0's agent is to be asked again.

    That is while pods are slow to start (`early`: its answer will be another one when all ranks run), before the
    attempt is said to run, and now and then.
    """
    due = agent_due(observed, gang)
    if due is not None and due <= observed.now:
        ask_agent(observed, gang, early=early)


def ask_agent(observed: Observed, gang: Gang, *, early: bool = False) -> None:
    """Raise Unanswered to ask rank 0's agent now, if it has an address; `early` as in consult_agent."""
    first = gang.pods.get(0)
    if first is not None and first.address is not None:
        port = ports(observed.job.metadata.uid, gang.attempt).agent
        raise Unanswered(ReadAgent(gang.attempt, first.address, port, early))


def agent_due(observed: Observed, gang: Gang) -> datetime | None:
    """Return when rank 0's agent is asked next; None if it cannot be."""
    report, first = observed.agent, gang.pods.get(0)
    if first is None or first.address is None or first.finished:
        return None
    if report is None or (report.early and gang.all_ranks_running):
        return observed.now
    return report.read_at + READ_AGENT_EVERY * 2 ** min(report.silent, _LONGEST_SILENCE)


def held_up(gang: Gang) -> PodView | None:
    """Return the first pod of which Kubernetes says that it cannot start."""
    waiting = (pod for _, pod in sorted(gang.pods.items()) if not pod.finished)
    return next((pod for pod in waiting if pod.unschedulable is not None or pod.waiting_reason is not None), None)


def obstacle(observed: Observed, gang: Gang) -> Obstacle | None:
    """Return what keeps a pod from starting, if Kubernetes says that anything does."""
    pod = held_up(gang)
    if pod is None:
        return _gated(gang) if gang.gates else None
    if pod.unschedulable is None:
        return _cannot_start(pod)
    hint = _NO_CLAIM if "persistentvolumeclaim" in pod.unschedulable.lower() else _NO_ROOM
    world = observed.run.world
    given = world.accelerator
    if given is not None and given.resource is not None and f"Insufficient {given.resource}" in pod.unschedulable:
        words = f"{_FROM[given.source]} {_TO_CPU}".format(slots=world.slots_per_node, resource=given.resource)
        hint = f"{words} {hint}"
    avoided = observed.attempt.excluded_nodes
    if avoided:
        hint = f"{_AVOIDED.format(nodes=', '.join(avoided[:_MOST_NODES]))} {hint}"
    words = f"pod {pod.name} cannot be scheduled: {sentence(pod.unschedulable)} {hint}"
    half = half_placed(observed, gang)
    if half is not None:
        words = f"{words} {holding(half)}."
    return Obstacle(reason=Reason.UNSCHEDULABLE, message=words)


def _gated(gang: Gang) -> Obstacle:
    listed = ", ".join(gang.gates[:_MOST_GATES]) + (", …" if len(gang.gates) > _MOST_GATES else "")
    words = f"Attempt {gang.attempt}: pods wait for their scheduling gates ({listed}), which a queue or whoever set "
    words = f"{words}them removes. The startup deadline counts then."
    return Obstacle(reason=Reason.SCHEDULING_GATED, message=words)


def _cannot_start(pod: PodView) -> Obstacle:
    where = f"container {pod.waiting_container} of pod {pod.name} on node {pod.node}"
    if pod.waiting_reason in _PULL_REASONS:
        words = (pod.waiting_message or "").removeprefix("Back-off pulling image").strip()
        words = f"{where} cannot pull its image: {sentence(words or pod.waiting_reason)}"
        hint = "Correct spec.image or the pull secret."
        return Obstacle(reason=Reason.IMAGE_PULL_FAILED, message=f"{words} {hint}")
    words = f"{where} cannot start: {sentence(f'{pod.waiting_reason}: {pod.waiting_message}')} Correct spec.template."
    return Obstacle(reason=Reason.CONTAINER_CANNOT_START, message=words)


def admitted_since(observed: Observed, gang: Gang) -> datetime | None:
    """Return since when all pods of the attempt may start; None while old pods, a queue or spec keep them from it."""
    if gang.gates or (gang.missing and (gang.old_pods_that_may_write or is_of_another_run(observed))):
        return None
    since = observed.attempt.admitted_time
    return moment(since) if since is not None else observed.now


def deadline(observed: Observed, gang: Gang) -> datetime | None:
    """Return when the attempt fails unless its ranks run; None while its pods may not start."""
    since = admitted_since(observed, gang)
    if since is None:
        return None
    seconds = observed.job.spec.startup_deadline_seconds + conversion_seconds(observed.job)
    limit = since + timedelta(seconds=seconds)
    started = not gang.missing and all(pod.phase == "Running" for pod in gang.pods.values())
    return limit + AGENTS_SAY_FIRST if started else limit


def not_running_in_time(observed: Observed, gang: Gang) -> Failed:
    """Return why the startup deadline passed, with the pod that Kubernetes cannot start, if that is it."""
    seconds, culprit = observed.job.spec.startup_deadline_seconds, held_up(gang)
    before = recorded(observed, Reason.VOLUMES_NOT_READY, Reason.PODS_REFUSED, Reason.GANG_GIVEN_BACK)
    known = obstacle(observed, gang) or before or unheard_of(observed, gang)
    if known is not None:
        why = known.message
    elif gang.missing:
        why = f"{len(gang.missing)} of {gang.nodes} pods could not be created"
    else:
        waiting = [pod for _, pod in sorted(gang.pods.items()) if not pod.ready]
        listed = ", ".join(f"{pod.name} on node {pod.node or '?'} ({pod.phase})" for pod in waiting[:10])
        why = f"not ready: {listed}" + (f" and {len(waiting) - 10} more" if len(waiting) > 10 else "")
    failure = Failure(
        reason=Reason.STARTUP_DEADLINE_EXCEEDED,
        pod=culprit.name if culprit is not None else None,
        node=culprit.node if culprit is not None else None,
        message=f"the ranks did not all run within {seconds} s (spec.lifecycle.startupDeadlineSeconds): {why}",
    )
    of_user = known is not None and known.reason in CATALOGUE and CATALOGUE[known.reason].category is Category.USER
    return Failed(failure, held_up_by=known.reason if known is not None and of_user else None)
