"""What each reason means, and what to do then. `make generate` writes docs/failures.md from it."""

from typing import Final

from deepspeed_operator.api.failed_catalogue import FAILED
from deepspeed_operator.api.reason_entry import Entry
from deepspeed_operator.api.reasons import Category, Reason
from deepspeed_operator.api.status import ConditionType

_ACCEPTED: Final = {
    Reason.ACCEPTED: Entry(
        None,
        "The job is valid: the message has its batch sizes.",
    ),
    Reason.NO_CONFIG: Entry(
        None,
        "The job is valid and has no `dsConfig`: its program configures DeepSpeed.",
    ),
    Reason.INVALID_CONFIG: Entry(
        Category.USER,
        "DeepSpeed would refuse `dsConfig`, or compute something else than it says.",
        "Follow the message: it names the nearest valid values.",
    ),
    Reason.INVALID_SPEC: Entry(
        Category.USER,
        "Something else in the spec is wrong, often a template field that belongs to the operator.",
        "Follow the message: it names the path and what to use instead.",
    ),
    Reason.CONFIG_NOT_FOUND: Entry(
        Category.USER,
        "The ConfigMap or the key of `dsConfigFrom` does not exist, or its text is not JSON.",
        "Create or correct it; it is read again every 15 s.",
    ),
    Reason.FILES_NOT_FOUND: Entry(
        Category.USER,
        "The ConfigMap of `training.files` does not exist.",
        "Create it; it is read again every 15 s.",
    ),
    Reason.DOES_NOT_FIT: Entry(
        Category.USER,
        "`admission: RequireFit`, and a GPU's memory is certainly not enough ([how that is known](memory.md)). With "
        "`admission: Always` only the condition `MemoryFit` says so.",
        "`dsjob plan` shows what needs less; or correct spec.model and spec.gpuMemory.",
    ),
    Reason.LIMIT_EXCEEDED: Entry(
        Category.USER,
        "The job exceeds what the platform team allows jobs, or those of its namespace ([limits](fleet.md#limits)). "
        "The message has the path, the limit and the chart's value in which it is set.",
        "Write what is allowed, or ask the platform team.",
    ),
    Reason.TEMPLATE_REJECTED: Entry(
        Category.USER,
        "The API server refuses pods made from `template`, because of a misspelt field for example. The message has "
        "its words.",
        "Correct spec.template; for a misspelt field the message names the nearest.",
    ),
    Reason.QUARANTINED: Entry(
        Category.OPERATOR,
        "Judging the job takes more CPU time (10 s) or memory (128 MiB) than one job may have, or the operator's "
        "process ended while it worked on the job. The operator tries again, later each time; pods that run go on.",
        "Make spec.dsConfig, spec.template or spec.model smaller or simpler. If they are small, please report it.",
    ),
    Reason.NAME_CONFLICT: Entry(
        Category.USER,
        "Another object has the name of the job's Service, ConfigMap or pod.",
        "Rename the job, or delete that object.",
    ),
}
_RECONCILING: Final = {
    Reason.QUEUE_UNAVAILABLE: Entry(
        Category.INFRASTRUCTURE,
        "The job asks for a queue, and Kueue is not there, the operator may not write its Workloads, or a "
        "WorkloadPriorityClass or ResourceFlavor is missing. Nothing is created. The message says which.",
        "Follow the message (docs/kueue.md); it is tried again every 30 s. Or run the job without a queue.",
    ),
    Reason.QUOTA_RECLAIMED: Entry(
        Category.DISRUPTION,
        "Kueue takes the quota of a running job back: it was preempted, its pods were not ready in time, its queue was "
        "stopped, or its Workload was deactivated or deleted. The message has Kueue's words. The pods end with their "
        "grace to save, and the job waits in its queue again. It counts against no budget.",
        "Nothing; look at the queue, and at the priorities of jobs in it.",
    ),
    Reason.STARTING: Entry(
        None,
        "Pods are being created, or their ranks wait for each other.",
    ),
    Reason.PODS_REFUSED: Entry(
        Category.INFRASTRUCTURE,
        "A quota has no room for all pods, and none is created; or a quota, Pod Security, a webhook or an admission "
        "policy refuses a pod, and what exists of the attempt is deleted again: no refusal leaves half a gang. The "
        "message has its words. Where a pod on trial is refused, nothing was created, and `Accepted` is False.",
        "Nothing for a quota that will be free; it is tried again after 30 s, and then less often. A quota that counts "
        "limits wants them in spec.template, or a LimitRange with defaults. Otherwise correct spec.template, do as the "
        "policy says, or ask the administrator: the operator's own policy excludes namespaces.",
    ),
    Reason.SCHEDULING_GATED: Entry(
        None,
        "Pods have scheduling gates, such as a queue's; the message names them. The startup deadline does not count "
        "meanwhile.",
        "Look at the queue, or at whoever set the gates.",
    ),
    Reason.UNSCHEDULABLE: Entry(
        Category.INFRASTRUCTURE,
        "The scheduler finds no node for a pod, or no PersistentVolumeClaim that it names; the message has its words. "
        "Pods that it has placed hold their nodes meanwhile; the message counts them.",
        "Wait for room, or lower spec.slotsPerNode or the requests. Create the claim. Against half a gang: "
        "docs/operate.md, Gangs.",
    ),
    Reason.GANG_GIVEN_BACK: Entry(
        Category.INFRASTRUCTURE,
        "The scheduler had placed a part of the gang. Either an older job was placed in part as well, and each held "
        "what the other waited for; or `lifecycle.partialGangDeadlineSeconds` was over. The pods were deleted, and are "
        "made again after a random pause of 30 s or more.",
        "Nothing, if there is room for one job after the other. Against it: a gang scheduler, or a queue.",
    ),
    Reason.IMAGE_PULL_FAILED: Entry(
        Category.USER,
        "A node cannot pull the image.",
        "Correct spec.image or imagePullSecrets.",
    ),
    Reason.CONTAINER_CANNOT_START: Entry(
        Category.USER,
        "A container cannot be created, because a Secret that it needs is missing for example. Where the image lacks "
        "the program to start, the run fails.",
        "Correct spec.template or the image, and {again}.",
    ),
    Reason.VOLUMES_NOT_READY: Entry(
        Category.USER,
        "A node has not set a pod up within 20 s. Kubernetes says why only in the pod's Events, which the operator may "
        "not read: the message names the ConfigMap that is missing, or the Secrets and other sources of volumes that "
        "may be. Before Kubernetes 1.36 a pod that pulls a large image looks the same.",
        "Create what is missing; `kubectl describe pod` shows it.",
    ),
    Reason.WAITING_FOR_PEERS: Entry(
        Category.INFRASTRUCTURE,
        "All pods run, but for 20 s rank 0's agent has not heard from the pods that the message names, or it refuses "
        "them; the message says why.",
        "Check the cluster's DNS, and network policies between pods of the namespace: there the name of rank 0's pod "
        "may not resolve.",
    ),
    Reason.WAITING_FOR_OLD_PODS: Entry(
        Category.INFRASTRUCTURE,
        "Pods of an earlier attempt, or of a deleted job of the same name, may still write. The startup "
        "deadline does not count meanwhile.",
        "Nothing while they end within their grace period. Otherwise the message says what is wrong: a node that does "
        "not answer (if it is gone for good, delete the Node), a pod that its kubelet does not end, or one that nobody "
        "deletes.",
    ),
    Reason.CONFIG_UNAVAILABLE: Entry(
        Category.USER,
        "The ConfigMap that the run began with is gone or has changed. A run keeps its configuration.",
        "Restore it, or change spec.runId to run with the new one.",
    ),
    Reason.SUSPENDING: Entry(
        None,
        "The pods end because `spec.suspend` is true.",
    ),
}
_READY: Final = {
    Reason.QUEUED: Entry(
        None,
        "The job waits in its queue, and no pod exists. The message has Kueue's words. No deadline counts meanwhile.",
        "Look at the LocalQueue and its ClusterQueue (docs/kueue.md).",
    ),
    Reason.RUNNING: Entry(
        None,
        "All ranks run.",
    ),
    Reason.SUSPENDED: Entry(
        None,
        "`spec.suspend` is true, and no pod is left.",
        "Set spec.suspend to false for a new attempt.",
    ),
    Reason.COMPLETED: Entry(
        None,
        "All ranks of all pods ended with 0.",
        "{again}.",
    ),
    Reason.RESTORED: Entry(
        None,
        "The job was restored from a backup without its status, or made from the YAML of a finished job of its name: "
        "its annotation `deepspeed-operator.dev/ended-run` says that the run which `spec.runId` asks for has ended. "
        "The job is Complete or Failed, as that run was, and nothing is created.",
        "{again}; or remove the annotation. docs/operate.md",
    ),
}
_MEMORY_FIT: Final = {
    Reason.FITS: Entry(
        None,
        "The job fits, whatever it does not declare.",
    ),
    Reason.PREDICTION_UNCERTAIN: Entry(
        None,
        "An assumed fact decides, the sum is within the prediction's error (10 %) of the GPU's memory, or a feature "
        "was never measured. The message names it. The job runs.",
        "Declare in spec.model what the message names.",
    ),
    Reason.NOT_PREDICTED: Entry(
        None,
        "The memory of the GPU, the version of DeepSpeed or the size of the model is not known, or the job trains on "
        "CPUs. The message names it. The job runs.",
        "Declare what the message names.",
    ),
}
_EVENTS: Final = {
    Reason.CONFIGURATION_WARNINGS: Entry(
        Category.USER,
        "The run begins with warnings, which `status.findings` lists.",
        "Follow them, or leave them.",
    ),
    Reason.RUN_REPLACED: Entry(
        None,
        "`spec.runId` has changed: the pods of the earlier run end, and a new run begins.",
    ),
    Reason.RESIZED: Entry(
        Category.INFRASTRUCTURE,
        "The scheduler had no room for all pods of an elastic run: the next attempt has fewer nodes. `status.attempt."
        "resized` says why.",
        "None: each later attempt begins with all nodes again. To wait longer for room, raise "
        "spec.failurePolicy.replacementDeadlineSeconds.",
    ),
    Reason.GRACE_EXCEEDED: Entry(
        Category.USER,
        "A run was ended early, and ranks had not ended within their grace after SIGTERM: they were killed. What they "
        "had not saved is lost.",
        "Raise terminationGracePeriodSeconds in spec.template.spec, or save less often and sooner after SIGTERM.",
    ),
    Reason.RESTARTED_FROM_ZERO: Entry(
        Category.USER,
        "The ranks began below the step of the newest complete checkpoint: what was computed until then is computed "
        "again.",
        "Let the program load its checkpoint: $(RESUME_FROM) in spec.training.args, or load_checkpoint() with the "
        "directory. docs/checkpoints.md",
    ),
    Reason.CHECKPOINT_REPAIRED: Entry(
        Category.USER,
        "Before a start the file `latest` named a checkpoint that lacks a part, since the ranks ended while they "
        "saved: now it names the newest complete one, and the run goes on from there.",
        "There is nothing to do; the torn checkpoint, which the message names, may be deleted.",
    ),
    Reason.STRAGGLER: Entry(
        Category.INFRASTRUCTURE,
        "Ranks of a pod compute more slowly than the others: their forward passes take a quarter longer than those of "
        "half of all ranks, or more, over a minute and 100 passes at least. All others wait for them in each step.",
        "Compare clocks, temperature and errors of the GPUs of the node in the message with another one's (nvidia-smi "
        "-q), and what else runs there. docs/hangs.md",
    ),
    Reason.CHANGE_NOT_APPLIED: Entry(
        Category.USER,
        "`spec` was changed, and the run that goes on, or has ended, does not use the change.",
        "Set a new spec.runId for a run that does.",
    ),
    Reason.ENGINE_DIFFERS: Entry(
        Category.USER,
        "DeepSpeed made something else of the configuration than it says, which `status.findings` lists.",
        "Follow the findings.",
    ),
    Reason.FASTER_CONFIGURATION: Entry(
        None,
        "By what its first steps took, another configuration of the same global batch would be faster.",
        "Follow the message, or leave it.",
    ),
    Reason.RECONCILE_ERROR: Entry(
        Category.OPERATOR,
        "The operator failed on this job; it tries again.",
        "Please report it with the operator's log.",
    ),
}

# By the condition that a reason explains; None: only events have it.
BY_CONDITION: Final[dict[ConditionType | None, dict[Reason, Entry]]] = {
    ConditionType.ACCEPTED: _ACCEPTED,
    ConditionType.RECONCILING: _RECONCILING,
    ConditionType.READY: _READY,
    ConditionType.FAILED: FAILED,
    ConditionType.MEMORY_FIT: _MEMORY_FIT,
    None: _EVENTS,
}
# A reason that is not here is another version's, or one that a program wrote instead of the agent.
CATALOGUE: Final[dict[str, Entry]] = {
    reason: entry for entries in BY_CONDITION.values() for reason, entry in entries.items()
}
