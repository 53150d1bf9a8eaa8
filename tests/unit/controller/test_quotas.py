"""Quotas judge one pod at a time; a gang is summed, as far as it is certain."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from deepspeed_operator.controller import quotas
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.quotas import FORBIDDEN_SECONDS, Quotas, shortfall

GPU = "nvidia.com/gpu"


def quota(used: dict[str, str], hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "team"}, "spec": {"hard": hard, **spec}, "status": {"used": used, "hard": hard}}


def pod(*resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {**spec, "containers": [{"resources": each} for each in resources]}}


TRAINER = {"limits": {GPU: 8, "cpu": "1500m", "memory": "64Gi"}, "requests": {"cpu": 1}}
SIDECAR = {"limits": {"memory": "1Gi"}}


@pytest.mark.parametrize(
    ("resource", "used", "limit"),
    [
        ("pods", "1", "4"),
        ("count/pods", "1", "4"),
        (f"requests.{GPU}", "0", "31"),
        ("requests.cpu", "100m", "4"),
        ("cpu", "100m", "4"),
        ("limits.cpu", "0", "5900m"),
        ("requests.memory", "0", "259Gi"),
        ("limits.memory", "0", "259Gi"),
    ],
)
def test_a_quota_that_has_room_for_some_of_the_pods(resource: str, used: str, limit: str) -> None:
    words = shortfall([quota({resource: used}, {resource: limit})], pod(TRAINER, SIDECAR), 4)
    assert words is not None
    assert words.startswith(f"there is no room for all 4 pods: quota team, {resource}: requested ")
    assert words.endswith(f", used {used}, limited {limit}")


@pytest.mark.parametrize(
    ("resource", "used", "limit"),
    [
        ("pods", "0", "4"),
        (f"requests.{GPU}", "4", "36"),
        ("requests.cpu", "0", "4"),
        ("limits.cpu", "0", "6"),
        ("limits.memory", "0", "260Gi"),
        ("services", "1", "1"),
        ("requests.storage", "1Gi", "1Gi"),
        ("count/configmaps", "9", "9"),
        ("limits.ephemeral-storage", "0", "0"),
    ],
)
def test_a_quota_that_takes_them_all_or_counts_something_else(resource: str, used: str, limit: str) -> None:
    assert shortfall([quota({resource: used}, {resource: limit})], pod(TRAINER, SIDECAR), 4) is None


@pytest.mark.parametrize("scope", [{"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": []}}])
def test_a_quota_for_some_pods_only_is_left_to_the_server(scope: dict[str, Any]) -> None:
    assert shortfall([quota({"pods": "0"}, {"pods": "1"}, **scope)], pod(TRAINER), 4) is None


def test_a_resource_whose_use_is_not_known_yet_refuses_nothing() -> None:
    assert shortfall([quota({}, {"pods": "1"})], pod(TRAINER), 4) is None


def test_what_other_pods_of_the_job_free_is_not_known() -> None:
    given = [quota({"pods": "4"}, {"pods": "4"})]
    assert shortfall(given, pod(TRAINER), 4) is not None
    assert shortfall(given, pod(TRAINER), 4, emptied=True) is None
    words = shortfall(given, pod(TRAINER), 5, emptied=True)
    assert words == "there is no room for all 5 pods: quota team, pods: requested 5, limited 4"


def test_what_a_pod_says_of_itself_counts_instead_of_its_containers() -> None:
    itself = {"limits": {"memory": "65Gi"}}
    given = [quota({"limits.memory": "0"}, {"limits.memory": "260Gi"})]
    assert shortfall(given, pod(TRAINER, TRAINER), 4) is not None
    assert shortfall(given, pod(TRAINER, TRAINER, resources=itself), 4) is None


def test_all_that_is_missing_is_said() -> None:
    hard = {"pods": "2", f"requests.{GPU}": "16"}
    words = shortfall([quota({"pods": "0", f"requests.{GPU}": "0"}, hard)], pod(TRAINER), 4)
    assert words == (
        "there is no room for all 4 pods: quota team, pods: requested 4, used 0, limited 2; "
        f"quota team, requests.{GPU}: requested 32, used 0, limited 16"
    )


def test_a_namespace_whose_quotas_nobody_may_list_is_asked_again_later_and_others_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, asked = [1000.0], list[str]()
    monkeypatch.setattr(quotas.time, "monotonic", lambda: clock[0])

    class Server:
        async def pages(self, _: object, namespace: str, __: object) -> AsyncIterator[dict[str, Any]]:
            asked.append(namespace)
            if namespace == "forbidden":
                raise ApiError(403, "Forbidden", "no right to list quotas")
            yield {"items": [quota({"pods": "1"}, {"pods": "2"})]}

    async def run() -> None:
        known = Quotas(cast("Client", Server()))
        for _ in range(3):
            assert await known.shortfall("forbidden", pod(), 2) is None
        assert await known.shortfall("other", pod(), 2) is not None
        clock[0] += FORBIDDEN_SECONDS
        assert await known.shortfall("forbidden", pod(), 2) is None

    asyncio.run(run())
    assert asked == ["forbidden", "other", "forbidden"]
