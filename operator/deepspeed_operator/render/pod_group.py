"""An attempt as a gang of another scheduler's: its PodGroup, and what makes a pod a member of it.

Each field is as the schedulers' own kinds have it, which tests/e2e/crds holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.gangs import GangScheduling
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.gang_scheduler import MEMBERSHIP, SCHEDULER_NAMES
from deepspeed_operator.job.template import PodTemplate
from deepspeed_operator.render.contributor import Contributor

API_VERSIONS: Final[Mapping[GangScheduling, str]] = {
    GangScheduling.VOLCANO: "scheduling.volcano.sh/v1beta1",
    GangScheduling.COSCHEDULING: "scheduling.x-k8s.io/v1alpha1",
    GangScheduling.KAI: "scheduling.run.ai/v2alpha2",
}
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"  # an annotation
KAI_QUEUE: Final = "kai.scheduler/queue"  # a label


def pod_group(gang: GangScheduling, metadata: Json, nodes: int, template: PodTemplate) -> Json:
    """Return the PodGroup of an attempt with that many pods, none of which starts before there is room for all.

    Its queue is the one that the template names in the scheduler's own way.
    """
    spec: Json = {"minMember": nodes}
    if gang is not GangScheduling.COSCHEDULING:
        volcano = gang is GangScheduling.VOLCANO
        queue = template.annotations.get(VOLCANO_QUEUE) if volcano else template.labels.get(KAI_QUEUE)
        priority = template.pod.get("priorityClassName")
        spec |= {"queue": queue} if queue else {}
        spec |= {"priorityClassName": priority} if priority else {}
    return {"apiVersion": API_VERSIONS[gang], "kind": "PodGroup", "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class PodGroupMembership(Contributor):
    """Makes a pod a member of the PodGroup with this name."""

    gang: GangScheduling
    name: str

    @property
    def annotations(self) -> Mapping[str, str]:
        # Else KAI's own grouper puts the pod into another group, which it makes of the pod's owner.
        kept = {"kai.scheduler/skip-podgrouper": "true"} if self.gang is GangScheduling.KAI else {}
        return {} if self.gang is GangScheduling.COSCHEDULING else {MEMBERSHIP[self.gang]: self.name, **kept}

    @property
    def labels(self) -> Mapping[str, str]:
        return {MEMBERSHIP[self.gang]: self.name} if self.gang is GangScheduling.COSCHEDULING else {}

    def add_to_pod(self, pod: Json) -> Json:
        return {**pod, "schedulerName": pod.get("schedulerName") or SCHEDULER_NAMES[self.gang]}
