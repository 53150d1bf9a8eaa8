"""Makes the NetworkPolicy of each namespace with jobs, before the first pod there: a write a namespace, not a job."""

import logging

from deepspeed_operator.controller.children import read
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import steady
from deepspeed_operator.controller.contents import contains, merged
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import NETWORK_POLICIES, Json

# A policy that somebody deleted or changed is restored with the next attempt that begins after so long.
BELIEVED_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Isolation:
    """Keeps the policy in place, and as this install has it: a namespace's owner opens more by another one."""

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
            live = await read(self._client, NETWORK_POLICIES, namespace, name)
            if live is None:
                await self._client.create(NETWORK_POLICIES, namespace, self._policy)
            elif not contains(live, self._policy):
                await self._client.replace(NETWORK_POLICIES, namespace, merged(live, self._policy))
        except ApiError as error:
            if not (error.already_exists or error.conflict):
                _log.warning("NetworkPolicy %s/%s could not be made: %s", namespace, name, error)
