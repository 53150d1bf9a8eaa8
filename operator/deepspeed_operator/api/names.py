"""Names that a cluster sees: the API group, labels, mount paths and the children's names."""

from typing import Final

GROUP: Final = "deepspeed-operator.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DeepSpeedJob"
PLURAL: Final = "deepspeedjobs"
SINGULAR: Final = "deepspeedjob"
SHORT_NAME: Final = "dsj"

OPERATOR: Final = "deepspeed-operator"
JOBS_POLICY: Final = "deepspeed-operator-jobs"  # the NetworkPolicy of each namespace with jobs
TRAINER: Final = "trainer"

NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
NAME_MAX_LENGTH: Final = 50

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_JOB_NAME: Final = f"{GROUP}/job-name"
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
LABEL_INDEX: Final = f"{GROUP}/index"
LABEL_REPLACEMENT: Final = f"{GROUP}/replacement"
ANNOTATION_TEMPLATE: Final = f"{GROUP}/template-digest"
ANNOTATION_CONTENT: Final = f"{GROUP}/content-digest"  # of a Workload
ANNOTATION_ENDED_RUN: Final = f"{GROUP}/ended-run"  # of a DeepSpeedJob

JOB_DIRECTORY: Final = "/etc/deepspeed-operator"
FILES_DIRECTORY: Final = "/etc/deepspeed-operator-files"
WORKSPACE: Final = "/workspace"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 -- the kernel's name, not a temporary file of ours
TEMPORARY: Final = "/tmp"  # noqa: S108 -- where programs look for it
AGENT: Final = f"{JOB_DIRECTORY}/agent"
HOSTFILE: Final = "hostfile"
CONFIG_FILE: Final = "ds_config.json"
RUN_CONFIG_FILE: Final = "run_ds_config.json"  # that of an elastic run; an attempt may have another one
LAUNCH_FILE: Final = "launch.json"
TOKEN_FILE: Final = "token"  # noqa: S105 -- its name
CONFIG_PATH: Final = f"{JOB_DIRECTORY}/{CONFIG_FILE}"

VOLUME_JOB: Final = "deepspeed-operator-job"
VOLUME_FILES: Final = "deepspeed-operator-files"
VOLUME_WORKSPACE: Final = "deepspeed-operator-workspace"
VOLUME_SHARED_MEMORY: Final = "deepspeed-operator-shm"
VOLUME_TEMPORARY: Final = "deepspeed-operator-tmp"
OUR_VOLUMES: Final = (VOLUME_JOB, VOLUME_FILES, VOLUME_WORKSPACE, VOLUME_SHARED_MEMORY, VOLUME_TEMPORARY)

ENV_PREFIX: Final = "DEEPSPEED_OPERATOR_"
ENV_INDEX: Final = "DEEPSPEED_OPERATOR_INDEX"
ENV_POD: Final = "DEEPSPEED_OPERATOR_POD"
ENV_POD_UID: Final = "DEEPSPEED_OPERATOR_POD_UID"
ENV_NODE: Final = "DEEPSPEED_OPERATOR_NODE"
ENV_JOB_UID: Final = "DEEPSPEED_OPERATOR_JOB_UID"
ENV_ATTEMPT: Final = "DEEPSPEED_OPERATOR_ATTEMPT"
ENV_REPLACEMENT: Final = "DEEPSPEED_OPERATOR_REPLACEMENT"
ENV_FENCED: Final = "DEEPSPEED_OPERATOR_FENCED"


def content_name(job: str, uid: str, attempt: int) -> str:
    """Name of the immutable ConfigMap of one attempt, and of whatever else of it a kubelet keeps.

    It is the job's own: a kubelet keeps an immutable object by its name for as long as any pod of the node refers to
    that name, and a job that was deleted and made again begins with attempt 1, too.
    """
    return f"{job}-{attempt}-{uid[:5]}"


def pod_name(job: str, attempt: int, index: int, replacement: int = 0) -> str:
    """Name of the pod with this index in one attempt, and hostname of all that have the index.

    `replacement`: its number among the attempt's replacements; 0 for a pod that the attempt began with.
    """
    name = f"{job}-{attempt}-{index}"
    return f"{name}-r{replacement}" if replacement else name


def host_name(job: str, attempt: int, index: int) -> str:
    """The pod's name in the hostfile: resolved through the job's headless Service."""
    return f"{pod_name(job, attempt, index)}.{job}"
