"""Jobs as the API server sends them. Of one that is set aside nothing is read but what names it and its status."""

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.controller.marker import Marker
from deepspeed_operator.controller.resources import Json

_UNREAD = DeepSpeedJobSpec.model_validate({"nodes": 1, "training": {"script": "unread"}})


def is_unread(job: DeepSpeedJob) -> bool:
    """Whether the job's spec is not what the API server sent."""
    return job.spec is _UNREAD


class Bodies:
    """Makes jobs of what the API server sends."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker

    def job(self, body: Json) -> DeepSpeedJob:
        uid = body["metadata"]["uid"]
        if self._marker.aside(uid) is not None:
            body = {**body, "spec": _UNREAD}
        with self._marker.on(uid):
            return DeepSpeedJob.model_validate(body)
