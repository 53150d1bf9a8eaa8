"""In which queue a job waits for its turn, and what the queue has said of it."""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.gangs import GangScheduling
from deepspeed_operator.api.markers import Atomic
from deepspeed_operator.api.untyped import Json, object_at

KUEUE: Final = "kueue.x-k8s.io"
LABEL_QUEUE: Final = f"{KUEUE}/queue-name"
LABEL_PRIORITY: Final = f"{KUEUE}/priority-class"
LABEL_PREBUILT: Final = f"{KUEUE}/prebuilt-workload-name"
LABEL_POD_SET: Final = f"{KUEUE}/podset"
ANNOTATION_WORKLOAD: Final = f"{KUEUE}/workload"  # of a pod
GATE_TOPOLOGY: Final = f"{KUEUE}/topology"
# Annotations of a template, by the field of a Workload that asks for the same.
TOPOLOGIES: Final = {
    "required": f"{KUEUE}/podset-required-topology",
    "preferred": f"{KUEUE}/podset-preferred-topology",
    "unconstrained": f"{KUEUE}/podset-unconstrained-topology",
}
ANNOTATION_SLICE: Final = f"{KUEUE}/podset-slice-required-topology"
ANNOTATION_SLICE_SIZE: Final = f"{KUEUE}/podset-slice-size"
_LABELS: Final = frozenset({LABEL_QUEUE, LABEL_PRIORITY, LABEL_PREBUILT})
MAX_ASSIGNED: Final = 64

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


def _of_the_queue(labels: object) -> Json:
    """Keep the labels that are read: a job may have many more."""
    return {key: value for key, value in object_at(labels).items() if key in _LABELS}


QueueLabels = Annotated[dict[str, str], BeforeValidator(_of_the_queue)]


class JobScheduling(ApiModel):
    """When the pods of the job may be made, and who places them."""

    queue_name: Name | None = Field(
        default=None,
        description="Name of a Kueue LocalQueue in the job's namespace. No pod is made until Kueue admits the job. "
        f"Unset: the label {LABEL_QUEUE} of the job, else no queue. docs/kueue.md. Example: team-a",
    )
    priority_class_name: Name | None = Field(
        default=None,
        description="Name of a Kueue WorkloadPriorityClass: the job's rank in its queue, which its pods do not see. "
        f"Unset: the label {LABEL_PRIORITY} of the job, else the priorityClassName of template. Example: production",
    )
    gang: GangScheduling = Field(
        default=GangScheduling.AUTO,
        description="Which scheduler places all pods of the job together or none of them, by a PodGroup of its own: "
        "Volcano, Coscheduling (of scheduler-plugins) or KAI, as far as the operator's chart allows it (gangs). Auto, "
        "the default: the one whose name the template's schedulerName has, else None. The queue is the one that the "
        "template names, in the scheduler's own way. docs/gangs.md. Example: Volcano",
    )


class Toleration(ApiModel):
    """A toleration, as in a pod."""

    key: str | None = Field(default=None, max_length=316, description="The taint's key. Absent: all keys.")
    operator: str | None = Field(default=None, max_length=64, description="Equal, or Exists.")
    value: str | None = Field(default=None, max_length=256, description="The taint's value.")
    effect: str | None = Field(default=None, max_length=64, description="The taint's effect. Absent: all effects.")
    toleration_seconds: int | None = Field(default=None, description="How long a pod stays with NoExecute.")


class Placement(ApiModel):
    """Where the pods of an attempt go, and what they carry, because the queue's quota is there."""

    flavors: Annotated[list[Annotated[str, Field(max_length=253)]], Atomic()] = Field(
        default=[], max_length=MAX_ASSIGNED, description="The ResourceFlavors whose quota the pods use."
    )
    node_selector: dict[str, Annotated[str, Field(max_length=256)]] = Field(
        default={}, max_length=MAX_ASSIGNED, description="Labels of the nodes, added to the template's nodeSelector."
    )
    tolerations: Annotated[list[Toleration], Atomic()] = Field(
        default=[], max_length=MAX_ASSIGNED, description="Tolerations, added to the template's."
    )
    labels: dict[str, Annotated[str, Field(max_length=256)]] = Field(
        default={},
        max_length=MAX_ASSIGNED,
        description="Labels of the pods, by the queue's admission checks and its topology.",
    )
    annotations: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default={}, max_length=MAX_ASSIGNED, description="Annotations of the pods, by the same."
    )
    scheduling_gates: Annotated[list[Annotated[str, Field(max_length=253)]], Atomic()] = Field(
        default=[],
        max_length=MAX_ASSIGNED,
        description="Scheduling gates of the pods, each of which the queue takes away as it says which nodes, of those "
        "that its topology names, a pod goes to.",
    )


class QueueStatus(ApiModel):
    """The queue of the current run."""

    name: str | None = Field(
        default=None,
        max_length=253,
        description="The LocalQueue that the run waits in or was admitted by, as it was when the run was accepted. "
        "Absent: the run has none.",
    )
    priority_class: str | None = Field(
        default=None, max_length=253, description="Its WorkloadPriorityClass. Absent: none was named."
    )
    workload: str | None = Field(
        default=None,
        max_length=253,
        description="The Kueue Workload that stands for the job. Absent once nothing is left to be told to the queue.",
    )
    prebuilt: bool | None = Field(
        default=None, description=f"True where somebody else made it, whom the label {LABEL_PREBUILT} names."
    )
    former: str | None = Field(
        default=None,
        max_length=253,
        description="The Workload that stood for the run before, or that the label named before, until its quota is "
        "given back. Absent: none.",
    )

    granted: int | None = Field(
        default=None,
        description="With spec.elastic: how many pods Kueue has admitted, where the attempt has fewer nodes than the "
        "run was accepted with. Absent: it has all, or waits.",
    )

    @property
    def held_workload(self) -> str | None:
        """The Workload that may have quota: while there is a former one, the run's own waits."""
        return self.former or self.workload
