"""What a job exceeds of the platform team's limits, and who has set them."""

from typing import Any

import pytest

from deepspeed_operator.api.fleet import Fleet
from deepspeed_operator.api.gangs import GangScheduling
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.lint.fleet_limits import limit_findings

LIMITS = {
    "maxNodes": 4,
    "networkProfiles": ["InfiniBand"],
    "imagePrefixes": ["registry.example.com/team", "mirror.example.com/"],
    "priorityClasses": ["batch"],
}


def found(limits: dict[str, Any], labels: dict[str, str] | None = None, /, **spec: Any) -> dict[str, str]:
    """Return by path what the platform team allows instead."""
    fleet = Fleet.model_validate(limits)
    metadata = {"name": "a", "namespace": "ml", "labels": labels or {}}
    job = DeepSpeedJob.model_validate({"metadata": metadata, "spec": {"training": {"script": "a.py"}, **spec}})
    listed = limit_findings(job, Installation("", "worker:1", fleet=fleet))
    return {each.path: each.message.partition("platform team allows ")[2] for each in listed}


def test_a_job_within_the_limits_is_not_told() -> None:
    pod = {
        "containers": [{"name": "trainer"}, {"name": "log", "image": "mirror.example.com/log:1"}],
        "priorityClassName": "batch",
    }
    within = {
        "nodes": 4,
        "image": "registry.example.com/team/llm:1",
        "network": {"profile": "InfiniBand"},
        "template": {"spec": pod},
        "scheduling": {"priorityClassName": "batch"},
    }
    assert found({"limits": LIMITS}, **within) == {}
    assert found({"limits": LIMITS}) == {}
    assert found({"limits": LIMITS}, network={"profile": "Auto"}, image="worker:1") == {}
    assert found({}, nodes=10_000, network={"profile": "GKE-TCPX"}, image="any") == {}


def test_each_limit_is_told_with_its_path_and_where_it_is_set() -> None:
    template = {
        "spec": {
            "containers": [{"name": "trainer"}, {"name": "log", "image": "elsewhere/log"}],
            "initContainers": [{"name": "prepare", "image": "registry.example.com/teams/a:1"}],
            "volumes": [{"name": "data", "image": {"reference": "elsewhere/data"}}],
            "priorityClassName": "system-cluster-critical",
        }
    }
    beyond = {"nodes": 5, "image": "elsewhere/llm", "network": {"profile": "AWS-EFA"}, "template": template}
    images = (
        "images of registry.example.com/team, mirror.example.com/ (fleet.limits.imagePrefixes of the operator's chart)."
    )
    classes = "batch (fleet.limits.priorityClasses of the operator's chart)."
    pod = "spec.template.spec"
    assert found({"limits": LIMITS}, **beyond, scheduling={"priorityClassName": "urgent"}) == {
        "spec.nodes": "4 at most (fleet.limits.maxNodes of the operator's chart).",
        "spec.network.profile": "Auto, InfiniBand (fleet.limits.networkProfiles of the operator's chart).",
        "spec.image": images,
        f"{pod}.containers[1].image": images,
        f"{pod}.initContainers[0].image": images,
        f"{pod}.volumes[0].image.reference": images,
        f"{pod}.priorityClassName": classes,
        "spec.scheduling.priorityClassName": classes,
    }


def test_a_priority_in_a_label_is_one() -> None:
    named = found({"limits": {"priorityClasses": []}}, {"kueue.x-k8s.io/priority-class": "urgent"})
    told = "none (fleet.limits.priorityClasses of the operator's chart)."
    assert named == {'metadata.labels["kueue.x-k8s.io/priority-class"]': told}


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("registry.example.com/team", True),
        ("registry.example.com/team/a", True),
        ("registry.example.com/team:1", True),
        ("registry.example.com/team@sha256:0", True),
        ("registry.example.com/teams", False),
        ("registry.example.com/team-b/a", False),
        ("registry.example.com/tea", False),
        ("mirror.example.com/a", True),
        ("mirror.example.com.evil.org/a", False),
        ("evil.org/registry.example.com/team", False),
    ],
)
def test_a_prefix_ends_where_a_name_does(image: str, allowed: bool) -> None:
    assert (found({"limits": LIMITS}, image=image) == {}) is allowed


@pytest.mark.parametrize("of_namespace", [2, 64])
def test_a_namespaces_limit_takes_the_place_of_the_installs(of_namespace: int) -> None:
    limits = {"limits": LIMITS, "namespaces": {"ml": {"limits": {"maxNodes": of_namespace}}}}
    told = f"{of_namespace} at most (fleet.namespaces.ml.limits.maxNodes of the operator's chart)."
    assert found(limits, nodes=65) == {"spec.nodes": told}
    assert found(limits, nodes=of_namespace) == {}
    assert found(limits, network={"profile": "TCP"}).keys() == {"spec.network.profile"}


def test_a_template_of_any_shape_is_looked_at() -> None:
    pods: list[Any] = [
        [],
        {"containers": "a"},
        {"containers": [3]},
        {"volumes": [{"image": 3}], "priorityClassName": 3},
    ]
    for pod in pods:
        assert found({"limits": LIMITS}, template={"spec": pod}) == {}


@pytest.mark.parametrize(("gang", "told"), [("Volcano", False), ("KAI", True), ("Auto", False), ("None", False)])
def test_a_gang_scheduler_that_the_chart_does_not_allow_is_told(gang: str, told: bool) -> None:
    spec = {"training": {"script": "a.py"}, "scheduling": {"gang": gang}}
    job = DeepSpeedJob.model_validate({"metadata": {"name": "a", "namespace": "ml"}, "spec": spec})
    findings = limit_findings(job, Installation("", gangs=frozenset({GangScheduling.VOLCANO})))
    assert [each.path for each in findings] == (["spec.scheduling.gang"] if told else [])
