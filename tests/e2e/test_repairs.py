"""What somebody deletes while a job starts is made again, and what its pods lack is said before the deadline."""

from collections.abc import Callable
from datetime import datetime

import pytest

from tests.e2e.jobs import ranks, script
from tests.e2e.kube import Namespace, eventually

KNOWN_WITHIN_SECONDS = 30
MADE_AGAIN_WITHIN_SECONDS = 45
SLOW_ENTRYPOINT = {"command": ["sh", "-c", 'sleep 35; exec "$@"', "entrypoint"]}


@pytest.fixture
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("repairs")
    made.config_map("rank", script("rank.py"))
    return made


def delete(namespace: Namespace, *children: tuple[str, str]) -> None:
    for kind, name in children:
        namespace.cluster.kubectl("delete", "-n", namespace.name, kind, name, "--wait=true")


def test_a_secret_that_is_missing_is_named_and_what_is_deleted_meanwhile_is_made_again(
    namespace: Namespace, plain: str
) -> None:
    mounted = {"volumeMounts": [{"name": "token", "mountPath": "/token"}]}
    volumes = [{"name": "token", "secret": {"secretName": "token"}}]
    namespace.apply(ranks("late", plain, trainer=mounted, pod={"volumes": volumes}))
    waiting = namespace.wait("late", lambda job: job.reason("Ready") == "VolumesNotReady", 60)
    assert waiting.says("Secret token")
    known, said = (
        min(datetime.fromisoformat(each.get("eventTime") or each["firstTimestamp"]) for each in found)
        for found in (namespace.told("late-1-0", "FailedMount"), namespace.told("late", "VolumesNotReady"))
    )
    assert (said - known).total_seconds() < KNOWN_WITHIN_SECONDS
    content = next(name for name in namespace.children()["configmaps"] if name.startswith("late-1-"))
    delete(namespace, ("configmap", content), ("secret", content), ("service", "late"))

    def made_again() -> bool:
        children = namespace.children()
        made = content in children["configmaps"] and content in children.get("secrets", [])
        return made and children.get("services") == ["late"]

    eventually(made_again, lambda: f"children: {namespace.children()}", MADE_AGAIN_WITHIN_SECONDS)
    namespace.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"a": "b"}})
    namespace.completed("late", 180)  # the kubelet tries to mount again after up to two minutes


def test_names_resolve_again_though_their_service_was_deleted_before_the_agents_asked(
    namespace: Namespace, plain: str
) -> None:
    namespace.apply(ranks("nameless", plain, trainer=SLOW_ENTRYPOINT))
    slices = namespace.path("endpointslices", "nameless")

    def published() -> bool:
        return namespace.cluster.api.found(slices) and all(
            pod["status"]["phase"] == "Running" for pod in namespace.pods("nameless")
        )

    eventually(published, lambda: namespace.report("nameless"), 30)
    delete(namespace, ("service", "nameless"), ("endpointslice", "nameless"))
    done = namespace.completed("nameless", 120)
    assert done.attempt == 1
    assert namespace.cluster.api.found(slices)


def test_a_claim_that_is_missing_is_named(namespace: Namespace, plain: str) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "absent"}}
    namespace.apply(ranks("claim", plain, pod={"volumes": [volume]}))
    said = namespace.wait("claim", lambda job: job.reason("Ready") == "Unschedulable", KNOWN_WITHIN_SECONDS)
    assert said.says('persistentvolumeclaim "absent" not found')
    assert said.says("create or correct it")
