"""Which scheduler's gang the pods of a job are."""

from collections.abc import Mapping
from typing import Final

from deepspeed_operator.api.gangs import GangScheduling
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.template import pod_template

# As the charts of these name their scheduler: a pod's schedulerName where its template has none.
SCHEDULER_NAMES: Final[Mapping[GangScheduling, str]] = {
    GangScheduling.VOLCANO: "volcano",
    GangScheduling.COSCHEDULING: "scheduler-plugins-scheduler",
    GangScheduling.KAI: "kai-scheduler",
}
# What makes a pod a member of a PodGroup: an annotation, of Coscheduling a label.
MEMBERSHIP: Final[Mapping[GangScheduling, str]] = {
    GangScheduling.VOLCANO: "scheduling.k8s.io/group-name",
    GangScheduling.COSCHEDULING: "scheduling.x-k8s.io/pod-group",
    GangScheduling.KAI: "pod-group-name",
}


def asked_gang(spec: DeepSpeedJobSpec) -> GangScheduling:
    """Return what the job says; Auto where it says nothing."""
    return spec.scheduling.gang if spec.scheduling is not None else GangScheduling.AUTO


def chosen_gang(spec: DeepSpeedJobSpec, allowed: frozenset[GangScheduling]) -> GangScheduling | None:
    """Return whose gang the pods are; None: nobody's.

    `allowed`: of which schedulers the operator may make PodGroups. Auto takes the one of these that the template names,
    unless the template has a PodGroup of its own, too.
    """
    asked, template = asked_gang(spec), pod_template(spec)
    if asked is not GangScheduling.AUTO:
        return asked if asked is not GangScheduling.NONE else None
    if {*template.annotations, *template.labels} & set(MEMBERSHIP.values()):
        return None
    named = template.pod.get("schedulerName")
    return next((each for each in allowed if SCHEDULER_NAMES[each] == named), None)
