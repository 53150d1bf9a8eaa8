"""Metadata that all children of a job share.

The operator keeps no list of what it has made. After a restart, as in every pass, it finds a job's children by these
labels; their owner reference is for garbage collection, and tells them from those of an earlier job of the same name.
"""

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import (
    API_VERSION,
    KIND,
    LABEL_ATTEMPT,
    LABEL_INSTANCE,
    LABEL_JOB_NAME,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    OPERATOR,
)
from deepspeed_operator.api.untyped import Json


def job_labels(job: DeepSpeedJob) -> dict[str, str]:
    """Return the labels of everything that belongs to the job."""
    return {
        LABEL_NAME: "deepspeed-job",
        LABEL_INSTANCE: job.metadata.name,
        LABEL_MANAGED_BY: OPERATOR,
        LABEL_JOB_NAME: job.metadata.name,
        LABEL_JOB_UID: job.metadata.uid,
    }


def attempt_labels(job: DeepSpeedJob, attempt: int) -> dict[str, str]:
    """Return the labels of what belongs to one attempt of the job."""
    return {**job_labels(job), LABEL_ATTEMPT: str(attempt)}


def child_metadata(job: DeepSpeedJob, name: str, labels: dict[str, str], *, keeps_job: bool = False) -> Json:
    """Return the metadata of a child: garbage collection deletes it after its job.

    `keeps_job`: whether a job that is deleted in the foreground stays until the child is gone.
    """
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": labels,
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "controller": True,
                **({"blockOwnerDeletion": True} if keeps_job else {}),
            }
        ],
    }
