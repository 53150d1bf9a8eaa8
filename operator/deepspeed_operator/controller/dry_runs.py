"""Trying pods with the API server, without creating them: once for many jobs that differ by name alone."""

import asyncio
import time
from dataclasses import replace
from weakref import WeakValueDictionary

from deepspeed_operator.controller.children import NamespaceTerminatingError
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.quotas import Quotas
from deepspeed_operator.controller.resources import PODS
from deepspeed_operator.reconcile.actions import DryRunPod
from deepspeed_operator.reconcile.observe.observed import DryRunResult

# A quota that fills meanwhile refuses the pods themselves, which is handled as well; a sweep is applied within seconds.
SHARED_SECONDS = 5.0


class DryRuns:
    """Remembers for a moment which pods were accepted where. A refusal has the pod's name in it: it is never shared."""

    def __init__(self, client: Client, quotas: Quotas) -> None:
        self._client = client
        self._quotas = quotas
        self._asking: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._accepted: dict[tuple[str, str], float] = {}

    async def ask(self, namespace: str, question: DryRunPod) -> DryRunResult:
        """Return what the API server says, or has just said of such a pod; then whether quotas take the whole gang."""
        answer = await self._one(namespace, question)
        if answer.refusal is not None:
            return answer
        lacking = await self._quotas.shortfall(namespace, question.pod, question.pods, emptied=question.replaces)
        return replace(answer, refusal=lacking, quota=lacking is not None)

    async def _one(self, namespace: str, question: DryRunPod) -> DryRunResult:
        likeness = namespace, question.likeness
        async with self._asking.setdefault(likeness, asyncio.Lock()):
            recent = time.monotonic() - SHARED_SECONDS
            self._accepted = {each: at for each, at in self._accepted.items() if at > recent}
            if likeness in self._accepted:
                return DryRunResult(question.pod_digest, refusal=None, invalid=False, answered_at=now())
            return await self._try(namespace, question)

    async def _try(self, namespace: str, question: DryRunPod) -> DryRunResult:
        accepted = DryRunResult(question.pod_digest, refusal=None, invalid=False, answered_at=now())
        try:
            await self._client.create(PODS, namespace, question.pod, dry_run=True)
        except ApiError as error:
            if error.namespace_terminating:
                raise NamespaceTerminatingError(error.message) from error
            # An existing pod of that name passed the same judges; whose it is turns out when it is created.
            if not error.refusal or error.conflict:
                raise
            # Quotas judge last: whoever refuses a pod for another reason has accepted this one.
            if error.quota and question.replaces:
                return accepted
            if not error.already_exists:
                invalid = error.status in {400, 422}
                return replace(accepted, refusal=error.message, invalid=invalid, quota=error.quota)
        self._accepted[namespace, question.likeness] = time.monotonic()
        return accepted
