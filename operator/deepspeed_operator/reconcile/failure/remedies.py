"""What to do after a failure: by its reason, and before that by words whose cause is known."""

import re
from typing import Final

from deepspeed_operator.reconcile.observe.messages import RANK_LEFT
from deepspeed_operator.reconcile.report.conditions import Reason

# `again`: how to, which is another thing without a cluster.
_REMEDIES = {
    "ScriptNotFound": "Check spec.training.script against the image's working directory or spec.training.files.",
    Reason.PYTHON_NOT_FOUND: "The image needs python3 (3.8 or newer); spec.training.python is the ranks' interpreter.",
    Reason.OUT_OF_MEMORY: "Raise the memory limit of the trainer container in spec.template, or lower the memory need: "
    "a smaller micro batch, activation checkpointing, less offload to the CPU.",
    Reason.EVICTED: "Set memory and ephemeral-storage requests in spec.template; {again}.",
    Reason.POD_DELETED: "Run again with another spec.runId.",
    Reason.CONTAINER_KILLED: "Look at the events of its node for want of memory; {again}.",
    Reason.CONTAINER_FAILED: "Read its log in status.failure: an entrypoint of the image may have failed before the "
    "agent; {again}.",
    Reason.INIT_CONTAINER_FAILED: "Read its log; correct it in spec.template, and {again}.",
    Reason.STARTUP_DEADLINE_EXCEEDED: "Remove that, or raise the deadline; {again}.",
    "WorldMismatch": "Remove a variable that is set already; let launcher Ranks or DeepSpeed start the ranks, or start "
    "them with NNODES, NODE_RANK, NPROC_PER_NODE, MASTER_ADDR and MASTER_PORT; {again}.",
    "Terminated": "Look for a drain, a preemption or a person; {again}.",
    "AgentError": "Please report it with its log; {again}.",
    "TransportMismatch": "See docs/transport.md for what keeps NCCL from it; {again}.",
    "PreflightFailed": "Look at the network, or at the log of its rank; {again}.",
    "PeerLost": "Look at the node; {again}.",
    "HostNotResolved": "Check the cluster's DNS and network policies, then {again}.",
    RANK_LEFT: "Give all ranks the same number of steps (drop_last, equal shards, no exit of one rank alone), then "
    "{again}.",
    "StaleLaunchDocument": "Its node had kept an earlier ConfigMap: {again}.",
    "PeersMissing": "Check that pods of this namespace may talk to each other, then {again}.",
}
_DEFAULT = "Correct the cause, then {again}."
# A text and what it comes from: the words of DeepSpeed and Python do not say it.
_KNOWN: Final = (
    (
        re.compile(r"is not writable by uid (\d+)"),
        "Set securityContext.fsGroup (such as {0}) in spec.template.spec, so that the pod's group may write to its "
        "volumes; one that knows no fsGroup, such as NFS or hostPath, give to uid {0} where it is kept. Then {again}.",
    ),
    (
        re.compile(r"' not supported between instances of '(?:str' and '(?:int|float)|(?:int|float)' and 'str)'"),
        'If dsConfig says "auto", no framework has filled it in and DeepSpeed got text: write a number. Else correct '
        "the program. Then {again}.",
    ),
)


def remedy(reason: str, words: str, again: str = "set a new spec.runId to run it again") -> str:
    """Return what to do after a failure for this reason, told in these words; `again` is how to run again."""
    for pattern, advice in _KNOWN:
        found = pattern.search(words)
        if found is not None:
            return advice.format(*found.groups(), again=again)
    return _REMEDIES.get(reason, _DEFAULT).format(again=again)
