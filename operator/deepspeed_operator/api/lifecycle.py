"""When a run ends, by success or by its limits in time, and what is kept of it."""

from enum import StrEnum
from typing import Final

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Cel

_LONGEST: Final = 315_360_000  # ten years, in seconds

PARTIAL_GANG_WITHIN_STARTUP = Cel(
    "!has(self.partialGangDeadlineSeconds) || self.partialGangDeadlineSeconds < self.startupDeadlineSeconds",
    "spec.lifecycle.partialGangDeadlineSeconds: must be less than startupDeadlineSeconds, which ends the run",
)

HEAD_NEEDS_PEERS = Cel(
    "self.successPolicy != 'Head' || self.nodes > 1",
    "spec.successPolicy: Head is for jobs of several pods, and this one has one; write AllPods, or set spec.nodes to 2 "
    "or more",
)


class SuccessPolicy(StrEnum):
    """Whose success is that of the run."""

    ALL_PODS = "AllPods"
    HEAD = "Head"


class CleanPodPolicy(StrEnum):
    """Which pods go when a run has ended."""

    KEEP_FINISHED = "KeepFinished"
    DELETE_ALL = "DeleteAll"


class HangAction(StrEnum):
    """What follows when no rank makes a step for longer than was learned."""

    REPORT = "Report"
    RESTART = "Restart"


class Lifecycle(ApiModel):
    """Limits in time, and what is kept of a finished job."""

    startup_deadline_seconds: int = Field(
        default=1800,
        ge=10,
        le=604_800,
        description="The attempt fails if its ranks do not all run this many seconds after its pods may start: "
        "unschedulable pods, images that cannot be pulled and peers that never answer end here. Time in which pods "
        "have scheduling gates, such as a queue's, or in which old pods end does not count. Default: 1800",
    )
    partial_gang_deadline_seconds: int | None = Field(
        default=None,
        ge=10,
        le=604_800,
        description="Seconds for which some of the pods may hold nodes while the scheduler finds none for the others. "
        "Then all are deleted, and made again after a random pause. Unset: they keep what they hold until "
        "startupDeadlineSeconds, since an autoscaler may bring the rest. Of two jobs that each hold what the other "
        "waits for, the younger gives its pods back in any case. Example: 300",
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=_LONGEST,
        description="The run fails with reason DeadlineExceeded once its ranks have run for so many seconds, over all "
        "of its attempts. Its pods then end as on suspend, with terminationGracePeriodSeconds of template to save, and "
        "nothing restarts them. Time in a queue, while pods start, suspended or between attempts does not count. "
        "Unset: no limit. Example: 86400",
    )
    progress_deadline_seconds: int | None = Field(
        default=None,
        ge=10,
        le=604_800,
        description="Seconds without an optimizer step of any rank after which the ranks hang, once they have made "
        "their first: the agents show where each rank is, and the ranks start again as after any failure. Saving has "
        "checkpointDeadlineSeconds; evaluating is judged by what it took before, and is never given less than this. "
        "Unset: learned from the ranks' steps, five times the slowest and 300 at least; hang says what follows then. "
        "Example: 900",
    )
    first_step_deadline_seconds: int | None = Field(
        default=None,
        ge=10,
        le=604_800,
        description="Seconds from the start of the ranks to their first optimizer step, after which they hang: also "
        "at each restart, with the time to load a checkpoint. Only for programs that make steps with "
        "deepspeed.initialize, or tell their own. Unset: no limit, as nobody knows how long a program prepares its "
        "data. Example: 7200",
    )
    checkpoint_deadline_seconds: int | None = Field(
        default=None,
        ge=10,
        le=604_800,
        description="Seconds that saving may take before the ranks hang. Unset: learned, five times the slowest and "
        "300 at least, once they have saved; hang says what follows then. Example: 3600",
    )
    hang: HangAction = Field(
        default=HangAction.REPORT,
        description="What follows when the ranks hang by a limit that was learned. Report, the default: a finding and "
        "an event say which rank is behind and where, until steps go on. Restart: the ranks start again, as after any "
        "failure. By a deadline that is set they always do.",
    )
    clean_pod_policy: CleanPodPolicy = Field(
        default=CleanPodPolicy.KEEP_FINISHED,
        description="Which pods go when the run is Complete or Failed. KeepFinished, the default: those that still "
        "run; those that have ended stay for their logs, and hold nothing of their nodes. DeleteAll: all of them.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=_LONGEST,
        description="Seconds after Complete or Failed until the job's pods, ConfigMap, Secret, Service and "
        "EndpointSlices are deleted. The DeepSpeedJob stays with its status, so that a GitOps tool does not find it "
        "missing and run it again; nothing is made anew. Unset: they stay until the job is deleted. Example: 86400",
    )
