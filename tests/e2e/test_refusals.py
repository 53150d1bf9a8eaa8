"""What cannot run is refused in words, with nothing created, and heals where its cause can."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.e2e.jobs import NO_GPU, job, ranks, script
from tests.e2e.kube import Job, Json, Namespace

ARTICLE = Path(__file__).parents[2] / "examples" / "article.yaml"
GOOD_CONFIG = {"train_micro_batch_size_per_gpu": 1}


@pytest.fixture(scope="module")
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("refusals")
    made.config_map("rank", script("rank.py"))
    return made


def refused(job: Job) -> bool:
    return job.condition("Accepted").get("status") == "False"


def from_config_map(name: str, plain: str) -> Json:
    made = ranks(name, plain)
    made["spec"]["dsConfigFrom"] = {"configMap": name, "key": "ds.json"}
    return made


def test_the_article_is_refused_with_the_arithmetic(make_namespace: Callable[..., Namespace]) -> None:
    namespace = make_namespace("article")
    namespace.apply(yaml.safe_load(ARTICLE.read_text()))
    job = namespace.wait("article", refused, 20)
    message = job.message("Accepted")
    assert job.reason("Accepted") == "InvalidDeepSpeedConfig"
    assert "32 ≠ 4 × 8 × 2" in message
    assert "64" in message
    assert "gradient_accumulation_steps" in message
    assert namespace.children() == {}
    told = namespace.told("article", "InvalidDeepSpeedConfig")
    assert any("32 ≠ 4 × 8 × 2" in event["message"] for event in told if event["type"] == "Warning"), told


def test_all_errors_come_at_once_each_with_its_path(make_namespace: Callable[..., Namespace], plain: str) -> None:
    namespace = make_namespace("errors")
    pod = {
        "restartPolicy": "Always",
        "hostname": "mine",
        "volumes": [{"name": "deepspeed-operator-job", "hostPath": {"path": "/mnt"}}],
    }
    config = {"train_batch_size": 3, "train_micro_batch_size_per_gpu": 2}
    namespace.apply(job("many", plain, training={"script": "x.py"}, pod=pod, dsConfig=config))
    message = namespace.wait("many", refused, 20).message("Accepted")
    paths = ("restartPolicy", "hostname", "volumes[0]")
    assert all(f"spec.template.spec.{path}" in message for path in paths), message
    assert "spec.dsConfig.train_batch_size" in message
    assert namespace.children() == {}


def test_a_missing_or_malformed_configuration_is_named_and_heals(namespace: Namespace, plain: str) -> None:
    namespace.config_map("malformed", {"ds.json": '{\n  "train_batch_size": 2,,\n}'})
    namespace.apply(from_config_map("missing", plain), from_config_map("malformed", plain))
    missing, malformed = namespace.wait("missing", refused, 20), namespace.wait("malformed", refused, 20)
    assert missing.reason("Accepted") == "ConfigNotFound"
    assert f"there is no ConfigMap missing in namespace {namespace.name}" in missing.message("Accepted")
    assert "with key ds.json" in missing.message("Accepted")
    assert "ConfigMap malformed, key ds.json" in malformed.message("Accepted")
    assert "line 2" in malformed.message("Accepted")
    assert namespace.pods() == []

    namespace.config_map("malformed", {"ds.json": json.dumps(GOOD_CONFIG)})
    namespace.config_map("missing", {"other.json": json.dumps(GOOD_CONFIG)})
    assert "ds.json" in namespace.wait("missing", lambda job: job.says("other.json"), 30).message("Accepted")
    namespace.config_map("missing", {"ds.json": json.dumps(GOOD_CONFIG)})
    namespace.completed("missing")
    namespace.completed("malformed")


def test_a_template_that_the_server_rejects_leaves_nothing(
    make_namespace: Callable[..., Namespace], plain: str
) -> None:
    namespace = make_namespace("template")
    trainer = {"resources": NO_GPU, "volumeMounts": [{"name": "absent", "mountPath": "/data"}]}
    namespace.apply(job("rejected", plain, training={"module": "this"}, trainer=trainer))
    job_ = namespace.wait("rejected", refused, 20)
    assert job_.reason("Accepted") == "TemplateRejected"
    assert 'volumeMounts[0].name: Not found: "absent"' in job_.message("Accepted")
    assert namespace.children() == {}


def test_pod_security_refuses_in_its_own_words(make_namespace: Callable[..., Namespace], plain: str) -> None:
    namespace = make_namespace("restricted", **{"pod-security.kubernetes.io/enforce": "restricted"})
    namespace.config_map("rank", script("rank.py"))
    namespace.apply(ranks("insecure", plain))
    job = namespace.wait("insecure", refused, 20)
    assert 'violates PodSecurity "restricted:latest"' in job.message("Accepted")
    assert namespace.children() == {"configmaps": ["rank"]}


def test_a_quota_lets_no_half_gang_begin_and_heals(make_namespace: Callable[..., Namespace], plain: str) -> None:
    namespace = make_namespace("quota")
    namespace.config_map("rank", script("rank.py"))
    limit = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": {"hard": {"pods": "2"}}}
    namespace.apply(limit)
    namespace.wait_for_quota("pods")
    namespace.apply(ranks("large", plain, nodes=3))
    job = namespace.wait("large", lambda job: job.reason("Ready") == "PodsRefused", 20)
    assert (job.holds("Accepted"), job.holds("Reconciling"), job.holds("Stalled")) == (True, True, False)
    assert job.says("there is no room for all 3 pods: quota pods, pods: requested 3, used 0, limited 2")
    assert namespace.pods("large") == []
    namespace.cluster.kubectl("delete", "-n", namespace.name, "resourcequota", "pods")
    namespace.completed("large")


def test_a_service_of_another_owner_is_a_name_conflict(namespace: Namespace, plain: str) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"ports": [{"port": 80}]}}
    namespace.apply(service)
    namespace.apply(ranks("taken", plain))
    job = namespace.wait("taken", refused, 20)
    assert job.reason("Accepted") == "NameConflict"
    assert namespace.pods("taken") == []
