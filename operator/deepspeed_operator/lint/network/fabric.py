"""What a profile needs that the template lacks, forbids or contradicts."""

from collections.abc import Iterator
from typing import Final

from deepspeed_operator.api.finding import Code, advice, warning
from deepspeed_operator.api.names import SHARED_MEMORY
from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.api.quantity import bytes_of
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.job.accelerators import Library
from deepspeed_operator.job.fabric.device_resources import is_huge, missing_resources, pages_left_out
from deepspeed_operator.job.fabric.guard import fallbacks
from deepspeed_operator.job.fabric.profile import FabricTransport, Profile, chosen_profile, instance_type
from deepspeed_operator.job.fabric.wish import wish_of
from deepspeed_operator.job.node_selection import INSTANCE_TYPE
from deepspeed_operator.job.template import POD, pod_template
from deepspeed_operator.lint.network.variables import PREFIX, Variable

PROFILE: Final = "spec.network.profile"
_EFA: Final = "vpc.amazonaws.com/efa"
# The agent asks NCCL for its connections where a job sets none of these.
_DEBUG: Final = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
_TELLING: Final = {"INFO", "TRACE"}
_OBSOLETE_ON_EFA: Final = {
    "FI_PROVIDER": "the plugin chooses the provider.",
    "FI_EFA_USE_DEVICE_RDMA": "libfabric decides it since 1.18.",
    "FI_EFA_FORK_SAFE": "the plugin sets it.",
    "RDMAV_FORK_SAFE": "on newer kernels it breaks what it is meant to mend.",
}


def fabric_findings(
    spec: DeepSpeedJobSpec, fabric: Profile, variables: dict[str, Variable], library: Library | None
) -> Iterator[Finding]:
    """Yield warnings and advice about the job's profile."""
    yield from _fabric(spec, fabric, library)
    yield from _devices(spec, fabric)
    yield from _unused(spec, variables)
    yield from _rdma(spec, fabric, variables)
    yield from _efa(spec, variables)
    yield from _wants(spec, fabric)
    yield from _wished(spec, variables)
    yield from _unseen(spec, variables)
    yield from _shared_memory(spec, library)


def _fabric(spec: DeepSpeedJobSpec, fabric: Profile, library: Library | None) -> Iterator[Finding]:
    """What the template lacks, or has, that the profile does not go with."""
    template, name = pod_template(spec), chosen_profile(spec)
    if name is NetworkProfile.NVLINK and spec.nodes > 1:
        message = f"NVLink ends at the node, and the job has {spec.nodes}: between them NCCL chooses."
        yield warning(
            PROFILE,
            Code.NVLINK_BETWEEN_NODES,
            message,
            "Name the fabric between the nodes; within one NVLink is used anyway.",
        )
    if library is not None and library.prefix != PREFIX and any(each.startswith(PREFIX) for each in fabric.environment):
        message = f"the profile's NCCL_ variables are left out: {library.name} carries the collectives."
        yield advice(
            PROFILE,
            Code.PROFILE_OF_NCCL,
            message,
            f"Set the {library.prefix} variables of your fabric in spec.network.env.",
        )
    if fabric.claim and not template.claims:
        message = "without a resource claim of a ComputeDomain the pods have no channel between their nodes."
        fix = "Name its claim template in spec.template.spec.resourceClaims, and the claim in the trainer's resources."
        yield warning(PROFILE, Code.NO_COMPUTE_DOMAIN, message, fix)
    attached = template.pod.get("hostNetwork") or template.claims or fabric.attachment in template.annotations
    if fabric.attachment is not None and not attached:
        message = "RoCE needs the rails' network interfaces in the pod, not their devices alone."
        yield warning(
            PROFILE,
            Code.NO_ROCE_INTERFACES,
            message,
            f"Attach them with the annotation {fabric.attachment}, or use hostNetwork.",
        )


def _devices(spec: DeepSpeedJobSpec, fabric: Profile) -> Iterator[Finding]:
    """Limits that are added for want of any in the template."""
    trainer = pod_template(spec).trainer
    missing = {name: each for name, each in missing_resources(fabric, trainer).items() if not is_huge(name)}
    for name in pages_left_out(fabric, trainer):
        message = f"{name} is left out: Kubernetes gives huge pages only beside cpu or memory."
        yield advice(PROFILE, Code.HUGE_PAGES, message, "Set a limit of memory for the trainer.")
    if missing and fabric.instances and instance_type(spec) not in fabric.instances:
        listed = ", ".join(
            f"{machine} {next(iter(each.resources.values()))}"
            for machine, each in fabric.instances.items()
            if each.resources
        )
        message = f"{_listed(missing)} is requested, of more that the machine may have ({listed})."
        yield warning(
            PROFILE,
            Code.ASSUMED_DEVICES,
            message,
            f"Select the machine by nodeSelector {INSTANCE_TYPE}, or set the limit.",
        )
    elif missing and not fabric.instances:
        message = f"{_listed(missing)} is requested, since the template's limits name no device of this fabric."
        yield advice(
            PROFILE,
            Code.ASSUMED_DEVICES,
            message,
            "If your device plugin calls it otherwise, write its name into the limits.",
        )


def _unused(spec: DeepSpeedJobSpec, variables: dict[str, Variable]) -> Iterator[Finding]:
    """RDMA devices that the template asks for, and that the job does not use, or perhaps not."""
    found = [name for name in pod_template(spec).limits if name == _EFA or name.startswith("rdma/")]
    net = variables.get("NCCL_NET")
    over_tcp = (net.value or "").lower() == "socket" if net is not None else chosen_profile(spec) is NetworkProfile.TCP
    if not found or spec.nodes == 1:
        return
    fit = [NetworkProfile.AWS_EFA] if found[0] == _EFA else [NetworkProfile.INFINIBAND, NetworkProfile.ROCE]
    fix = f"Write {' or '.join(fit)}, or your cloud's."
    if over_tcp:
        message = f"the template asks for {found[0]}, which is not used over TCP."
        yield warning(PROFILE if net is None else net.path, Code.UNUSED_RDMA, message, f"Remove one of the two. {fix}")
    elif chosen_profile(spec) is NetworkProfile.AUTO:
        message = f"the template asks for {found[0]}, but without a profile NCCL turns to TCP silently."
        yield advice(PROFILE, Code.UNUSED_RDMA, message, fix)


def _rdma(spec: DeepSpeedJobSpec, fabric: Profile, variables: dict[str, Variable]) -> Iterator[Finding]:
    """RDMA that is asked for, and then prevented."""
    if fabric.transport is not FabricTransport.RDMA:
        return
    disabled, net = variables.get("NCCL_IB_DISABLE"), variables.get("NCCL_NET")
    if disabled is not None and disabled.value == "1" and not fabric.environment["NCCL_NET"].startswith("AWS"):
        yield warning(
            disabled.path,
            Code.RDMA_PREVENTED,
            disabled.said("contradicts the profile, which asks for RDMA."),
            "Remove it.",
        )
    if net is not None and (net.value or "").lower() == "socket":
        yield warning(
            net.path,
            Code.RDMA_PREVENTED,
            net.said("Socket contradicts the profile, which asks for RDMA."),
            "Remove it.",
        )
    template = pod_template(spec)
    context = {**template.pod_security_context, **template.security_context}
    user = context.get("runAsUser")
    if fabric.locks_memory and (user if user is not None else context.get("runAsNonRoot")):
        who = f"user {user}" if user is not None else "a user other than root"
        message = f"IPC_LOCK has no effect for {who}: memory that is not locked cannot be registered for RDMA."
        fix = "Run the trainer as root, or give the nodes' containerd LimitMEMLOCK=infinity."
        yield warning(PROFILE, Code.MEMLOCK, message, fix)


def _efa(spec: DeepSpeedJobSpec, variables: dict[str, Variable]) -> Iterator[Finding]:
    template = pod_template(spec)
    if _EFA not in template.limits and chosen_profile(spec) is not NetworkProfile.AWS_EFA:
        return
    for variable in variables.values():
        if variable.name in _OBSOLETE_ON_EFA:
            message = f"not to be set on EFA: {_OBSOLETE_ON_EFA[variable.name]}"
            yield warning(variable.path, Code.OBSOLETE_ON_EFA, variable.said(message), "Remove it.")
        elif variable.name.startswith("NCCL_IB_"):
            message = "has no effect on EFA, which is reached through libfabric."
            yield warning(variable.path, Code.OBSOLETE_ON_EFA, variable.said(message), "Remove it.")
    for position, volume in enumerate(template.volumes):
        if object_at(volume, "hostPath").get("path") == "/dev/infiniband":
            path = f"{POD}.volumes[{position}].hostPath"
            message = "shows libfabric devices that the pod was not given, and then it finds none."
            yield warning(path, Code.OBSOLETE_ON_EFA, message, "Remove it: the device plugin brings the devices.")


def _wished(spec: DeepSpeedJobSpec, variables: dict[str, Variable]) -> Iterator[Finding]:
    """A fabric that variables ask for, without its devices."""
    wish = wish_of(spec)
    if wish is None or wish.has_devices(pod_template(spec)):
        return
    variable = variables[wish.variable]
    message = f"asks for {wish.fabric}, of which the pod gets no device: NCCL finds none, and turns to TCP silently."
    fix = f"Write spec.network.profile: {' or '.join(wish.profiles)}, which brings them, or your cloud's."
    yield warning(variable.path, Code.NO_FABRIC_DEVICES, variable.said(message), fix)


def _wants(spec: DeepSpeedJobSpec, fabric: Profile) -> Iterator[Finding]:
    """What the namespace must admit, and what the operator cannot bring."""
    if not fabric.needs and fabric.pod_security == "restricted":
        return
    parts: list[str] = []
    if fabric.pod_security != "restricted":
        parts.append(f"pods that only a namespace of Pod Security level {fabric.pod_security} admits ({_why(fabric)})")
    if fabric.locks_memory:
        parts.append("an unlimited memlock for the container (ulimit -l), which the agent checks")
    parts.append(f"{SHARED_MEMORY} (here: {_shared_memory_size(spec)})")
    yield advice(PROFILE, Code.PROFILE_NEEDS, f"{chosen_profile(spec)} needs {'; '.join([*parts, *fabric.needs])}.")


def _why(fabric: Profile) -> str:
    reasons = (
        ["a privileged container"] if fabric.privileged else [f"capability {each}" for each in fabric.capabilities]
    )
    if fabric.host_network:
        reasons.append("the node's network")
    if any("hostPath" in volume.source for volume in fabric.volumes):
        reasons.append("hostPath volumes")
    return ", ".join(reasons)


def _shared_memory_size(spec: DeepSpeedJobSpec) -> str:
    limit = pod_template(spec).limits.get("memory")
    if spec.shared_memory is None and limit is None:
        return "up to the node's memory, as no memory limit is set"
    return f"{spec.shared_memory}" if spec.shared_memory else f"{limit}, the memory limit"


def _unseen(spec: DeepSpeedJobSpec, variables: dict[str, Variable]) -> Iterator[Finding]:
    """A report of NCCL's that would be needed to know whether the profile's fabric is used."""
    given = [variables[name] for name in _DEBUG if name in variables]
    level = variables.get("NCCL_DEBUG")
    told = level is not None and (level.value is None or level.value.upper() in _TELLING)
    if given and not told and chosen_profile(spec) is not NetworkProfile.AUTO and fallbacks(spec):
        stops = spec.network is not None and spec.network.require
        message = f"NCCL tells no connections then: whether they are {chosen_profile(spec)}'s stays unknown"
        message += ", and spec.network.require stops nothing." if stops else "."
        yield warning(
            given[0].path,
            Code.TRANSPORT_UNSEEN,
            message,
            f"Write NCCL_DEBUG: INFO, or set none of {', '.join(_DEBUG)}.",
        )


def _shared_memory(spec: DeepSpeedJobSpec, library: Library | None) -> Iterator[Finding]:
    """NCCL's troubleshooting guide asks for 1 GiB of /dev/shm."""
    size = bytes_of(spec.shared_memory) if spec.shared_memory is not None else None
    if library is not None and library.prefix == PREFIX and size is not None and size < 2**30:
        message = f"{SHARED_MEMORY} of {spec.shared_memory} is less than the 1Gi that NCCL asks for."
        yield warning("spec.sharedMemory", Code.SHARED_MEMORY_SIZE, message, "Write 1Gi or more, or remove it.")


def _listed(resources: dict[str, str]) -> str:
    return ", ".join(f"{name}: {quantity}" for name, quantity in resources.items())
