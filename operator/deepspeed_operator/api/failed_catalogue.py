"""What each reason of a failed run means, and what to do then."""

from typing import Final

from deepspeed_operator.api.reason_entry import Entry
from deepspeed_operator.api.reasons import Category, Reason

FAILED: Final[dict[Reason, Entry]] = {
    Reason.RANK_FAILED: Entry(
        Category.USER,
        "A rank exited with another code than 0 and left no exception, or was killed by a signal that nothing "
        "explains: it counts as Infrastructure then. The message has torchrun's report, or the program's last line "
        "in quotes; addresses of other pods are replaced by their ranks. `status.failure.message` has the end of its "
        "log.",
        "Correct the cause, then {again}.",
    ),
    Reason.USER_ERROR: Entry(
        Category.USER,
        "The program ended by an exception that is not one of those below, by argparse's or a shell's `error: …`. The "
        "message has it.",
        "Correct the program or its arguments, then {again}.",
    ),
    Reason.CONFIG_REJECTED: Entry(
        Category.USER,
        "DeepSpeed, or the framework's part for it, refused the configuration; the message has its words.",
        "Correct spec.dsConfig, or what the program adds to it; `dsjob validate` says what DeepSpeed would refuse. "
        "Then {again}.",
    ),
    Reason.DATA_OR_CHECKPOINT: Entry(
        Category.USER,
        "A file of the data, the model or a checkpoint is not there, cannot be read or written, or does not match the "
        "model or the number of ranks. It may be on a volume, at a hub or in an object store.",
        "Look at the path, the address or the shapes in the message: give the missing file, the access to it or room "
        "on its volume, go back to the last whole checkpoint, or run with as many ranks as have saved it; {again}.",
    ),
    Reason.CONVERSION_FAILED: Entry(
        Category.USER,
        "The newest checkpoint could not be made universal before the ranks of an elastic run began, which are others "
        "than have saved it: DeepSpeed's converter failed, or took longer than "
        "`spec.checkpoint.conversionDeadlineSeconds`.",
        "The log of rank 0's pod has the converter's last words: give it time, memory and room on the volume, or "
        "remove spec.elastic; {again}.",
    ),
    Reason.CUDA_OUT_OF_MEMORY: Entry(
        Category.USER,
        "A GPU has no memory left. With `spec.model` the message has what was predicted, and the smallest change that "
        "would fit.",
        "Lower the micro batch, checkpoint activations, use a higher ZeRO stage or offload; `dsjob plan` compares "
        "them. Then {again}.",
    ),
    Reason.HOST_OUT_OF_MEMORY: Entry(
        Category.USER,
        "The kernel killed a process of the container for its memory, or gave it none. The message names the rank if "
        "the agent survived.",
        "Raise the memory limit of the trainer container in spec.template, or lower the need: fewer data loader "
        "workers, less offload to the CPU, loading that does not copy the model in each rank; {again}.",
    ),
    Reason.SHARED_MEMORY: Entry(
        Category.USER,
        "The pod's /dev/shm is full, or could not be used: data loader workers and NCCL exchange tensors there.",
        "Mount an emptyDir with medium Memory at /dev/shm in spec.template, larger than 64 MiB; or use fewer data "
        "loader workers. Then {again}.",
    ),
    Reason.SEGFAULT: Entry(
        Category.INFRASTRUCTURE,
        "Native code crashed (SIGSEGV, SIGILL or SIGFPE, or glibc found its heap damaged): a library that does not fit "
        "the others or the CPU, or bad memory.",
        "If it repeats on other nodes, look at the extension that the last frames of the log name and its version; if "
        "it does so on one node only, have that node checked. Then {again}.",
    ),
    Reason.DEVICE_FAULT: Entry(
        Category.INFRASTRUCTURE,
        "A GPU, NVLink or its driver failed: an uncorrectable ECC error, an Xid, a device that is lost or busy.",
        "Have the GPUs of the node in the message checked (nvidia-smi -q, dmesg | grep Xid), and keep the job off it "
        "until then; {again}.",
    ),
    Reason.NCCL_TIMEOUT: Entry(
        Category.INFRASTRUCTURE,
        "Ranks waited for others in a collective until its timeout; the message says which had not arrived, and what "
        "they printed last, where that is known.",
        "If the rank that had not arrived still worked (tokenizing, saving, evaluating), do that before the ranks "
        "start, or raise the timeout of init_process_group; if it hung, look at its stack with py-spy. Then {again}.",
    ),
    Reason.NCCL_NETWORK: Entry(
        Category.INFRASTRUCTURE,
        "The connection between ranks broke or could not be made (NCCL, gloo or a store), and no rank failed before.",
        "Look at the network between the nodes in the message; NCCL_DEBUG=INFO and docs/transport.md show which "
        "interface is used. Where an address was in use, end what has the port, or choose another one. Then {again}.",
    ),
    Reason.RENDEZVOUS_TIMEOUT: Entry(
        Category.INFRASTRUCTURE,
        "The ranks did not all come to init_process_group, or to torchrun's rendezvous, before its timeout.",
        "Look at the logs of the ranks that did not come, at network policies, and at what the program does before "
        "init_process_group; {again}.",
    ),
    Reason.FINISHED_THEN_FAILED: Entry(
        Category.USER,
        "The program had come to its end: only its teardown failed, after the last step.",
        "Check that the last checkpoint or the model is whole; then nothing is lost, and no run from the start is "
        "needed. A call of torch.distributed.destroy_process_group() at the end of the program often cures it.",
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
    Reason.RESUME_MISMATCH: Entry(
        Category.USER,
        "Ranks of one data-parallel group, or of one pipeline, loaded checkpoints of different steps, or some found "
        "one and others none: DeepSpeed does not compare them, and would train on with parameters of several steps. "
        "The message names the ranks, pods and checkpoints. Where it may be meant, it is a finding and an event, and "
        "the run goes on.",
        "Let all ranks load one tag from one directory, on a volume that all pods share and not on a node's own disk: "
        "$(RESUME_FROM) in spec.training.args names it. Delete checkpoints saved since this round began: they mix "
        "steps. Then {again}.",
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
    Reason.HANG: Entry(
        Category.INFRASTRUCTURE,
        "No rank of any pod made a step, ended its evaluation or completed a checkpoint within the limit of "
        "`lifecycle`, or within the one that was learned (docs/hangs.md). The message says which rank is behind the "
        "others, and where it stands. Under a learned limit it is a finding and an event while the ranks hang, unless "
        "`lifecycle.hang` is Restart.",
        "Look at the stacks of all ranks, which the logs of their pods have: at the line of the rank that is behind, "
        "or, where all are in a collective, at the network and the GPUs. If they worked and need longer, raise the "
        "limit; {again}.",
    ),
    Reason.DEADLINE_EXCEEDED: Entry(
        Category.USER,
        "The ranks have run for `lifecycle.activeDeadlineSeconds`, over all attempts of the run (`status.run` counts "
        "them). They were told to end, and nothing restarts them.",
        "If the run needs more time, raise spec.lifecycle.activeDeadlineSeconds, and {again}.",
    ),
}
