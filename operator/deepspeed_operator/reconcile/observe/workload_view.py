"""The Kueue Workload that stands for a job in its queue, as it was last seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from deepspeed_operator.api.names import ANNOTATION_CONTENT, LABEL_JOB_NAME
from deepspeed_operator.api.queueing import (
    ANNOTATION_WORKLOAD,
    GATE_TOPOLOGY,
    LABEL_POD_SET,
    TOPOLOGIES,
    Placement,
    Toleration,
)
from deepspeed_operator.api.untyped import Json, object_at, objects_at

# Of a merge patch: a list is replaced as a whole.
Conditions = tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A Workload. `job` is the name of the job that its label names, None without; `owners` are the uids of its owners.

    `content`: a digest of what it was made of, None where somebody else made it. `pod_set`: the name of its first one,
    which asks for `asked` pods. `flavors`: the ResourceFlavors that they were assigned. `count`: of how many pods; None
    before. `reclaimable`: how many of `asked` it was told not to count. `updates`: what admission checks and the
    topology add to them.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    job: str | None
    owners: frozenset[str]
    leaving: bool
    content: str | None
    conditions: Conditions
    pod_set: str = ""
    asked: int = 0
    reclaimable: int = 0
    flavors: tuple[str, ...] = ()
    count: int | None = None
    updates: Placement = field(default_factory=Placement)

    def condition(self, kind: str) -> Json | None:
        """Return the condition of this type, if it was ever set."""
        return next((each for each in self.conditions if each.get("type") == kind), None)

    def holds(self, kind: str) -> bool:
        found = self.condition(kind)
        return found is not None and found.get("status") == "True"

    @property
    def is_ours(self) -> bool:
        """Whether the operator made it, and so may delete it."""
        return self.content is not None

    @property
    def reserved(self) -> bool:
        """Whether quota is set aside for it, be it admitted, about to be, or evicted."""
        return self.holds("QuotaReserved")

    @property
    def admitted(self) -> bool:
        """Whether its pods may run."""
        return self.holds("Admitted") and not self.evicted

    @property
    def evicted(self) -> bool:
        """Whether its quota is to be given back."""
        return self.holds("Evicted")

    @property
    def granted(self) -> int:
        """How many pods it has quota for."""
        return min(self.asked if self.count is None else self.count, self.asked - self.reclaimable)

    @property
    def finished(self) -> bool:
        return self.holds("Finished")


@dataclass(frozen=True, slots=True)
class WorkloadAnswer:
    """A Workload as it was read; `view` is None if there is none, or `problem` says why it cannot be known."""

    name: str
    view: WorkloadView | None
    problem: str | None
    read_at: datetime


@dataclass(frozen=True, slots=True)
class Lookup:
    """An object of the whole cluster that the queue names, as it was read; `problem` says why it is not known."""

    content: Json | None
    problem: str | None
    read_at: datetime


def workload_view(workload: Json) -> WorkloadView:
    """Project a Workload of kueue.x-k8s.io/v1beta2. KeyError if it is none."""
    metadata: Json = workload["metadata"]
    status, nothing = object_at(workload, "status"), Json()
    first = next(iter(objects_at(workload, "spec", "podSets")), nothing)
    assignments = objects_at(status, "admission", "podSetAssignments")
    assigned = next((each for each in assignments if each.get("name") == first.get("name")), nothing)
    flavors = {str(each) for each in object_at(assigned, "flavors").values()}
    reclaimable = (each for each in objects_at(status, "reclaimablePods") if each.get("name") == first.get("name"))
    return WorkloadView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        job=object_at(metadata, "labels").get(LABEL_JOB_NAME),
        owners=frozenset(str(each.get("uid")) for each in objects_at(metadata, "ownerReferences")),
        leaving=metadata.get("deletionTimestamp") is not None,
        content=object_at(metadata, "annotations").get(ANNOTATION_CONTENT),
        conditions=tuple(objects_at(status, "conditions")),
        pod_set=first.get("name", ""),
        asked=first.get("count", 1),
        reclaimable=next(reclaimable, nothing).get("count", 0),
        flavors=tuple(sorted(flavors)),
        count=assigned.get("count"),
        updates=_with_topology(_updates(status, first.get("name")), metadata["name"], first, assigned),
    )


def placement_of(view: WorkloadView, flavors: Mapping[str, Json]) -> Placement:
    """Return where its pods go, by the ResourceFlavors of its assignment, by name, and by its admission checks."""
    labels: dict[str, str] = {}
    tolerations: list[Toleration] = []
    for flavor in flavors.values():
        labels |= object_at(flavor, "spec", "nodeLabels")
        tolerations += _tolerations(object_at(flavor, "spec"))
    tolerations += view.updates.tolerations
    return Placement(
        flavors=list(view.flavors),
        node_selector={**labels, **view.updates.node_selector},
        tolerations=[each for number, each in enumerate(tolerations) if each not in tolerations[:number]],
        labels=view.updates.labels,
        annotations=view.updates.annotations,
        scheduling_gates=view.updates.scheduling_gates,
    )


def _with_topology(updates: Placement, name: str, pod_set: Json, assigned: Json) -> Placement:
    """Return what the pods carry so that Kueue, which has assigned domains of its topology to them, says where they go.

    It finds the pods of the Workload by annotation and label, orders them by their indices, writes the domain of each
    into its nodeSelector and takes its gate away.
    """
    if not object_at(assigned, "topologyAssignment"):
        return updates
    request = object_at(pod_set, "topologyRequest")
    asked = {annotation: request[field] for field, annotation in TOPOLOGIES.items() if field in request}
    kind = {key: str(value).lower() if isinstance(value, bool) else value for key, value in asked.items()}
    return updates.model_copy(
        update={
            "labels": {**updates.labels, LABEL_POD_SET: pod_set["name"]},
            "annotations": {
                **updates.annotations,
                **(kind or {TOPOLOGIES["unconstrained"]: "true"}),
                ANNOTATION_WORKLOAD: name,
            },
            "scheduling_gates": [GATE_TOPOLOGY],
        }
    )


def _updates(status: Json, pod_set: object) -> Placement:
    checks = objects_at(status, "admissionChecks")
    found = [each for check in checks for each in objects_at(check, "podSetUpdates") if each.get("name") == pod_set]

    def merged(field: str) -> dict[str, str]:
        return {key: str(value) for each in found for key, value in object_at(each, field).items()}

    return Placement(
        node_selector=merged("nodeSelector"),
        tolerations=[each for update in found for each in _tolerations(update)],
        labels=merged("labels"),
        annotations=merged("annotations"),
    )


def _tolerations(holder: Json) -> list[Toleration]:
    return [Toleration.model_validate(each) for each in objects_at(holder, "tolerations")]
