"""Where the scheduler puts the pods of a gang."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepspeed_operator.api.names import LABEL_ATTEMPT, LABEL_JOB_UID
from deepspeed_operator.api.queueing import Placement
from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.render.contributor import Contributor


@dataclass(frozen=True, slots=True)
class Scheduling(Contributor):
    """Spreads the pods of an attempt over nodes, as far as there is room, and keeps them off some.

    `labels` are the attempt's, `excluded` the names of nodes. `placement`: where a queue has quota for them; None
    without a queue.
    """

    labels: Mapping[str, str]
    excluded: Sequence[str] = ()
    placement: Placement | None = None

    def add_to_pod(self, pod: Json) -> Json:
        spread = pod.get("topologySpreadConstraints", [self._over_nodes()])
        placed = {**pod, "topologySpreadConstraints": spread}
        if self.placement is not None:
            placed |= self._where_quota_is(pod, self.placement)
        return {**placed, "affinity": self._elsewhere(pod)} if self.excluded else placed

    def _where_quota_is(self, pod: Json, placement: Placement) -> Json:
        tolerations = [each.model_dump(by_alias=True, exclude_none=True) for each in placement.tolerations]
        known, gates = list_at(pod, "tolerations"), [{"name": each} for each in placement.scheduling_gates]
        added = {
            "nodeSelector": {**object_at(pod, "nodeSelector"), **placement.node_selector},
            "tolerations": [*known, *(each for each in tolerations if each not in known)],
            "schedulingGates": [*list_at(pod, "schedulingGates"), *gates],
        }
        return {key: value for key, value in added.items() if value}

    def _elsewhere(self, pod: Json) -> Json:
        """Return the pod's affinity, each of whose terms, of which a node must meet one, excludes the nodes, too."""
        affinity, ours = object_at(pod, "affinity"), "requiredDuringSchedulingIgnoredDuringExecution"
        of_nodes = object_at(affinity, "nodeAffinity")
        required = object_at(of_nodes, ours)
        fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in self.excluded]
        terms = [
            {**term, "matchFields": [*list_at(term, "matchFields"), *fields]}
            for term in objects_at(required, "nodeSelectorTerms") or [{}]
        ]
        return {**affinity, "nodeAffinity": {**of_nodes, ours: {**required, "nodeSelectorTerms": terms}}}

    def _over_nodes(self) -> Json:
        return {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {label: self.labels[label] for label in (LABEL_JOB_UID, LABEL_ATTEMPT)}},
        }
