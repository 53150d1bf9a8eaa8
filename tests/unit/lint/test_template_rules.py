"""What is the operator's is refused in a template: everything at once, where it stands, with what to use instead."""

from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding, Level
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.lint.template_rules import template_findings

INSTALLATION = Installation("UEsFBg==", "registry.example.com/worker:1", "0.19.8")
CONTAINER = "spec.template.spec.containers[0]"


def findings_of(
    pod: Any = None, *, metadata: Any = None, installation: Installation = INSTALLATION, **fields: Any
) -> list[Finding]:
    template = {"metadata": metadata, "spec": pod}
    written = {"training": {"script": "train.py"}, "template": template, **fields}
    return template_findings(DeepSpeedJobSpec.model_validate(written), installation)


def trainer_findings(trainer: dict[str, Any], **fields: Any) -> list[Finding]:
    return findings_of({"containers": [{"name": "trainer", **trainer}]}, **fields)


def paths(findings: list[Finding], level: Level = Level.ERROR) -> list[str]:
    assert all(finding.fix and finding.message for finding in findings)
    return [finding.path for finding in findings if finding.level is level]


@pytest.mark.parametrize("template", [None, {}, {"metadata": None, "spec": None}, {"spec": {"containers": []}}])
def test_an_absent_or_empty_template_is_fine(template: Any) -> None:
    assert findings_of(template=template) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("restartPolicy", "Always"),
        ("restartPolicy", "OnFailure"),
        ("hostname", "a"),
        ("hostnameOverride", "a"),
        ("subdomain", "a"),
        ("nodeName", "node0"),
        ("activeDeadlineSeconds", 60),
    ],
)
def test_fields_of_the_pod_that_are_ours(field: str, value: Any) -> None:
    assert paths(findings_of({field: value})) == [f"spec.template.spec.{field}"]


def test_the_restart_policy_that_we_set_may_be_written() -> None:
    assert findings_of({"restartPolicy": "Never"}) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("args", ["--epochs", "3"]),
        ("restartPolicy", "OnFailure"),
        ("restartPolicyRules", [{"action": "Restart"}]),
        ("terminationMessagePath", "/tmp/message"),
    ],
)
def test_fields_of_the_trainer_that_are_ours(field: str, value: Any) -> None:
    assert paths(trainer_findings({field: value})) == [f"{CONTAINER}.{field}"]


def test_the_trainer_may_have_an_entrypoint() -> None:
    assert trainer_findings({"command": ["/entrypoint.sh"], "args": None}) == []


def test_a_sidecar_may_have_what_the_trainer_may_not() -> None:
    containers = [{"name": "trainer"}, {"name": "b", "args": ["x"], "terminationMessagePath": "/x"}]
    assert paths(findings_of({"containers": containers})) == []


def test_our_variables_labels_and_volume_names() -> None:
    pod: Any = {
        "containers": [{"name": "trainer", "env": [{"name": "A"}, {"name": "DEEPSPEED_OPERATOR_INDEX", "value": "0"}]}],
        "volumes": [{"name": "data"}, {"name": "deepspeed-operator-shm"}],
    }
    labels = {"team": "a", "deepspeed-operator.dev/index": "0", "app.kubernetes.io/managed-by": "Helm"}
    assert paths(findings_of(pod, metadata={"labels": labels})) == [
        'spec.template.metadata.labels["deepspeed-operator.dev/index"]',
        'spec.template.metadata.labels["app.kubernetes.io/managed-by"]',
        f"{CONTAINER}.env[1].name",
        "spec.template.spec.volumes[1].name",
    ]


def test_pods_are_named_by_us() -> None:
    metadata = {"name": "a", "generateName": "a-", "namespace": "b", "finalizers": ["x"], "creationTimestamp": None}
    assert paths(findings_of(metadata=metadata)) == [
        f"spec.template.metadata.{field}" for field in ("name", "generateName", "namespace", "finalizers")
    ]


def test_a_template_is_metadata_and_spec() -> None:
    assert paths(findings_of(template={"containers": []})) == ["spec.template.containers"]


@pytest.mark.parametrize(
    ("mount_path", "fields", "refused"),
    [
        ("/etc/deepspeed-operator", {}, True),
        ("/etc/deepspeed-operator/", {}, True),
        ("/etc//deepspeed-operator/agent", {}, True),
        ("/etc/deepspeed-operator-files/x", {}, True),
        ("/etc/deepspeed-operator2", {}, False),
        ("/etc/x", {}, False),
        ("/workspace", {}, False),
        ("/workspace", {"files": {"configMap": "code"}}, True),
        ("/workspace/data", {"files": {"configMap": "code"}}, False),
        ("/app/ds.json", {"configPath": "/app/ds.json"}, True),
        ("/app", {"configPath": "/app/ds.json"}, False),
    ],
)
def test_mounts_over_ours(mount_path: str, fields: dict[str, Any], refused: bool) -> None:
    trainer = {"volumeMounts": [{"name": "v", "mountPath": mount_path}]}
    findings = trainer_findings(trainer, training={"script": "a.py", **fields}, dsConfig={})
    assert paths(findings) == ([f"{CONTAINER}.volumeMounts[0].mountPath"] if refused else [])


@pytest.mark.parametrize(
    ("config_path", "refused"),
    [
        ("/etc/deepspeed-operator/ds_config.json", False),
        ("/etc/deepspeed-operator/other.json", True),
        ("/etc/deepspeed-operator-files/a.json", True),
        ("/workspace", True),
        ("/workspace/ds_config.json", False),
        ("/dev/shm", True),
        ("/app/../etc/x.json", True),
        ("/app/configs/ds.json", False),
    ],
)
def test_config_paths(config_path: str, refused: bool) -> None:
    findings = findings_of(training={"script": "a.py", "configPath": config_path})
    assert paths(findings) == (["spec.training.configPath"] if refused else [])


def test_two_sizes_for_shared_memory() -> None:
    mounted = {"volumeMounts": [{"name": "fast", "mountPath": "/dev/shm"}]}
    assert paths(trainer_findings(mounted)) == []
    assert paths(trainer_findings(mounted, sharedMemory="16Gi")) == ["spec.sharedMemory"]


def test_the_trainer_must_be_known() -> None:
    two = [{"name": "a"}, {"name": "b"}]
    (finding,) = findings_of({"containers": two})
    assert finding.path == "spec.template.spec.containers"
    assert '"a", "b"' in finding.message
    assert findings_of({"containers": [{"name": "any"}]}) == []
    named = findings_of({"containers": [{"name": "a"}, {"name": "trainer", "args": ["x"]}]})
    assert paths(named) == ["spec.template.spec.containers[1].args"]


def test_images() -> None:
    nothing = Installation("UEsFBg==")
    assert paths(findings_of(installation=nothing)) == ["spec.image"]
    assert paths(findings_of(installation=nothing, image="a")) == []
    assert paths(trainer_findings({"image": "a"}, installation=nothing)) == []
    assert paths(trainer_findings({"image": "a"}, image="a")) == []
    assert paths(trainer_findings({"image": "a"}, image="b")) == ["spec.image"]


@pytest.mark.parametrize(
    ("limit", "slots", "refused"),
    [
        (8, None, []),
        ("8", 8, []),
        (0, 8, []),
        (4, 8, ["spec.slotsPerNode"]),
        (8, 4, []),
        ("lots", None, [f'{CONTAINER}.resources.limits["nvidia.com/gpu"]']),
        (1.5, None, [f'{CONTAINER}.resources.limits["nvidia.com/gpu"]']),
    ],
)
def test_slots_and_accelerators_agree(limit: Any, slots: int | None, refused: list[str]) -> None:
    trainer = {"resources": {"limits": {"nvidia.com/gpu": limit}}}
    assert paths(trainer_findings(trainer, slotsPerNode=slots)) == refused


def test_accelerators_without_a_rank_are_a_warning() -> None:
    found = trainer_findings({"resources": {"limits": {"nvidia.com/gpu": 8}}}, slotsPerNode=6)
    assert paths(found, Level.WARNING) == ["spec.slotsPerNode"]
    assert "2 of the 8 accelerators" in found[0].message


def test_a_plain_sidecar_gets_advice() -> None:
    findings = findings_of({"containers": [{"name": "logs"}, {"name": "trainer"}]})
    assert paths(findings, Level.ADVICE) == ["spec.template.spec.containers[0]"]
    assert "restartPolicy Always" in findings[0].fix


def test_what_will_surprise_is_a_warning() -> None:
    assert paths(findings_of({"hostNetwork": True, "dnsPolicy": "Default"}), Level.WARNING) == [
        "spec.template.spec.dnsPolicy"
    ]
    training = {"script": "a.py", "files": {"configMap": "code"}}
    assert paths(trainer_findings({"workingDir": "/app"}, training=training), Level.WARNING) == [
        f"{CONTAINER}.workingDir"
    ]


WRONG_SHAPES: list[tuple[Any, str]] = [
    ({"metadata": "a"}, "metadata"),
    ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
    ({"metadata": {"labels": {"a": 1}}}, 'metadata.labels["a"]'),
    ({"metadata": {"annotations": {"a": True}}}, 'metadata.annotations["a"]'),
    ({"spec": []}, "spec"),
    ({"spec": {"containers": {}}}, "spec.containers"),
    ({"spec": {"containers": ["a"]}}, "spec.containers[0]"),
    ({"spec": {"volumes": "a"}}, "spec.volumes"),
    ({"spec": {"volumes": [1]}}, "spec.volumes[0]"),
    ({"spec": {"initContainers": 1}}, "spec.initContainers"),
    ({"spec": {"tolerations": [None]}}, "spec.tolerations[0]"),
    ({"spec": {"topologySpreadConstraints": {}}}, "spec.topologySpreadConstraints"),
    ({"spec": {"terminationGracePeriodSeconds": "30"}}, "spec.terminationGracePeriodSeconds"),
    ({"spec": {"containers": [{"name": 1}]}}, "spec.containers[0].name"),
    ({"spec": {"containers": [{"image": []}]}}, "spec.containers[0].image"),
    ({"spec": {"containers": [{"command": "a"}]}}, "spec.containers[0].command"),
    ({"spec": {"containers": [{"command": [1]}]}}, "spec.containers[0].command"),
    ({"spec": {"containers": [{"env": {}}]}}, "spec.containers[0].env"),
    ({"spec": {"containers": [{"env": ["A=1"]}]}}, "spec.containers[0].env[0]"),
    ({"spec": {"containers": [{"volumeMounts": [1]}]}}, "spec.containers[0].volumeMounts[0]"),
    ({"spec": {"containers": [{"resources": 1}]}}, "spec.containers[0].resources"),
    ({"spec": {"containers": [{"resources": {"limits": []}}]}}, "spec.containers[0].resources.limits"),
    ({"spec": {"containers": [{"resources": {"claims": {}}}]}}, "spec.containers[0].resources.claims"),
]


@pytest.mark.parametrize(("template", "path"), WRONG_SHAPES)
def test_wrong_shapes(template: Any, path: str) -> None:
    assert paths(findings_of(template=template)) == [f"spec.template.{path}"]


def test_everything_is_reported_at_once_and_stays_short() -> None:
    long = "x" * 100_000
    pod: Any = {
        "hostname": long,
        "containers": [
            {"name": "trainer", "image": long, "args": [long], "env": [{"name": f"DEEPSPEED_OPERATOR_{long}"}]}
        ],
    }
    findings = findings_of(pod, metadata={long: 1, "labels": {f"deepspeed-operator.dev/{long}": "1"}}, image="other")
    assert len(paths(findings)) == 6
    assert all(len(str(finding)) < 500 for finding in findings)
