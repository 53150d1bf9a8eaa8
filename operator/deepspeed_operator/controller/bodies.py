"""Jobs as the API server sends them. What of one is too large is not read.

Of one that is set aside nothing is read but what names it and its status.
"""

from deepspeed_operator.api.bounds import excess, free_parts, weight, without_free_parts
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import object_at
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

    def job(self, body: Json) -> tuple[DeepSpeedJob, int]:
        """Return the job without what of it is too large, and about how many bytes of memory it takes.

        pydantic.ValidationError for one that was written past another CRD.
        """
        uid = body["metadata"]["uid"]
        if self._marker.aside(uid) is not None:
            return DeepSpeedJob.model_validate({**body, "spec": _UNREAD}), 0
        with self._marker.on(uid):
            spec = object_at(body, "spec")
            found = excess(free_parts(spec))
            if found:
                spec = without_free_parts(spec)
            job = DeepSpeedJob.model_validate({**body, "spec": spec})
            return job.without_excess(found) if found else job, weight(spec) + weight(body.get("status"))
