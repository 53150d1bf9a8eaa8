"""Labels of the cluster's nodes: one list, when a job needs them, for all jobs of the next minutes."""

import asyncio
import logging
from datetime import timedelta
from time import monotonic

from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import NODES, Json
from deepspeed_operator.job.node_selection import LabelledNode
from deepspeed_operator.reconcile.admission.gpu_lookup import NODES_REREAD

_log = logging.getLogger(__name__)


class NodeLabels:
    """What cannot be read tells nothing, and keeps no job from running."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._listing = asyncio.Lock()
        self._nodes: tuple[LabelledNode, ...] = ()
        self._listed_at: float | None = None
        self._forbidden = False

    async def all(self) -> tuple[LabelledNode, ...]:
        """Return all nodes, as they were minutes ago at most; none where that cannot be known."""
        async with self._listing:
            if self._listed_at is None or timedelta(seconds=monotonic() - self._listed_at) >= NODES_REREAD:
                self._nodes = await self._list()
                self._listed_at = monotonic()
            return self._nodes

    async def _list(self) -> tuple[LabelledNode, ...]:
        found: list[LabelledNode] = []
        try:
            async for page in self._client.pages(NODES, None, _labelled, metadata=True):
                found += page["items"]
        except ApiError as error:
            if error.status != 403:
                _log.warning("Could not list nodes; their labels tell nothing for now: %s", error)
            elif not self._forbidden:
                self._forbidden = True
                _log.warning("Nodes may not be listed; their labels will tell nothing: %s", error)
            return ()
        return tuple(found)


def _labelled(item: Json) -> LabelledNode:
    return LabelledNode(item["metadata"]["name"], item["metadata"].get("labels", {}))
