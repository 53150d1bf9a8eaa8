"""A real API server takes the pods of every network profile, in a namespace of the Pod Security level that it needs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.job.fabric.profile import profile
from dev.cluster.api import ApiError
from tests.e2e.kube import Namespace

GOLDEN = {path.stem: path for path in (Path(__file__).parents[1] / "golden").glob("network-*.yaml")}
# `baseline` is what separates the profiles: `restricted` asks for things that only the template can bring.
ENFORCED = {"pod-security.kubernetes.io/enforce": "baseline"}


@pytest.fixture(scope="module")
def namespaces(make_namespace: Callable[..., Namespace]) -> tuple[Namespace, Namespace]:
    """One without Pod Security, one of level baseline."""
    return make_namespace("fabrics"), make_namespace("baseline", **ENFORCED)


def tried(namespace: Namespace, pod: Any) -> str:
    """The server's refusal of a pod, by a dry run; empty if it takes the pod."""
    pod = {**pod, "metadata": {**pod["metadata"], "namespace": namespace.name}}
    path = namespace.path("pods") + "?dryRun=All&fieldValidation=Strict"
    try:
        namespace.cluster.api.request("POST", path, pod)
    except ApiError as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_pods_of_a_profile_are_taken_where_its_pod_security_level_is(
    namespaces: tuple[Namespace, Namespace], name: str
) -> None:
    free, baseline = namespaces
    written, *objects = list(yaml.safe_load_all(GOLDEN[name].read_text()))
    pod = next(each for each in objects if each["kind"] == "Pod")
    assert tried(free, pod) == ""
    level = profile(NetworkProfile(written["spec"]["network"]["profile"])).pod_security
    refusal = tried(baseline, pod)
    assert ("violates PodSecurity" in refusal) == (level == "privileged"), refusal
