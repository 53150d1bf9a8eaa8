"""A job as Kueue's queue sees it: one Workload, of as many pods as the job has nodes."""

from collections.abc import Mapping
from typing import Final

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import ANNOTATION_CONTENT, LABEL_INDEX, content_name
from deepspeed_operator.api.queueing import ANNOTATION_SLICE, ANNOTATION_SLICE_SIZE, KUEUE, TOPOLOGIES, QueueStatus
from deepspeed_operator.api.status import DeepSpeedJobStatus, Run
from deepspeed_operator.api.untyped import Json, objects_at
from deepspeed_operator.job.digest import short_digest, template_digest
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.render.attempt import Attempt
from deepspeed_operator.render.identity import child_metadata, job_labels

API_VERSION: Final = f"{KUEUE}/v1beta2"
POD_SET: Final = "ranks"
_LABEL_JOB_UID: Final = f"{KUEUE}/job-uid"  # by which Kueue's own tools find it
# What a pod needs, and what keeps it from nodes; the rest of it is nobody's business in a queue.
_OF_A_POD: Final = (
    *("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priorityClassName", "resourceClaims"),
    *("schedulerName", "resources", "overhead"),
)
_OF_A_CONTAINER: Final = ("name", "image", "resources", "restartPolicy")
_PRIORITY_CLASSES: Final = {KUEUE: "WorkloadPriorityClass", "scheduling.k8s.io": "PriorityClass"}


def workload_name(job: DeepSpeedJob) -> str:
    """Return the name of the job's Workload, which is another one where a job is made again under its name."""
    return content_name(job.metadata.name, job.metadata.uid, 0)


def workload_content(job: DeepSpeedJob, run: Run, queue: QueueStatus) -> str:
    """Return a digest of what the Workload is made of: another one wants another Workload."""
    spec = job.spec
    of = [run.id, run.all_nodes, run.world.slots_per_node, queue.name, queue.priority_class, spec.image]
    return short_digest({"run": of, "template": template_digest(job)})


def adoption(job: DeepSpeedJob) -> Json:
    """Return the metadata by which a Workload that somebody else has made becomes the job's.

    Whoever made it may have copied one of ours, from another cluster: only those that we made have the annotation.
    """
    metadata = child_metadata(job, "", job_labels(job))
    kept = {key: metadata[key] for key in ("ownerReferences", "labels")}
    return {**kept, "annotations": {ANNOTATION_CONTENT: None}}


def workload(
    job: DeepSpeedJob,
    run: Run,
    queue: QueueStatus,
    installation: Installation,
    *,
    priority: tuple[str, str, int] | None,
) -> Json:
    """Return the Workload of the run, which asks the queue for all of its pods at once.

    An elastic run may be admitted with fewer, down to the smallest number of nodes that it may have.
    `priority`: group and name of a priority class, and its value; None where the job has none.
    """
    metadata = child_metadata(job, workload_name(job), {**job_labels(job), _LABEL_JOB_UID: job.metadata.uid})
    ranked: Json = {}
    if priority is not None:
        group, name, value = priority
        ranked = {
            "priorityClassRef": {"group": group, "kind": _PRIORITY_CLASSES[group], "name": name},
            "priority": value,
        }
    fewest = {"minCount": run.elastic.sizes[0].nodes} if run.elastic is not None else {}
    template = {"spec": _pod_spec(job, run, installation)}
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {**metadata, "annotations": {ANNOTATION_CONTENT: workload_content(job, run, queue)}},
        "spec": {
            "queueName": queue.name,
            "active": True,
            **ranked,
            "podSets": [
                {
                    "name": POD_SET,
                    "count": run.all_nodes,
                    **fewest,
                    "template": template,
                    "topologyRequest": _topology_request(pod_template(job.spec).annotations),
                }
            ],
        },
    }


def _topology_request(annotations: Mapping[str, str]) -> Json:
    """Return what the template's annotations ask of Kueue's topology, as Kueue reads them of its own kinds of jobs.

    Ranks are neighbours by the pods' indices, also where a queue has a topology that nobody asks for.
    """
    request: Json = {"podIndexLabel": LABEL_INDEX}
    asked = next((field for field, annotation in TOPOLOGIES.items() if annotation in annotations), None)
    if asked is not None:
        value = annotations[TOPOLOGIES[asked]]
        request[asked] = value == "true" if asked == "unconstrained" else value
    size = annotations.get(ANNOTATION_SLICE_SIZE, "")
    if ANNOTATION_SLICE in annotations and size.isdecimal():
        request |= {"podSetSliceRequiredTopology": annotations[ANNOTATION_SLICE], "podSetSliceSize": int(size)}
    return request


def _pod_spec(job: DeepSpeedJob, run: Run, installation: Installation) -> Json:
    """Return of any pod of the run what the queue must know, as if no attempt had kept off a node or been placed."""
    text = "" if run.config_digest is not None else None
    fresh = job.model_copy(update={"status": DeepSpeedJobStatus()})
    pod: Json = Attempt(fresh, 1, run.world, text, installation).pod(0)["spec"]
    containers = {
        kind: [{key: each[key] for key in _OF_A_CONTAINER if key in each} for each in objects_at(pod, kind)]
        for kind in ("initContainers", "containers")
        if kind in pod
    }
    return {"restartPolicy": "Never", **{key: pod[key] for key in _OF_A_POD if key in pod}, **containers}
