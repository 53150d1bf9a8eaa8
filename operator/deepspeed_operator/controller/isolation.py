"""Makes the NetworkPolicy of each namespace with jobs, before the first pod there: a write a namespace, not a job."""

import logging

from deepspeed_operator.controller.children import read
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import steady
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import NETWORK_POLICIES, Json

# A policy that somebody deleted is made again with the next attempt that begins after so long.
BELIEVED_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Isolation:
    """Keeps the policy in place; one that is there stays as it is, for its namespace's owner may have changed it."""

    def __init__(self, client: Client, policy: Json | None) -> None:
        """`policy`: the manifest, the same in all namespaces; None: make none."""
        self._client = client
        self._policy = policy
        self._seen: dict[str, float] = {}

    async def ensure(self, namespace: str) -> None:
        """Make the policy exist. A server that refuses it keeps no job from running, but the log says so."""
        if self._policy is None:
            return
        for known in [each for each, at in self._seen.items() if steady() - at > BELIEVED_SECONDS]:
            del self._seen[known]
        if namespace in self._seen:
            return
        self._seen[namespace] = steady()
        name = self._policy["metadata"]["name"]
        try:
            if await read(self._client, NETWORK_POLICIES, namespace, name, metadata=True) is None:
                await self._client.create(NETWORK_POLICIES, namespace, self._policy)
        except ApiError as error:
            if not error.already_exists:
                _log.warning("NetworkPolicy %s/%s could not be made: %s", namespace, name, error)
