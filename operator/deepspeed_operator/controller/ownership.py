"""Whether an object with the name of a child is that child.

Names of children follow from the job, so that nothing is made twice. But a user may have an object of that name, and
an earlier job of the same name may have left one that garbage collection has still to delete: neither may be used.
"""

from enum import Enum, auto

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import API_VERSION, KIND
from deepspeed_operator.controller.resources import Json


class Owner(Enum):
    OURS = auto()
    LEAVING = auto()  # being deleted, or left by an earlier job of the same name: garbage collection ends it
    FOREIGN = auto()


def owner_of(live: Json, job: DeepSpeedJob) -> Owner:
    """Tell whose the object is."""
    metadata: Json = live["metadata"]
    references: list[Json] = metadata.get("ownerReferences", [])
    ours = any(reference["uid"] == job.metadata.uid for reference in references)
    if metadata.get("deletionTimestamp"):
        return Owner.LEAVING
    if ours:
        return Owner.OURS
    earlier = any(
        reference["apiVersion"] == API_VERSION and reference["kind"] == KIND and reference["name"] == job.metadata.name
        for reference in references
    )
    return Owner.LEAVING if earlier else Owner.FOREIGN


def describe_owner(live: Json) -> str:
    """Name the object's owner for people."""
    metadata: Json = live["metadata"]
    controllers = [f"{each['kind']} {each['name']}" for each in metadata.get("ownerReferences", [])]
    return "owned by " + ", ".join(controllers) if controllers else "not owned by a DeepSpeedJob"
