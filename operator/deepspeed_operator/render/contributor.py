"""A pod is the user's template, to which each concern adds what it needs."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from deepspeed_operator.api.untyped import Json, present
from deepspeed_operator.job.template import PodTemplate


class Contributor(Protocol):
    """What one concern adds to the pods of an attempt; what the template says stays. By default it adds nothing."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the pod, where the template has none of that name."""
        return {}

    def add_to_pod(self, pod: Json) -> Json:
        """Return the pod's spec, whose trainer is not finished, with what it lacks."""
        return pod

    def add_to_trainer(self, trainer: Json, pod: Json) -> Json:  # noqa: ARG002
        """Return the trainer container with what it lacks; `pod` is the finished spec of its pod."""
        return trainer


def pod_for(template: PodTemplate, contributors: Sequence[Contributor]) -> Json:
    """Return the spec of the template's pod with what the contributors add, in their order."""
    pod = present(template.pod)
    for contributor in contributors:
        pod = contributor.add_to_pod(pod)
    if pod.get("hostNetwork"):
        # Else the node's own resolver is asked, which does not know the hostfile's names.
        return {**pod, "dnsPolicy": pod.get("dnsPolicy", "ClusterFirstWithHostNet")}
    return pod


def trainer_for(trainer: Json, pod: Json, contributors: Sequence[Contributor]) -> Json:
    """Return the trainer container with what the contributors add, in their order; `pod` is what pod_for returned."""
    for contributor in contributors:
        trainer = contributor.add_to_trainer(trainer, pod)
    return trainer


def annotations_for(contributors: Sequence[Contributor]) -> dict[str, str]:
    """Return the annotations that the contributors add."""
    return {name: value for contributor in contributors for name, value in contributor.annotations.items()}
