"""What each reason means, and what to do then. `make generate` writes docs/failures.md from it."""

from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.reasons import Category, Reason
from deepspeed_operator.api.status import ConditionType


@dataclass(frozen=True, slots=True)
class Entry:
    """What there is to say of a reason. `category` is None where nothing is wrong.

    `meaning` is Markdown. `remedy` is plain text, in which {again} stands for how to run again.
    """

    category: Category | None
    meaning: str
    remedy: str = "Nothing."

    def remedy_by(self, again: str) -> str:
        """Return the remedy as a sentence; `again` is how to run again."""
        words = self.remedy.format(again=again)
        return words[:1].upper() + words[1:]


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
}
_FAILED: Final = {
    Reason.RANK_FAILED: Entry(
        Category.USER,
        "A rank exited with another code than 0, or was killed by a signal. The message has the program's words (an "
        "exception, `error: …` of argparse, a shell, torchrun's report), or else its last line in quotes; addresses of "
        "other pods are replaced by their ranks. `status.failure.message` has the end of its log.",
        "Correct the cause, then {again}.",
    ),
    Reason.RANK_LEFT: Entry(
        Category.USER,
        "A rank ended with 0 while others still trained, and these failed because it was gone: uneven data, or a "
        "`sys.exit()` on one rank. The message names it, and the rank that failed then.",
        "Give all ranks the same number of steps (drop_last, equal shards, no exit of one rank alone), then {again}.",
    ),
    Reason.SCRIPT_NOT_FOUND: Entry(
        Category.USER,
        "The script is not where `spec.training.script` says.",
        "Check spec.training.script against the image's working directory or spec.training.files.",
    ),
    Reason.PYTHON_NOT_FOUND: Entry(
        Category.USER,
        "The image has no python3, or not the interpreter of `spec.training.python`.",
        "The image needs python3 (3.8 or newer); spec.training.python is the ranks' interpreter.",
    ),
    Reason.POD_CHECK_FAILED: Entry(
        Category.USER,
        "Something in the pod makes training impossible, such as fewer devices than `slotsPerNode`.",
        "Correct the cause, then {again}.",
    ),
    Reason.WORLD_MISMATCH: Entry(
        Category.USER,
        "The ranks formed another world than the planned one, such as one of its own in each pod, or a variable that "
        "is set already would make them. While they train on, it is a finding and an event.",
        "Remove a variable that is set already; let launcher Ranks or DeepSpeed start the ranks, or start them with "
        "NNODES, NODE_RANK, NPROC_PER_NODE, MASTER_ADDR and MASTER_PORT; {again}.",
    ),
    Reason.HOST_NOT_RESOLVED: Entry(
        Category.INFRASTRUCTURE,
        "The name of rank 0's pod did not resolve within the startup deadline.",
        "Check the cluster's DNS and network policies, then {again}.",
    ),
    Reason.PEERS_MISSING: Entry(
        Category.INFRASTRUCTURE,
        "Not all pods reached rank 0's within the startup deadline; the message names those that did not.",
        "Check that pods of this namespace may talk to each other, then {again}.",
    ),
    Reason.PEER_LOST: Entry(
        Category.INFRASTRUCTURE,
        "A pod did not answer for 20 s, so that the others ended their ranks.",
        "Look at the node; {again}.",
    ),
    Reason.TRANSPORT_MISMATCH: Entry(
        Category.INFRASTRUCTURE,
        "NCCL does not use the fabric of `network.profile`, and `network.require` is set; the message says what it "
        "uses. Without `network.require` it is a finding and an event.",
        "See docs/transport.md for what keeps NCCL from it; {again}.",
    ),
    Reason.PREFLIGHT_FAILED: Entry(
        Category.INFRASTRUCTURE,
        "`network.preflight`: the bandwidth measurement before the ranks failed, or its result is below "
        "`network.minimumBusBandwidth`. The message has the numbers, the log each size.",
        "Look at the network, or at the log of its rank; {again}.",
    ),
    Reason.STALE_LAUNCH_DOCUMENT: Entry(
        Category.INFRASTRUCTURE,
        "A pod got the launch document of another job or attempt: its node had kept an earlier ConfigMap of that name. "
        "It ends before it trains with others, or others' data.",
        "Nothing is wrong with the job: {again}.",
    ),
    Reason.TERMINATED: Entry(
        Category.DISRUPTION,
        "Somebody outside the pod stopped it.",
        "Look for a drain, a preemption or a person; {again}.",
    ),
    Reason.AGENT_ERROR: Entry(
        Category.OPERATOR,
        "The operator's program in the pod failed itself.",
        "Please report it with its log; {again}.",
    ),
    Reason.OUT_OF_MEMORY: Entry(
        Category.USER,
        "The kernel killed a process of the container. The message names the rank if the agent survived.",
        "Raise the memory limit of the trainer container in spec.template, or lower the memory need: a smaller micro "
        "batch, activation checkpointing, less offload to the CPU.",
    ),
    Reason.CONTAINER_KILLED: Entry(
        Category.INFRASTRUCTURE,
        "The container got signal 9 and could say nothing: often the node ran out of memory, not the container.",
        "Look at the events of its node for want of memory; {again}.",
    ),
    Reason.CONTAINER_FAILED: Entry(
        Category.USER,
        "The trainer container ended without a word of the agent.",
        "Read its log in status.failure: an entrypoint of the image may have failed before the agent; {again}.",
    ),
    Reason.INIT_CONTAINER_FAILED: Entry(
        Category.USER,
        "An init container of the template failed.",
        "Read its log; correct it in spec.template, and {again}.",
    ),
    Reason.EVICTED: Entry(
        Category.DISRUPTION,
        "The node's kubelet evicted the pod.",
        "Set memory and ephemeral-storage requests in spec.template; {again}.",
    ),
    Reason.PREEMPTED: Entry(
        Category.DISRUPTION,
        "The scheduler ended the pod to make room for one of higher priority.",
        "Set a PriorityClass in spec.template, or wait for room; {again}.",
    ),
    Reason.DRAINED: Entry(
        Category.DISRUPTION,
        "The pod was evicted through the API, as `kubectl drain` does, or deleted for a taint of its node.",
        "Find who drains nodes, and when; {again}.",
    ),
    Reason.NODE_LOST: Entry(
        Category.INFRASTRUCTURE,
        "The pod's node does not answer, or is gone.",
        "Look at the node; {again}.",
    ),
    Reason.POD_DELETED: Entry(
        Category.DISRUPTION,
        "A pod was deleted while its ranks ran, and Kubernetes does not say by whom. One whose ranks had all ended "
        "with 0 by then has succeeded.",
        "{again}.",
    ),
    Reason.POD_FAILED: Entry(
        Category.INFRASTRUCTURE,
        "Kubernetes failed the pod for a reason of its own, which is in the message.",
        "Correct the cause, then {again}.",
    ),
    Reason.STARTUP_DEADLINE_EXCEEDED: Entry(
        Category.INFRASTRUCTURE,
        "The ranks did not all run within `lifecycle.startupDeadlineSeconds` after `status.attempt.admittedTime`, "
        "since when the pods could start; the message says what held them up.",
        "Remove that, or raise the deadline; {again}.",
    ),
    Reason.DEADLINE_EXCEEDED: Entry(
        Category.USER,
        "The ranks have run for `lifecycle.activeDeadlineSeconds`, over all attempts of the run (`status.run` counts "
        "them). They were told to end, and nothing restarts them.",
        "If the run needs more time, raise spec.lifecycle.activeDeadlineSeconds, and {again}.",
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
    Reason.GRACE_EXCEEDED: Entry(
        Category.USER,
        "A run was ended early, and ranks had not ended within their grace after SIGTERM: they were killed. What they "
        "had not saved is lost.",
        "Raise terminationGracePeriodSeconds in spec.template.spec, or save less often and sooner after SIGTERM.",
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
    ConditionType.FAILED: _FAILED,
    ConditionType.MEMORY_FIT: _MEMORY_FIT,
    None: _EVENTS,
}
# A reason that is not here is another version's, or one that a program wrote instead of the agent.
CATALOGUE: Final[dict[str, Entry]] = {
    reason: entry for entries in BY_CONDITION.values() for reason, entry in entries.items()
}
