"""The chart: what it renders, which values it refuses, and that jobs survive its upgrade and its uninstallation."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.cluster.cluster import Cluster
from dev.cluster.processes import CommandError, run
from tests.e2e.installation import LEASES, NAME, NAMESPACE, Operator
from tests.e2e.kube import Job, Namespace, eventually

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/deepspeed-operator"
GOLDEN = ROOT / "tests/golden/chart"

DIGEST = "sha256:" + "0123456789abcdef" * 4
DEFAULT: dict[str, Any] = {"image": {"repository": "registry.example.com/team/deepspeed-operator"}}
FULL: dict[str, Any] = {
    "image": {"repository": "registry.example.com/team/operator", "digest": DIGEST, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "worker": {"image": "registry.example.com/team/worker:1", "deepspeedVersion": "0.19.8"},
    "fleet": {
        "defaults": {"network": {"profile": "InfiniBand"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
        "limits": {"maxNodes": 16, "networkProfiles": ["InfiniBand"]},
        "namespaces": {"team-a": {"defaults": {"queueName": "team-a", "failurePolicy": {"maxRestarts": 3}}}},
    },
    "replicas": 2,
    "watchNamespaces": ["team-a", "team-b"],
    "readNodes": True,
    "kueue": {"enabled": True},
    "gangs": ["Volcano", "KAI"],
    "api": {"qps": 50, "inFlight": 8},
    "logging": {"format": "plain", "level": "debug"},
    "crds": {"enabled": False},
    "rbac": {"aggregate": False},
    "serviceAccount": {"name": "trainer-of-trainers", "annotations": {"team": "ml"}},
    "metrics": {
        "service": False,
        "podMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prometheus"}},
        "jobLoss": True,
    },
    "admissionPolicy": {"excludedNamespaces": ["kube-system", "team-c"], "hostAccess": "Labelled"},
    "networkPolicy": {"enabled": True, "apiServerPorts": [6443], "jobsIngress": [{"ports": [{"port": 6006}]}]},
    "enabled": True,
    "podSecurityContext": {"runAsUser": None, "runAsGroup": None},
    "securityContext": {"seLinuxOptions": {"level": "s0"}},
    "commonLabels": {"department": "research", "team": "all"},
    "commonAnnotations": {"owner": "platform"},
    "podLabels": {"team": "ml"},
    "podAnnotations": {"note": "yes"},
    "extraArgs": ["--workers=32"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
    "extraEnvFrom": [{"configMapRef": {"name": "proxy", "optional": True}}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca-bundle"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/ours", "readOnly": True}],
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["10.96.0.10"]},
    "livenessProbe": {"timeoutSeconds": 20},
    "readinessProbe": {"periodSeconds": 5},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "apiPriority": {"enabled": True, "concurrencyShares": 50},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "fullnameOverride": "dsj",
}


def template(helm: Path, values: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [helm, "template", "ds", CHART, "-n", "ops", "--kube-version", "1.36.3", "-f", "-", *options],
        input=json.dumps(values), capture_output=True, text=True, check=False,
    )  # fmt: skip


def objects(rendered: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(rendered) if document]


def test_lint_is_clean(helm: Path) -> None:
    command = [helm, "lint", "--strict", CHART, "--set", "image.repository=registry.example.com/x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize(("name", "values"), [("default", DEFAULT), ("full", FULL)])
def test_rendered_objects(helm: Path, name: str, values: dict[str, Any], request: pytest.FixtureRequest) -> None:
    rendered = objects(template(helm, values).stdout)
    kept = [document for document in rendered if document["kind"] != "CustomResourceDefinition"]
    text = "---\n".join(yaml.safe_dump(document, sort_keys=False, width=120) for document in kept)  # pyright: ignore[reportUnknownMemberType]
    golden = GOLDEN / f"{name}.yaml"
    if request.config.getoption("--update-golden"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize(
    ("crds", "annotations"),
    [({}, {"helm.sh/resource-policy": "keep"}), ({"keep": False}, None), ({"enabled": False}, "absent")],
)
def test_crd_is_the_generated_one(helm: Path, crds: dict[str, bool], annotations: object) -> None:
    rendered = objects(template(helm, {**DEFAULT, "crds": crds}).stdout)
    found = [document for document in rendered if document["kind"] == "CustomResourceDefinition"]
    if annotations == "absent":
        assert not found
        return
    (crd,) = found
    assert crd["metadata"].pop("labels")["app.kubernetes.io/managed-by"] == "Helm"
    assert crd["metadata"].pop("annotations", None) == annotations
    assert crd == yaml.safe_load((ROOT / "crds/deepspeedjobs.yaml").read_text())


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "image.repository is required"),
        ({**DEFAULT, "replicaCount": 2}, "replicaCount"),
        ({**DEFAULT, "replicas": "2"}, "/replicas"),
        ({"image": {**DEFAULT["image"], "digest": "0123"}}, "/image/digest"),
        ({"image": {**DEFAULT["image"], "pullpolicy": "Always"}}, "pullpolicy"),
        ({**DEFAULT, "watchNamespaces": "team-a"}, "/watchNamespaces"),
        ({**DEFAULT, "watchNamespaces": ["Team A"]}, "/watchNamespaces/0"),
        ({**DEFAULT, "logging": {"level": "loud"}}, "/logging/level"),
        ({**DEFAULT, "readNodes": "yes"}, "/readNodes"),
        ({**DEFAULT, "api": {"qps": 0}}, "/api/qps"),
        ({**DEFAULT, "worker": {"deepspeedVersion": "latest"}}, "/worker/deepspeedVersion"),
        ({**DEFAULT, "resources": {"cpu": 1}}, "cpu"),
        ({**DEFAULT, "nameOverride": "BadName"}, "/nameOverride"),
        ({**DEFAULT, "fullnameOverride": "has space"}, "/fullnameOverride"),
        ({**DEFAULT, "podLabels": {"app.kubernetes.io/name": "other"}}, "/podLabels"),
        ({**DEFAULT, "commonLabels": {"team": "a b"}}, "/commonLabels/team"),
        ({**DEFAULT, "serviceAccount": {"name": "Trainer"}}, "/serviceAccount/name"),
        ({**DEFAULT, "priorityClassName": "very high"}, "/priorityClassName"),
        ({**DEFAULT, "extraEnv": [{"name": "DEEPSPEED_OPERATOR_QPS", "value": "1"}]}, "/extraEnv/0/name"),
        ({**DEFAULT, "extraVolumes": [{"name": "state"}]}, "/extraVolumes/0/name"),
        ({**DEFAULT, "livenessProbe": {"periodSeconds": 0}}, "/livenessProbe/periodSeconds"),
        ({**DEFAULT, "podDisruptionBudget": {"maxUnavailable": "half"}}, "/podDisruptionBudget/maxUnavailable"),
        ({**DEFAULT, "apiPriority": {"concurrencyShares": 0}}, "/apiPriority/concurrencyShares"),
        ({**DEFAULT, "networkPolicy": {"apiServerPorts": None}}, "apiServerPorts"),
        ({**DEFAULT, "networkPolicy": {"jobsIngress": ["any"]}}, "/networkPolicy/jobsIngress/0"),
        ({**DEFAULT, "admissionPolicy": {"hostAccess": "Never"}}, "/admissionPolicy/hostAccess"),
        ({**DEFAULT, "fleet": {"defaults": {"network": {"profil": "TCP"}}}}, "/fleet/defaults/network"),
        ({**DEFAULT, "fleet": {"limits": {"maxNodes": "16"}}}, "/fleet/limits/maxNodes"),
        ({**DEFAULT, "fleet": {"namespaces": {"Team": {}}}}, "invalid propertyName 'Team'"),
        ({**DEFAULT, "defaultAccelerator": "google.com/tpu"}, "/defaultAccelerator"),
        ({**DEFAULT, "watchNamespaces": ["ops"]}, "the operator's own namespace serves no jobs"),
        ({**DEFAULT, "metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}}, "enable one"),
        ({**DEFAULT, "metrics": {"service": False, "serviceMonitor": {"enabled": True}}}, "needs metrics.service"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Path, values: dict[str, Any], complaint: str) -> None:
    done = template(helm, values)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_a_service_monitor_reads_the_service(helm: Path) -> None:
    labels = {"release": "prometheus"}
    rendered = objects(
        template(helm, {**DEFAULT, "metrics": {"serviceMonitor": {"enabled": True, "labels": labels}}}).stdout
    )
    (monitor,) = (document for document in rendered if document["kind"] == "ServiceMonitor")
    service = next(document for document in rendered if document["kind"] == "Service")
    assert monitor["metadata"]["labels"].items() >= labels.items()
    assert service["metadata"]["labels"].items() >= monitor["spec"]["selector"]["matchLabels"].items()
    assert monitor["spec"]["endpoints"] == [
        {"port": "http", "path": "/metrics", "interval": "30s", "honorLabels": True}
    ]


def test_the_operators_own_namespace_is_always_excluded(helm: Path) -> None:
    values = {**DEFAULT, "admissionPolicy": {"excludedNamespaces": None}, "defaultAccelerator": "nvidia.com/gpu-h100"}
    rendered = objects(template(helm, values).stdout)
    (policy, _) = (document for document in rendered if document["kind"] == "ValidatingAdmissionPolicy")
    assert policy["spec"]["validations"][0]["expression"] == '!(request.namespace in ["ops"])'


def test_policies_of_installs_have_names_apart(helm: Path) -> None:
    def name(release: str, namespace: str) -> str:
        rendered = objects(template(helm, {**DEFAULT, "fullnameOverride": release}, "-n", namespace).stdout)
        return next(each["metadata"]["name"] for each in rendered if each["kind"] == "ValidatingAdmissionPolicy")

    assert name("a" * 50, "b" * 60) != name("a" * 50, "b" * 61)
    assert name("a-b", "c") != name("a", "b-c")


def test_old_kubernetes_is_refused(helm: Path) -> None:
    done = template(helm, DEFAULT, "--kube-version", "1.30.9")
    assert "incompatible with Kubernetes" in done.stderr


# As a subchart's user writes them, and so that every object exists in some of them.
ACCEPTED: list[dict[str, Any]] = [
    DEFAULT,
    {**FULL, "watchNamespaces": ["default"], "metrics": {}},
    {**DEFAULT, "replicas": 3, "rbac": {"create": False, "aggregate": False}, "serviceAccount": {"create": False}},
    {**DEFAULT, "admissionPolicy": {"enabled": False}, "authorPolicy": {"enabled": False}, "readNodes": True},
]


@pytest.mark.parametrize("values", ACCEPTED)
def test_the_api_server_takes_every_object(cluster: Cluster, helm: Path, operator: Operator, values: Any) -> None:
    """Strictly: a field that it does not know is an error, and each policy compiles."""
    rendered = template(helm, values, "-n", NAMESPACE).stdout
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered)


def test_two_installs_do_not_serve_one_namespace(cluster: Cluster, helm: Path, operator: Operator) -> None:
    options = [
        "--namespace=other",
        "-f",
        "-",
        "--take-ownership",
        "--dry-run=server",
        f"--kubeconfig={cluster.kubeconfig}",
    ]
    command = [str(helm), "install", "other", str(CHART), *options]
    for watched in ([], ["default"]):
        values = json.dumps({**DEFAULT, "watchNamespaces": watched})
        with pytest.raises(CommandError, match=rf"the install {NAME}\.{NAMESPACE} \(FULLNAME\.NAMESPACE\) serves"):
            run(command, stdin=values)


def test_operator_runs_where_pod_security_is_restricted(cluster: Cluster, operator: Operator) -> None:
    with pytest.raises(CommandError, match=r'violates PodSecurity "restricted'):
        cluster.kubectl("run", "any", "--image=any", "--dry-run=server", f"--namespace={NAMESPACE}")
    operator.settled()


def test_metrics_are_served_by_the_charts_service(cluster: Cluster, operator: Operator) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}-metrics:http/proxy/metrics"
    operator.leader()
    eventually(lambda: cluster.api.found(path), "metrics", 20)
    served = cluster.api.request("GET", path)
    assert "\ndeepspeed_operator_leader 1.0\n" in served
    assert "\ndeepspeed_operator_queue_depth " in served
    assert '\ndeepspeed_operator_api_writes_total{kind="Lease",verb="update"} ' in served


@pytest.mark.disrupts
def test_jobs_outlive_uninstallation(
    cluster: Cluster, operator: Operator, make_namespace: Callable[..., Namespace]
) -> None:
    served, other = make_namespace("served"), make_namespace("other")
    helm = [str(cluster.bin / "helm"), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}"]
    values = run([*helm, "get", "values", NAME, "-o", "json"])
    served.apply(refused_job("early"))
    judged = served.wait("early", is_refused)
    try:
        run([*helm, "uninstall", NAME, "--wait"], timeout=120)
        assert served.job("early").body == judged.body
        eventually(lambda: not operator.pods(), "the operator's pods are gone", 60)
        assert cluster.api.request("GET", LEASES)["items"] == []

        served.apply(refused_job("late"))
        other.apply(refused_job("late"))
        some = ["--set-json", f'watchNamespaces=["{served.name}"]', "--wait", "--timeout=120s"]
        run([*helm, "install", NAME, str(CHART), "-f", "-", *some], stdin=values, timeout=150)
        served.wait("late", is_refused)
        assert not other.job("late").status, "a namespace that is not watched is left alone"
    finally:
        operator.install()
    operator.settled()
    other.wait("late", is_refused)


def refused_job(name: str) -> dict[str, Any]:
    """Return a job that is judged without a pod: the operator's life can be seen by it."""
    documents = yaml.safe_load_all((ROOT / "examples/article.yaml").read_text())
    (job,) = (document for document in documents if document)
    return {**job, "metadata": {"name": name}}


def is_refused(job: Job) -> bool:
    return job.condition("Accepted").get("status") == "False"
