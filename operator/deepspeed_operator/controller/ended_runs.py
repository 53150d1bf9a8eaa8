"""Writes on jobs which of their runs has ended: the only thing of a job, besides its status, that is written."""

import logging
from collections.abc import Callable

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN
from deepspeed_operator.controller.children import TryAgainSoonError
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import steady
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import JOBS, Json

AGAIN_SECONDS = 3600.0

_log = logging.getLogger(__name__)


class EndedRuns:
    """Keeps the annotation of all jobs. A server that refuses it keeps no run from its result, but the log says so."""

    def __init__(self, client: Client, take: Callable[[Json], object]) -> None:
        """`take`: brings a job that the API server has sent into the cache."""
        self._client = client
        self._take = take
        # Since when nothing is written: by namespace where a right is missing, by the job's uid where it was refused,
        # by that and what was written.
        self._rests: dict[str | tuple[str, str | None], float] = {}
        self._noted = False

    async def mark(self, job: DeepSpeedJob, text: str | None) -> None:
        """Let the annotation of exactly this version of the job say so; None takes it away.

        A write that the API server refuses, or that another controller takes back, is tried again an hour later.
        TryAgainSoonError where somebody else's write came between.
        """
        metadata = job.metadata
        for known in [each for each, since in self._rests.items() if steady() - since > AGAIN_SECONDS]:
            del self._rests[known]
        written = (metadata.uid, text)
        if not self._rests.keys().isdisjoint({metadata.namespace, metadata.uid, written}):
            return
        body: Json = {
            "metadata": {
                "name": metadata.name,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
                "annotations": {ANNOTATION_ENDED_RUN: text},
            }
        }
        try:
            self._take(await self._client.patch(JOBS, metadata.namespace, body))
            self._rests[written] = steady()
        except ApiError as error:
            if error.status in {404, 409}:
                raise TryAgainSoonError("its annotation could not be written") from error
            if not error.refusal:
                raise
            self._rests[metadata.namespace if error.lacks_right else metadata.uid] = steady()
            self._note(job, error)

    def _note(self, job: DeepSpeedJob, error: ApiError) -> None:
        if not self._noted:
            _log.warning(
                "The annotation %s of %s/%s could not be written: finished jobs that are restored without their status "
                "would run again. Let the operator patch deepspeedjobs, as its chart's roles do: %s",
                ANNOTATION_ENDED_RUN,
                job.metadata.namespace,
                job.metadata.name,
                error,
            )
        self._noted = True
