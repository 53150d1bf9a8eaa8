"""Where the scheduler puts the pods of a gang."""

from collections.abc import Mapping
from dataclasses import dataclass

from deepspeed_operator.api.names import LABEL_ATTEMPT, LABEL_JOB_UID
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.render.contributor import Contributor


@dataclass(frozen=True, slots=True)
class Scheduling(Contributor):
    """Spreads the pods of an attempt over nodes, as far as there is room; `labels` are the attempt's."""

    labels: Mapping[str, str]

    def add_to_pod(self, pod: Json) -> Json:
        return pod if "topologySpreadConstraints" in pod else {**pod, "topologySpreadConstraints": [self._over_nodes()]}

    def _over_nodes(self) -> Json:
        return {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {label: self.labels[label] for label in (LABEL_JOB_UID, LABEL_ATTEMPT)}},
        }
