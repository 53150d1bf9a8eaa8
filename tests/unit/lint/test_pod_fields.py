"""A field that no pod has is told with the nearest one; what a pod has, and what a newer pod may have, is no error."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.status import Finding, Level
from deepspeed_operator.job.template import PodTemplate
from deepspeed_operator.lint.pod_fields import field_findings

GOLDEN = Path(__file__).parents[2] / "golden"


UNKNOWN: list[tuple[dict[str, Any], str, str]] = [
    ({"nodeSelectors": {"a": "b"}}, "nodeSelectors", "Write nodeSelector."),
    ({"env": []}, "env", "Move it to the container."),
    ({"containers": [{"resource": {}}]}, "containers[0].resource", "Write resources."),
    ({"containers": [{}, {"envs": []}]}, "containers[1].envs", "Write env."),
    ({"containers": [{"tolerations": []}]}, "containers[0].tolerations", "Move it to spec.template.spec."),
    ({"containers": [{"env": [{"valu": "x"}]}]}, "containers[0].env[0].valu", "Write value."),
    ({"containers": [{"volumeMounts": [{"mountpath": "/"}]}]}, "containers[0].volumeMounts[0].mountpath",
     "Write mountPath."),
    ({"initContainers": [{"securityContext": {"fsGroup": 1}}]}, "initContainers[0].securityContext.fsGroup",
     "Move it to spec.template.spec.securityContext."),
    ({"volumes": [{"persistentVolumeClaim": {"name": "x"}}]}, "volumes[0].persistentVolumeClaim.name", "check its"),
    ({"aFieldOfTomorrow": 1}, "aFieldOfTomorrow", "Remove aFieldOfTomorrow, or check its name."),
]  # fmt: skip
KNOWN: list[dict[str, Any]] = [
    {"nodeSelector": {"any": "label"}, "overhead": {"any": "1"}, "containers": None, "volumes": "no list"},
    {"containers": [{"resources": {"limits": {"any/thing": 1}}, "env": [{"valueFrom": {"secretKeyRef": {}}}]}]},
    {"volumes": [{"csi": {"volumeAttributes": {"any": "x"}}, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
    {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}},
]


def findings_of(template: dict[str, Any] | None) -> list[Finding]:
    return field_findings(PodTemplate.parse(template))


@pytest.mark.parametrize(("pod", "path", "fix"), UNKNOWN)
def test_an_unknown_field_is_a_warning_with_the_nearest(pod: dict[str, Any], path: str, fix: str) -> None:
    (finding,) = findings_of({"spec": pod})
    assert (finding.level, finding.path) == (Level.WARNING, f"spec.template.spec.{path}")
    assert fix in finding.fix


@pytest.mark.parametrize("pod", KNOWN)
def test_what_a_pod_has_is_not(pod: dict[str, Any]) -> None:
    assert findings_of({"spec": pod}) == []


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: str(path.stem))
def test_every_pod_that_is_rendered_has_only_fields_of_a_pod(path: Path) -> None:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(path.read_text()))
    pods = [each for each in documents if each and each.get("kind") == "Pod"]
    assert [finding for pod in pods for finding in findings_of({"spec": pod["spec"]})] == []


def test_a_template_full_of_them_costs_little() -> None:
    template = {"spec": {f"field-{number}": 1 for number in range(10_000)}}
    assert len(findings_of(template)) == 50
    assert findings_of(None) == findings_of({}) == findings_of({"spec": []}) == []
