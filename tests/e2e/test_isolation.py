"""What the operator's account can do when it is stolen, and who may connect to a job's pods."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN
from dev.cluster.cluster import Cluster
from dev.cluster.processes import CommandError
from tests.e2e.installation import NAME, NAMESPACE, Operator, now
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import Json, Namespace, eventually

AS_OPERATOR = f"--as=system:serviceaccount:{NAMESPACE}:{NAME}"
POLICY = "deepspeed-operator-jobs"


OWNER = {"apiVersion": "deepspeed-operator.dev/v1alpha1", "kind": "DeepSpeedJob", "name": "any", "uid": "1-2-3"}


def forged(kind: str, name: str = "stranger", **content: Json | str) -> Json:
    """Return an object that claims a job as its owner."""
    groups = {"EndpointSlice": "discovery", "NetworkPolicy": "networking", "Lease": "coordination"}
    group = f"{groups[kind]}.k8s.io/v1" if kind in groups else "v1"
    metadata: Json = {"name": name, "labels": {"app.kubernetes.io/managed-by": NAME}, "ownerReferences": [OWNER]}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, **content}


def pod(owner: str | None, managed_by: str = NAME, **spec: Any) -> str:
    body = forged("Pod", spec={"containers": [{"name": "main", "image": "none"}], **spec})
    body["metadata"]["labels"] = {"app.kubernetes.io/managed-by": managed_by}
    body["metadata"]["ownerReferences"] = [] if owner is None else [{**OWNER, "kind": owner}]
    return json.dumps(body)


def refusal(cluster: Cluster, *arguments: str, stdin: str | None = None) -> str:
    """Return why the API server refuses this to the operator's account; empty if it does not."""
    try:
        cluster.kubectl(AS_OPERATOR, *arguments, stdin=stdin)
    except CommandError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("namespace", "manifest", "words"),
    [
        ("default", pod("DeepSpeedJob"), ""),
        ("default", pod(None), "objects that a DeepSpeedJob owns only"),
        ("default", pod("ReplicaSet"), "objects that a DeepSpeedJob owns only"),
        ("default", pod("DeepSpeedJob", managed_by="Helm"), "managed-by: deepspeed-operator only"),
        ("kube-system", pod("DeepSpeedJob"), "serves no DeepSpeedJobs in this namespace"),
        ("default", pod("DeepSpeedJob", hostNetwork=True), ""),
    ],
)
def test_the_operators_account_makes_pods_of_jobs_only(
    cluster: Cluster, operator: Operator, namespace: str, manifest: str, words: str
) -> None:
    create = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    found = refusal(cluster, *create, stdin=manifest)
    assert words in found if words else found == "", found
    # The policy is about the operator's account alone.
    cluster.kubectl(*create, stdin=manifest)


def test_the_operators_account_makes_no_pod_beside_its_key(cluster: Cluster, operator: Operator) -> None:
    create = ("create", "--dry-run=server", "-n", NAMESPACE, "-f", "-")
    # As Pod Security wants it there.
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    beside = pod("DeepSpeedJob", containers=[{"name": "main", "image": "none", "securityContext": restricted}])
    for manifest in (beside, json.dumps(forged("Lease")), json.dumps(forged("Secret", type="Opaque"))):
        assert "serves no DeepSpeedJobs in this namespace" in refusal(cluster, *create, stdin=manifest)
    assert "already exists" in refusal(cluster, *create, stdin=json.dumps(forged("Lease", NAME)))


def event(namespace: str, kind: str) -> Json:
    about = {"apiVersion": OWNER["apiVersion"], "kind": kind, "namespace": namespace, "name": "any"}
    return forged("Event", involvedObject=about, reason="Any", message="any", type="Normal")


JOBS: Json = {"matchLabels": {"app.kubernetes.io/managed-by": NAME}}
SLICE: Json = {"addressType": "IPv4", "endpoints": []}


@pytest.mark.parametrize(
    ("namespace", "manifest", "words"),
    [
        ("default", forged("Secret", type="Opaque"), ""),
        ("default", forged("Secret", type="kubernetes.io/dockercfg", data={".dockercfg": "e30="}), "type Opaque only"),
        ("default", forged("Service", spec={"clusterIP": "None"}), ""),
        ("default", forged("Service", spec={"ports": [{"port": 80}]}), "headless Services"),
        ("default", forged("Service", spec={"clusterIP": "None", "selector": {"a": "b"}}), "headless Services"),
        ("default", forged("Service", spec={"clusterIP": "None", "externalIPs": ["192.0.2.1"]}), "headless Services"),
        ("default", forged("EndpointSlice", **SLICE), "EndpointSlices of headless Services only"),
        ("default", forged("NetworkPolicy", POLICY, spec={"podSelector": JOBS}), ""),
        ("default", forged("NetworkPolicy", POLICY, spec={"podSelector": {}}), "of the pods of jobs, only"),
        ("default", forged("NetworkPolicy", "other", spec={"podSelector": JOBS}), "of the pods of jobs, only"),
        ("default", event("default", "DeepSpeedJob"), ""),
        ("default", event("default", "Pod"), "events about DeepSpeedJobs only"),
        ("kube-system", event("kube-system", "DeepSpeedJob"), "serves no DeepSpeedJobs in this namespace"),
    ],
)
def test_the_operators_account_makes_of_each_kind_what_jobs_need(
    cluster: Cluster, operator: Operator, namespace: str, manifest: Json, words: str
) -> None:
    found = refusal(cluster, "create", "--dry-run=server", "-n", namespace, "-f", "-", stdin=json.dumps(manifest))
    admitted = not found or "already exists" in found  # which is judged last
    assert words in found if words else admitted, found


@pytest.mark.parametrize(
    ("patch", "refused"),
    [
        ({"metadata": {"annotations": {ANNOTATION_ENDED_RUN: "any"}}}, False),
        ({"metadata": {"annotations": {ANNOTATION_ENDED_RUN: None}}}, False),
        ({"metadata": {"annotations": {"theirs": "changed"}}}, True),
        ({"metadata": {"annotations": {"theirs": None, ANNOTATION_ENDED_RUN: "any"}}}, True),
        ({"metadata": {"annotations": {"another": "any"}}}, True),
        ({"metadata": {"labels": {"theirs": "changed"}}}, True),
        ({"metadata": {"finalizers": ["tests.dev/hold"]}}, True),
        ({"metadata": {"ownerReferences": [{**OWNER, "apiVersion": "v1", "kind": "ConfigMap"}]}}, True),
        ({"spec": {"suspend": False}}, True),
        ({"spec": {"template": {"spec": {"hostNetwork": True}}}}, True),
    ],
)
def test_the_operators_account_writes_of_a_job_one_annotation_only(
    cluster: Cluster, owned: Namespace, patch: Json, refused: bool
) -> None:
    command = ("patch", "--dry-run=server", "--type=merge", "-n", owned.name, "deepspeedjob", "theirs")
    found = refusal(cluster, *command, "-p", json.dumps(patch))
    assert ("operator writes the annotation" in found) if refused else found == "", found


@pytest.fixture(scope="module")
def owned(make_namespace: Callable[..., Namespace], operator: Operator) -> Namespace:
    """A namespace with a suspended job that has an annotation and a label of somebody else's."""
    namespace = make_namespace("owned")
    job = ranks("theirs", "registry.local/none:1", suspend=True)
    theirs = {"labels": {"theirs": "kept"}, "annotations": {"theirs": "kept", ANNOTATION_ENDED_RUN: "of before"}}
    namespace.apply({**job, "metadata": {**job["metadata"], **theirs}})
    return namespace


@pytest.mark.disrupts
def test_host_access_may_need_a_label_of_the_namespace(
    make_namespace: Callable[..., Namespace], cluster: Cluster, operator: Operator
) -> None:
    plain = make_namespace("plain")
    labelled = make_namespace("labelled", **{"deepspeed-operator.dev/host-access": "allowed"})
    privileged = {"name": "main", "image": "none", "securityContext": {"privileged": True}}
    pods = [
        pod("DeepSpeedJob", hostNetwork=True),
        pod("DeepSpeedJob", hostPID=True),
        pod("DeepSpeedJob", volumes=[{"name": "host", "hostPath": {"path": "/"}}]),
        pod("DeepSpeedJob", initContainers=[{**privileged, "name": "first"}]),
        pod("DeepSpeedJob", containers=[privileged]),
    ]
    operator.install("admissionPolicy.hostAccess=Labelled")
    try:
        eventually(lambda: refusal(cluster, *_tried_in(plain), stdin=pods[0]), "the policy to be in force", 20)
        for each in pods:
            assert "with the label deepspeed-operator.dev/host-access" in refusal(
                cluster, *_tried_in(plain), stdin=each
            )
            assert refusal(cluster, *_tried_in(labelled), stdin=each) == ""
        assert refusal(cluster, *_tried_in(plain), stdin=pod("DeepSpeedJob")) == ""
    finally:
        operator.install()


def _tried_in(namespace: Namespace) -> tuple[str, ...]:
    return "create", "--dry-run=server", "-n", namespace.name, "-f", "-"


def test_a_job_in_an_excluded_namespace_says_whom_to_ask(cluster: Cluster, operator: Operator, plain: str) -> None:
    excluded = Namespace(cluster, "kube-public")
    excluded.config_map("rank", script("rank.py"))
    excluded.apply(ranks("excluded", plain, nodes=1))
    try:
        job = excluded.wait("excluded", lambda job: job.reason("Accepted") == "PodsRefused", 20)
        assert "serves no DeepSpeedJobs in this namespace" in job.message("Accepted")
        assert "Do as that policy says, or ask the administrator" in job.message("Accepted")
    finally:
        excluded.delete("excluded")
        cluster.kubectl("delete", "-n", excluded.name, "configmap", "rank")


def test_the_operators_account_deletes_nothing_of_others(
    make_namespace: Callable[..., Namespace], cluster: Cluster, operator: Operator
) -> None:
    namespace = make_namespace("foreign")
    namespace.config_map("precious", {"key": "value"})
    delete = ("delete", "--dry-run=server", "-n", namespace.name, "configmap", "precious")
    assert "managed-by: deepspeed-operator only" in refusal(cluster, *delete)


def test_a_deletion_on_trial_shows_the_operators_account_no_secret(
    make_namespace: Callable[..., Namespace], cluster: Cluster, operator: Operator
) -> None:
    """RBAC's right to delete is a right to read: in the foreground the answer to a deletion is the object."""
    namespace = make_namespace("hidden")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}, "stringData": {"a": "b"}}
    namespace.apply(secret)
    trial = f"{namespace.path('secrets', 'theirs')}?dryRun=All&propagationPolicy=Foreground"
    assert '"data"' in cluster.kubectl("delete", "--raw", trial)
    assert "managed-by: deepspeed-operator only" in refusal(cluster, "delete", "--raw", trial)


@pytest.mark.disrupts
def test_a_namespace_with_jobs_has_one_policy_as_this_install_has_it(
    make_namespace: Callable[..., Namespace], cluster: Cluster, operator: Operator, plain: str
) -> None:
    namespace = make_namespace("isolated")
    namespace.config_map("rank", script("rank.py"))
    since = now()

    def policy() -> Json:
        path = f"/apis/networking.k8s.io/v1/namespaces/{namespace.name}/networkpolicies/{POLICY}"
        return cluster.api.request("GET", path)

    namespace.apply(ranks("first", plain, nodes=1))
    namespace.completed("first", 60)
    spec = policy()["spec"]
    assert spec["podSelector"] == JOBS
    assert spec["ingress"][0] == {"from": [{"podSelector": JOBS}]}
    namespace.apply(ranks("second", plain, nodes=1))
    namespace.completed("second", 60)
    writes = [event for event in operator.writes(since, namespace.name) if event.resource == "networkpolicies"]
    assert [(event.verb, event.name) for event in writes] == [("create", POLICY)]
    # Such as a release before has made it.
    patch = '{"metadata": {"labels": {"theirs": "kept"}}, "spec": {"ingress": [{}]}}'
    cluster.kubectl("patch", "-n", namespace.name, "networkpolicy", POLICY, "--type=merge", "-p", patch)
    operator.kill()
    namespace.apply(ranks("third", plain, nodes=1))
    namespace.completed("third", 60)
    assert policy()["spec"] == spec
    assert policy()["metadata"]["labels"]["theirs"] == "kept"
