"""What a pod gets is what its contributors add, in their order, to what its template says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepspeed_operator.api.untyped import Json, list_at
from deepspeed_operator.job.template import PodTemplate
from deepspeed_operator.render.contributor import Contributor, annotations_for, pod_for, trainer_for
from tests.unit.render.test_attempt import attempt_of


@dataclass(frozen=True)
class Gate(Contributor):
    """A queue's, for example: its pods wait for it."""

    name: str

    @property
    def annotations(self) -> Mapping[str, str]:
        return {"gate": self.name}

    def add_to_pod(self, pod: Json) -> Json:
        return {**pod, "schedulingGates": [*list_at(pod, "schedulingGates"), {"name": self.name}]}

    def add_to_trainer(self, trainer: Json, pod: Json) -> Json:
        return {**trainer, "gates": len(pod["schedulingGates"])}


class Nothing(Contributor):
    pass


def test_contributors_add_in_their_order_and_see_what_was_added_before() -> None:
    gates = (Gate("a"), Nothing(), Gate("b"))
    template = PodTemplate.parse({"spec": {"schedulingGates": [{"name": "own"}], "priority": None}})
    pod = pod_for(template, gates)
    assert pod == {"schedulingGates": [{"name": "own"}, {"name": "a"}, {"name": "b"}]}
    assert trainer_for({"name": "trainer"}, pod, gates) == {"name": "trainer", "gates": 3}
    assert annotations_for(gates) == {"gate": "b"}


def test_who_adds_the_nodes_network_does_not_care_for_names() -> None:
    class NodeNetwork(Contributor):
        def add_to_pod(self, pod: Json) -> Json:
            return {**pod, "hostNetwork": True}

    pod = pod_for(PodTemplate.parse(None), [NodeNetwork()])
    assert pod == {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}


def test_a_template_is_left_as_it_is() -> None:
    written: dict[str, Any] = {"spec": {"containers": [{"name": "a", "volumeMounts": []}], "volumes": []}}
    attempt = attempt_of(written, network={"profile": "GKE-TCPX"})
    before = str(attempt.job.spec.template)
    assert attempt.pod(0) == attempt.pod(0)
    assert str(attempt.job.spec.template) == before
