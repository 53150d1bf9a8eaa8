"""The pod's security: what the worker image does without, and where a read-only root puts temporary files."""

from typing import Any

import pytest

from tests.unit.render.test_attempt import attempt_of, trainer_of_pod

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def context(container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **fields: Any) -> Any:
    """The rendered trainer's securityContext, of a template with these."""
    template = {"spec": {"containers": [{"name": "trainer", "securityContext": container or {}}]}}
    if pod is not None:
        template["spec"]["securityContext"] = pod  # type: ignore[assignment]
    return trainer_of_pod(attempt_of(template, **fields)).get("securityContext")


def test_the_worker_image_is_admitted_where_pods_are_restricted() -> None:
    assert trainer_of_pod(attempt_of())["securityContext"] == RESTRICTED
    assert context({"readOnlyRootFilesystem": True}) == {"readOnlyRootFilesystem": True, **RESTRICTED}


def test_another_image_may_need_what_is_not_said() -> None:
    assert not context(image="registry.example.com/llm:1")


@pytest.mark.parametrize(
    ("container", "pod"),
    [
        ({"privileged": True}, None),
        ({"capabilities": {"add": ["IPC_LOCK"]}}, None),
        ({"runAsUser": 0}, None),
        ({}, {"runAsUser": 0}),
        ({}, {"runAsNonRoot": False}),
    ],
)
def test_who_asks_for_more_gets_it(container: dict[str, Any], pod: dict[str, Any] | None) -> None:
    assert context(container, pod) == container


def test_what_the_pod_says_is_not_said_again() -> None:
    given = {"runAsUser": 1000680000, "runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}}
    assert context(pod=given) == {name: RESTRICTED[name] for name in ("allowPrivilegeEscalation", "capabilities")}


@pytest.mark.parametrize(
    ("read_only", "mounts", "expected"),
    [(True, [], True), (True, [{"name": "mine", "mountPath": "/tmp/"}], False), (False, [], False)],
)
def test_a_read_only_root_has_a_temporary_directory(read_only: bool, mounts: list[Any], expected: bool) -> None:
    trainer = {"name": "trainer", "securityContext": {"readOnlyRootFilesystem": read_only}, "volumeMounts": mounts}
    pod = attempt_of({"spec": {"containers": [trainer]}}).pod(0)["spec"]
    volume: dict[str, Any] = {"name": "deepspeed-operator-tmp", "emptyDir": {}}
    mount = {"name": "deepspeed-operator-tmp", "mountPath": "/tmp"}
    assert (volume in pod["volumes"], mount in pod["containers"][0]["volumeMounts"]) == (expected, expected)
