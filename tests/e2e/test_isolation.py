"""What the operator's account can do when it is stolen, and who may connect to a job's pods."""

import json
from collections.abc import Callable

import pytest

from dev.cluster.cluster import Cluster
from dev.cluster.processes import CommandError
from tests.e2e.installation import NAME, NAMESPACE, Operator, now
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import Json, Namespace

AS_OPERATOR = f"--as=system:serviceaccount:{NAMESPACE}:{NAME}"
POLICY = "deepspeed-operator-jobs"


def pod(owner: str | None, managed_by: str = NAME) -> str:
    metadata: Json = {"name": "stranger", "labels": {"app.kubernetes.io/managed-by": managed_by}}
    if owner is not None:
        reference = {"apiVersion": "deepspeed-operator.dev/v1alpha1", "kind": owner, "name": "any", "uid": "1-2-3"}
        metadata["ownerReferences"] = [reference]
    container = {"name": "main", "image": "none"}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})


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


def test_a_namespace_with_jobs_has_one_policy_which_its_owner_may_change(
    make_namespace: Callable[..., Namespace], cluster: Cluster, operator: Operator, plain: str
) -> None:
    namespace = make_namespace("isolated")
    namespace.config_map("rank", script("rank.py"))
    since = now()
    for name in ("first", "second"):
        namespace.apply(ranks(name, plain, nodes=1))
        namespace.completed(name, 60)
        writes = [event for event in operator.writes(since, namespace.name) if event.resource == "networkpolicies"]
        assert [(event.verb, event.name) for event in writes] == [("create", POLICY)]
        # Whoever owns the namespace opens what they need.
        patch = '{"spec": {"ingress": [{}]}}'
        cluster.kubectl("patch", "-n", namespace.name, "networkpolicy", POLICY, "--type=merge", "-p", patch)
    kept = json.loads(cluster.kubectl("get", "-n", namespace.name, "networkpolicy", POLICY, "-o", "json"))
    assert kept["spec"]["ingress"] == [{}]
    assert kept["spec"]["podSelector"] == {"matchLabels": {"app.kubernetes.io/managed-by": NAME}}
