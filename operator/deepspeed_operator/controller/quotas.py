"""Whether the namespace's quotas have room for all pods of a gang: the API server itself judges one pod at a time.

What is not certain counts nothing: a quota with scopes, init containers, a resource whose use is not known yet. The
server's own refusal on the way is handled as well.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Final, cast
from weakref import WeakValueDictionary

from kubernetes.utils.quantity import parse_quantity  # pyright: ignore[reportUnknownVariableType]

from deepspeed_operator.api.untyped import object_at, objects_at
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import QUOTAS, Json

# Long enough for the jobs of a sweep, which are applied within seconds.
SHARED_SECONDS = 5.0
# Rights are given while the operator runs.
FORBIDDEN_SECONDS = 600.0
_PODS: Final = frozenset({"pods", "count/pods"})
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})

_log = logging.getLogger(__name__)


class Quotas:
    """Reads quotas, where that is allowed: one list of a namespace for all its jobs of a moment."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listed: dict[str, tuple[float, list[Json]]] = {}
        self._forbidden: dict[str, float] = {}  # by namespace: since when

    async def shortfall(self, namespace: str, pod: Json, pods: int, *, emptied: bool = False) -> str | None:
        """Return in words which quota has no room for so many of such a pod; None if none is known to lack it.

        `emptied`: whether other pods of the job end first, so that nobody knows what will be used of the quotas.
        """
        since = self._forbidden.get(namespace)
        if (pods < 2 and not emptied) or (since is not None and time.monotonic() < since + FORBIDDEN_SECONDS):
            return None
        async with self._asking.setdefault(namespace, asyncio.Lock()):
            recent = time.monotonic() - SHARED_SECONDS
            self._listed = {each: known for each, known in self._listed.items() if known[0] > recent}
            if namespace not in self._listed:
                self._listed[namespace] = time.monotonic(), await self._list(namespace)
            # Once those pods have ended, less is used.
            _, quotas = self._listed.pop(namespace) if emptied else self._listed[namespace]
        return shortfall(quotas, pod, pods, emptied=emptied)

    async def _list(self, namespace: str) -> list[Json]:
        try:
            return [quota async for page in self._client.pages(QUOTAS, namespace, _judged) for quota in page["items"]]
        except ApiError as error:
            if error.status == 403:
                self._forbidden[namespace] = time.monotonic()
            _log.warning("Could not list quotas; a gang's pods are refused one by one for now: %s", error)
            return []


def _judged(quota: Json) -> Json:
    return {"metadata": {"name": quota["metadata"]["name"]}, **{key: quota.get(key) for key in ("spec", "status")}}


def shortfall(quotas: Iterable[Json], pod: Json, pods: int, *, emptied: bool = False) -> str | None:
    """Return in words which quota has no room for so many of such a pod; None if none is known to lack it.

    `emptied`: whether to judge quotas as if nothing were used of them.
    """
    lacking = [
        f"quota {quota['metadata']['name']}, {resource}: requested {_written(asked)}"
        f"{'' if emptied else f', used {used}'}, limited {limit}"
        for quota in quotas
        if not any(object_at(quota, "spec").get(scope) for scope in ("scopes", "scopeSelector"))
        for resource, limit, used in _limits(quota)
        if (asked := pods * use_of(pod, resource))
        if asked + (0 if emptied else parse_quantity(used)) > parse_quantity(limit)
    ]
    return f"there is no room for all {pods} pods: {'; '.join(lacking)}" if lacking else None


def use_of(pod: Json, resource: str) -> Decimal:
    """Return what a pod at least uses of a resource as a quota names it."""
    if resource in _PODS:
        return Decimal(1)
    kind, _, name = resource.partition(".")
    if kind not in {"limits", "requests"}:
        if resource not in _NATIVE and not resource.startswith("hugepages-"):
            return Decimal(0)  # a count of other objects
        kind, name = "requests", resource
    spec = object_at(pod, "spec")
    # What the pod says of itself counts instead of its containers' sum.
    holders = [spec] if name in object_at(spec, "resources", kind) else objects_at(spec, "containers")
    return sum((_amount(each, kind, name) for each in holders), Decimal(0))


def _amount(holder: Json, kind: str, name: str) -> Decimal:
    limit = object_at(holder, "resources", "limits").get(name, 0)
    with suppress(ValueError):
        return parse_quantity(object_at(holder, "resources", kind).get(name, limit if kind == "requests" else 0))
    return Decimal(0)


def _limits(quota: Json) -> Iterator[tuple[str, str, str]]:
    """Yield each resource with its limit and what is used of it, where both are known."""
    used = object_at(quota, "status", "used")
    for resource, limit in cast("dict[str, str]", object_at(quota, "status", "hard")).items():
        if resource in used:
            yield resource, limit, used[resource]


def _written(amount: Decimal) -> str:
    return f"{amount.normalize():f}"
