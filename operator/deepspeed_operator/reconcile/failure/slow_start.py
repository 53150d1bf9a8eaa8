"""Pods that do not come up though nobody says why: the kubelet tells of volumes in Events alone, which are not read."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.attempt_status import Obstacle
from deepspeed_operator.api.names import host_name
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.template import VolumeSource, pod_template
from deepspeed_operator.reconcile.admission.configuration import read_now
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView, Stage
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run

# A node that has all it needs takes a few seconds to set a pod up; the agents as long to find each other.
_LATE: Final = timedelta(seconds=20)


def lateness(observed: Observed, gang: Gang) -> tuple[bool, datetime | None]:
    """Return whether pods take so long that what they need may have been deleted, and when to look again.

    That is when pods will be late, or late ones are looked at once more; None if none can be.
    """
    waiting = [pod for pod in gang.pods.values() if not (pod.finished or pod.ready or pod.waiting_reason)]
    since = [pod.since for pod in waiting if gang.all_containers_running or pod.stage is Stage.BEING_SET_UP]
    if not since:
        return False, None
    # One that runs waits for those that do not: only when the last one does should the ranks begin.
    late_at = (max if gang.all_containers_running else min)(since) + _LATE
    late = late_at <= observed.now
    return late, observed.now + _LATE if late else late_at


def without_volumes(observed: Observed, gang: Gang) -> Obstacle | None:
    """Return what the first late pod that is being set up may lack, if anything; raise Unanswered to look for it."""
    being_set_up = [pod for _, pod in sorted(gang.pods.items()) if pod.stage is Stage.BEING_SET_UP]
    pod = next((pod for pod in being_set_up if pod.since + _LATE <= observed.now), None)
    if pod is None or is_of_another_run(observed):
        return recorded(observed, Reason.VOLUMES_NOT_READY) if being_set_up else None
    needed = dict.fromkeys(_needed(observed.job.spec))
    questions = [read_now(observed, name) for kind, name in needed if kind == "ConfigMap"]
    observed.facts.want(*questions)
    for question in questions:
        if observed.facts.get(question).keys is None:
            return _waits(pod, f"its volumes: there is no ConfigMap {question.name}; create it.")
    unsure = [f"{kind} {name}" for kind, name in needed if kind != "ConfigMap"]
    if not unsure:
        return None
    missing = f"its volumes, or for its image where Kubernetes is older than 1.36: {', '.join(unsure)} may be missing"
    return _waits(pod, f"{missing}. `kubectl describe pod {pod.name}` shows it.")


def unheard_of(observed: Observed, gang: Gang) -> Obstacle | None:
    """Return which pods have not reached rank 0's agent though all run, by its last answer."""
    report = observed.agent
    if not gang.all_containers_running:
        return None
    if report is None or report.silent:
        return recorded(observed, Reason.WAITING_FOR_PEERS)
    hosts = {host_name(gang.job, gang.attempt, index): pod for index, pod in sorted(gang.pods.items())}
    late = [pod for host, pod in hosts.items() if host in report.missing]
    refused = {
        f"{pod.name} on node {pod.node}": report.refused[pod.address or ""]
        for pod in late
        if pod.address in report.refused
    }
    if refused:
        told = "; ".join(f"pod {name}: {why}" for name, why in refused.items())
        words = f"all pods run, but the agent of rank 0 refuses {told}. Set a new spec.runId to run it again."
        return Obstacle(reason=Reason.WAITING_FOR_PEERS, message=words)
    absent = [f"{pod.name} on node {pod.node}" for pod in late]
    if not absent:
        return None
    words = (
        f"all pods run, but the agent of rank 0 has not heard from pod {', pod '.join(absent)}: does "
        f"{next(iter(hosts))} resolve there? It may only start slowly; else check the cluster's DNS, and its network "
        "policies."
    )
    return Obstacle(reason=Reason.WAITING_FOR_PEERS, message=words)


def recorded(observed: Observed, *reasons: Reason) -> Obstacle | None:
    """Return the recorded obstacle, if it is one of these: who has just begun does not know how long pods wait."""
    known = observed.attempt.obstacle
    return known if known is not None and known.reason in reasons else None


def _waits(pod: PodView, words: str) -> Obstacle:
    words = f"pod {pod.name} on node {pod.node} waits for {words}"
    return Obstacle(reason=Reason.VOLUMES_NOT_READY, message=words)


def _needed(spec: DeepSpeedJobSpec) -> Iterator[VolumeSource]:
    """Yield what the pods' volumes come from."""
    if spec.training.files is not None:
        yield VolumeSource("ConfigMap", spec.training.files.config_map)
    yield from pod_template(spec).volume_sources
