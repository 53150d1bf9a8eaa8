"""Who may do what: the operator by its roles, users by those that the chart adds to, authors of jobs by its policy."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN, GROUP
from dev.cluster.cluster import Cluster
from dev.cluster.processes import CommandError
from tests.e2e.installation import NAME, NAMESPACE, Operator
from tests.e2e.kube import Namespace, eventually
from tests.e2e.test_chart import refused_job

GROUP_OF_RBAC = "rbac.authorization.k8s.io"
RBAC = {"apiVersion": f"{GROUP_OF_RBAC}/v1"}


@pytest.mark.parametrize(
    ("rights", "account", "refusal"),
    [
        ("create,get pods", "default", ""),
        ("get pods", "default", "author may not create pods in namespace"),
        ("create pods", "other", "author may not run pods as service account other"),
        ("create pods", "by its old name", "author may not run pods as service account old"),
        ("create pods; use serviceaccounts/other", "other", ""),
        ("create pods; impersonate serviceaccounts", "other", ""),
    ],
)
def test_nobody_runs_pods_through_the_operator_who_may_not_run_them(
    make_namespace: Callable[..., Namespace], rights: str, account: str, refusal: str
) -> None:
    namespace = make_namespace("authors")
    rules: list[dict[str, Any]] = [{"apiGroups": [GROUP], "resources": ["deepspeedjobs"], "verbs": ["create", "get"]}]
    for right in rights.split("; "):
        verbs, resource = right.split()
        kind, _, name = resource.partition("/")
        named = {"resourceNames": [name]} if name else {}
        rules.append({"apiGroups": [""], "resources": [kind], "verbs": verbs.split(","), **named})
    grant(namespace, rules)
    job = refused_job("a")
    old = {"serviceAccount": "old", "serviceAccountName": ""}
    job["spec"]["template"] = {"spec": old if account == "by its old name" else {"serviceAccountName": account}}
    # The API server learns of new roles a little later.
    told = refusal or "created"
    eventually(lambda: told in by_author(namespace, "create", "-f", "-", stdin=json.dumps(job)), "the answer", 20)


def grant(namespace: Namespace, rules: list[dict[str, Any]]) -> None:
    namespace.apply(
        {**RBAC, "kind": "Role", "metadata": {"name": "author"}, "rules": rules},
        {
            **RBAC, "kind": "RoleBinding", "metadata": {"name": "author"},
            "roleRef": {"apiGroup": GROUP_OF_RBAC, "kind": "Role", "name": "author"},
            "subjects": [{"apiGroup": GROUP_OF_RBAC, "kind": "User", "name": "author"}],
        },
    )  # fmt: skip


def by_author(namespace: Namespace, *command: str, stdin: str | None = None) -> str:
    """What the API server says to the author, without doing it."""
    tried = ["--as=author", "--dry-run=server", f"--namespace={namespace.name}"]
    try:
        return namespace.cluster.kubectl(*command, *tried, stdin=stdin)
    except CommandError as error:
        return str(error)


def test_a_restored_job_is_let_run_by_those_only_who_may_run_pods(make_namespace: Callable[..., Namespace]) -> None:
    namespace = make_namespace("restorers")
    grant(namespace, [{"apiGroups": [GROUP], "resources": ["deepspeedjobs"], "verbs": ["get", "patch"]}])
    job = refused_job("a")
    job["metadata"]["annotations"] = {ANNOTATION_ENDED_RUN: "{}"}
    namespace.apply(job)
    eventually(lambda: "labeled" in by_author(namespace, "label", "dsj", "a", "team=a"), "who may write the job", 20)
    told = by_author(namespace, "annotate", "dsj", "a", f"{ANNOTATION_ENDED_RUN}-")
    assert "author may not create pods in namespace" in told


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("create pods", "yes"),
        ("delete pods", "yes"),
        ("update deepspeedjobs/status", "yes"),
        ("update deepspeedjobs", "no"),
        ("patch deepspeedjobs", "yes"),
        ("create deepspeedjobs", "no"),
        ("delete deepspeedjobs", "no"),
        ("update pods", "no"),
        ("patch pods", "no"),
        ("create pods/exec", "no"),
        ("create secrets", "yes"),
        ("get secrets", "no"),
        ("list secrets", "no"),
        ("watch secrets", "no"),
        ("update secrets", "no"),
        ("list configmaps", "no"),
        ("list resourcequotas", "yes"),
        ("get nodes", "no"),
        ("list nodes", "no"),
        ("list namespaces", "no"),
        ("create serviceaccounts/token", "no"),
        ("create leases.coordination.k8s.io", "no"),
        ("list networkpolicies", "no"),
    ],
)
def test_operator_may_do_what_it_needs(cluster: Cluster, operator: Operator, question: str, answer: str) -> None:
    assert may(cluster, f"system:serviceaccount:{NAMESPACE}:{NAME}", question, "default") == answer


@pytest.mark.parametrize(
    ("role", "question", "answer"),
    [
        ("edit", "create deepspeedjobs", "yes"),
        ("edit", "patch deepspeedjobs", "yes"),
        ("edit", "delete deepspeedjobs", "yes"),
        ("edit", "update deepspeedjobs/status", "no"),
        ("view", "get deepspeedjobs", "yes"),
        ("view", "create deepspeedjobs", "no"),
        ("view", "get secrets", "no"),
    ],
)
def test_who_may_edit_a_namespace_may_run_jobs_in_it(
    cluster: Cluster, members: Namespace, role: str, question: str, answer: str
) -> None:
    assert may(cluster, f"has-{role}", question, members.name) == answer
    assert may(cluster, f"has-{role}", question, "default") == "no"


@pytest.fixture(scope="module")
def members(cluster: Cluster, make_namespace: Callable[..., Namespace]) -> Namespace:
    """A namespace with users that Kubernetes' own roles are bound to."""
    namespace = make_namespace("members")
    for role in ("edit", "view"):
        binding = [role, f"--clusterrole={role}", f"--user=has-{role}", f"--namespace={namespace.name}"]
        cluster.kubectl("create", "rolebinding", *binding)

    def known() -> bool:
        """The chart's roles are added to Kubernetes' own by a controller."""
        answers = [may(cluster, f"has-{role}", "list deepspeedjobs", namespace.name) for role in ("edit", "view")]
        return answers == ["yes", "yes"]

    eventually(known, "roles that may list jobs", 20)
    return namespace


def may(cluster: Cluster, user: str, question: str, namespace: str) -> str:
    """The API server's answer to `kubectl auth can-i VERB KIND[/SUBRESOURCE]`: yes or no."""
    verb, resource = question.split()
    kind, _, subresource = resource.partition("/")
    command = ["kubectl", f"--kubeconfig={cluster.kubeconfig}", "auth", "can-i", verb, kind, f"--namespace={namespace}"]
    options = [f"--subresource={subresource}", f"--as={user}"]
    done = subprocess.run(
        [*command, *options], executable=cluster.bin / "kubectl", capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
