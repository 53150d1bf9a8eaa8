"""The reasons of conditions, failures and events. What each means, and what to do then, is in reason_catalogue.py."""

from enum import StrEnum
from typing import Final


class Category(StrEnum):
    """Where a cause lies: it says who has to act, and whether another attempt can help."""

    USER = "User"  # the program, the image or the job: another attempt ends in the same way
    INFRASTRUCTURE = "Infrastructure"  # a node, the network or the cluster: another attempt may end well
    DISRUPTION = "Disruption"  # somebody ended the pods on purpose
    OPERATOR = "Operator"  # this operator is at fault


class Reason(StrEnum):
    """Every reason, the agent's own included."""

    ACCEPTED = "Accepted"
    NO_CONFIG = "NoConfig"
    INVALID_CONFIG = "InvalidDeepSpeedConfig"
    INVALID_SPEC = "InvalidSpec"
    CONFIG_NOT_FOUND = "ConfigNotFound"
    FILES_NOT_FOUND = "FilesNotFound"
    DOES_NOT_FIT = "DoesNotFit"
    LIMIT_EXCEEDED = "LimitExceeded"
    TEMPLATE_REJECTED = "TemplateRejected"
    QUARANTINED = "Quarantined"
    NAME_CONFLICT = "NameConflict"

    QUEUED = "Queued"
    QUEUE_UNAVAILABLE = "QueueUnavailable"
    QUOTA_RECLAIMED = "QuotaReclaimed"
    STARTING = "Starting"
    PODS_REFUSED = "PodsRefused"
    SCHEDULING_GATED = "SchedulingGated"
    UNSCHEDULABLE = "Unschedulable"
    GANG_GIVEN_BACK = "GangGivenBack"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CANNOT_START = "ContainerCannotStart"
    VOLUMES_NOT_READY = "VolumesNotReady"
    WAITING_FOR_PEERS = "WaitingForPeers"
    WAITING_FOR_OLD_PODS = "WaitingForOldPods"
    CONFIG_UNAVAILABLE = "ConfigUnavailable"
    SUSPENDING = "Suspending"

    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    RESTORED = "Restored"

    RANK_FAILED = "RankFailed"
    RANK_LEFT = "RankLeft"
    USER_ERROR = "UserError"
    CONFIG_REJECTED = "ConfigRejected"
    DATA_OR_CHECKPOINT = "DataOrCheckpoint"
    CONVERSION_FAILED = "ConversionFailed"
    CUDA_OUT_OF_MEMORY = "CudaOutOfMemory"
    HOST_OUT_OF_MEMORY = "HostOutOfMemory"
    SHARED_MEMORY = "SharedMemory"
    SEGFAULT = "Segfault"
    DEVICE_FAULT = "DeviceFault"
    NCCL_TIMEOUT = "NcclTimeout"
    NCCL_NETWORK = "NcclNetwork"
    RENDEZVOUS_TIMEOUT = "RendezvousTimeout"
    FINISHED_THEN_FAILED = "FinishedThenFailed"
    SCRIPT_NOT_FOUND = "ScriptNotFound"
    PYTHON_NOT_FOUND = "PythonNotFound"
    POD_CHECK_FAILED = "PodCheckFailed"
    WORLD_MISMATCH = "WorldMismatch"
    RESUME_MISMATCH = "ResumeMismatch"
    HOST_NOT_RESOLVED = "HostNotResolved"
    PEERS_MISSING = "PeersMissing"
    PEER_LOST = "PeerLost"
    TRANSPORT_MISMATCH = "TransportMismatch"
    PREFLIGHT_FAILED = "PreflightFailed"
    STALE_LAUNCH_DOCUMENT = "StaleLaunchDocument"
    TERMINATED = "Terminated"
    AGENT_ERROR = "AgentError"
    CONTAINER_KILLED = "ContainerKilled"
    CONTAINER_FAILED = "ContainerFailed"
    INIT_CONTAINER_FAILED = "InitContainerFailed"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    DRAINED = "Drained"
    NODE_LOST = "NodeLost"
    POD_DELETED = "PodDeleted"
    POD_FAILED = "PodFailed"
    STARTUP_DEADLINE_EXCEEDED = "StartupDeadlineExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    HANG = "Hang"

    FITS = "Fits"
    PREDICTION_UNCERTAIN = "PredictionUncertain"
    NOT_PREDICTED = "NotPredicted"

    CONFIGURATION_WARNINGS = "ConfigurationWarnings"
    RUN_REPLACED = "RunReplaced"
    RESIZED = "Resized"
    GRACE_EXCEEDED = "GraceExceeded"
    CHECKPOINT_REPAIRED = "CheckpointRepaired"
    RESTARTED_FROM_ZERO = "RestartedFromZero"
    STRAGGLER = "Straggler"
    CHANGE_NOT_APPLIED = "ChangeNotApplied"
    ENGINE_DIFFERS = "EngineDiffers"
    FASTER_CONFIGURATION = "FasterConfiguration"
    RECONCILE_ERROR = "ReconcileError"


# What a rank's own end may be, which its exit code or signal and its words tell.
OF_A_RANK: Final = frozenset(
    {
        Reason.RANK_FAILED,
        Reason.RANK_LEFT,
        Reason.USER_ERROR,
        Reason.CONFIG_REJECTED,
        Reason.DATA_OR_CHECKPOINT,
        Reason.CUDA_OUT_OF_MEMORY,
        Reason.HOST_OUT_OF_MEMORY,
        Reason.SHARED_MEMORY,
        Reason.SEGFAULT,
        Reason.DEVICE_FAULT,
        Reason.NCCL_TIMEOUT,
        Reason.NCCL_NETWORK,
        Reason.RENDEZVOUS_TIMEOUT,
        Reason.FINISHED_THEN_FAILED,
    }
)
