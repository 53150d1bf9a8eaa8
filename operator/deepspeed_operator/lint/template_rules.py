"""What a template may not say, because it is the operator's to say; and what it had better not say."""

from collections.abc import Iterator

from deepspeed_operator.api.finding import Code, advice, error, warning
from deepspeed_operator.api.names import ENV_PREFIX, GROUP, LABEL_MANAGED_BY, OPERATOR, TRAINER
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import list_at, object_at
from deepspeed_operator.dsconfig.wording import quoted
from deepspeed_operator.job.accelerators import accelerator_limits, whole
from deepspeed_operator.job.image import trainer_image
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.template import POD, TEMPLATE, PodTemplate, pod_template
from deepspeed_operator.job.world import accelerator_slots
from deepspeed_operator.lint.mounts import mount_findings
from deepspeed_operator.lint.shapes import shape_findings

# Field → what to do instead of setting it.
_OURS_IN_POD = {
    "hostname": "Remove it: the hostfile names every pod.",
    "hostnameOverride": "Remove it: the hostfile names every pod.",
    "subdomain": "Remove it: the hostfile's names resolve through the job's own Service.",
    "nodeName": "Use nodeSelector or affinity, which the scheduler obeys.",
    "activeDeadlineSeconds": "Remove it; spec.lifecycle.startupDeadlineSeconds limits the time until all ranks run.",
}
_OURS_IN_TRAINER = {
    "args": "Write the program's arguments into spec.training.args; a command that runs its arguments may stay.",
    "restartPolicy": "Remove it: one container that starts anew cannot rejoin the other ranks.",
    "restartPolicyRules": "Remove it: one container that starts anew cannot rejoin the other ranks.",
}
_PASSED_METADATA = frozenset({"labels", "annotations", "creationTimestamp"})  # kubectl's generators write the last
_MESSAGE_PATH = "/dev/termination-log"


def template_findings(spec: DeepSpeedJobSpec, installation: Installation) -> list[Finding]:
    """Return everything about the template, and about fields that meet it, that is refused or deserves advice."""
    template = pod_template(spec)
    return [
        *shape_findings(template),
        *_ours_in_metadata(template),
        *_ours_in_pod(template),
        *_ours_in_trainer(template),
        *_unidentified_trainer(template),
        *_image(spec, template, installation),
        *mount_findings(spec),
        *_slots(spec, template),
        *_surprises(spec, template),
    ]


def _ours_in_metadata(template: PodTemplate) -> Iterator[Finding]:
    for field in template.written or {}:
        if field not in {"metadata", "spec"}:
            path = f"{TEMPLATE}.{_shown(field)}"
            yield error(path, Code.UNKNOWN_FIELD, "not a field of a pod template.", "Write metadata and spec only.")
    for field, value in template.metadata.items():
        if field not in _PASSED_METADATA and value is not None:
            path, fix = f"{TEMPLATE}.metadata.{_shown(field)}", "Remove it; labels and annotations may stay."
            yield error(path, Code.RESERVED_FIELD, "the operator names and owns the pods.", fix)
    for label, value in template.labels.items():
        path = f"{TEMPLATE}.metadata.labels[{quoted(label)}]"
        if label.startswith(f"{GROUP}/"):
            yield error(path, Code.RESERVED_NAME, f"labels of {GROUP} are the operator's.", "Choose another prefix.")
        elif label == LABEL_MANAGED_BY and value != OPERATOR:
            message = f"the operator finds its pods by this label, which is {OPERATOR}."
            yield error(path, Code.RESERVED_NAME, message, "Remove it.")


def _ours_in_pod(template: PodTemplate) -> Iterator[Finding]:
    pod = template.pod
    for field, instead in _OURS_IN_POD.items():
        if pod.get(field) is not None:
            yield error(f"{POD}.{field}", Code.RESERVED_FIELD, "this field is the operator's.", instead)
    if pod.get("restartPolicy") not in {None, "Never"}:
        message = "this field is the operator's: Never, because a gang starts and ends as a whole."
        yield error(f"{POD}.restartPolicy", Code.RESERVED_FIELD, message, "Remove it.")


def _ours_in_trainer(template: PodTemplate) -> Iterator[Finding]:
    trainer, path = template.trainer, template.trainer_path
    for field, instead in _OURS_IN_TRAINER.items():
        if trainer.get(field):
            message = "this field of the trainer container is the operator's."
            yield error(f"{path}.{field}", Code.RESERVED_FIELD, message, instead)
    if trainer.get("terminationMessagePath") not in {None, _MESSAGE_PATH}:
        message = f"the agent reports the cause of a failure at {_MESSAGE_PATH}."
        yield error(f"{path}.terminationMessagePath", Code.RESERVED_FIELD, message, "Remove it.")
    for position, variable in enumerate(list_at(trainer, "env")):
        name = object_at(variable).get("name")
        if isinstance(name, str) and name.startswith(ENV_PREFIX):
            message = f"{_shown(name)}: variables beginning with {ENV_PREFIX} are the operator's."
            yield error(f"{path}.env[{position}].name", Code.RESERVED_NAME, message, "Choose another name.")


def _unidentified_trainer(template: PodTemplate) -> Iterator[Finding]:
    containers = list_at(template.pod, "containers")
    if len(containers) > 1 and template.trainer_index is None:
        names = ", ".join(quoted(object_at(container).get("name")) for container in containers[:10])
        message = f"which container trains? There are {len(containers)} ({names}), none named {TRAINER}."
        yield error(f"{POD}.containers", Code.AMBIGUOUS_TRAINER, message, f"Name the training container {TRAINER}.")


def _image(spec: DeepSpeedJobSpec, template: PodTemplate, installation: Installation) -> Iterator[Finding]:
    templated, path = template.trainer.get("image"), template.trainer_path
    if spec.image and templated and spec.image != templated:
        message = (
            f"the trainer's image is given twice: {_shown(spec.image)}, and {_shown(str(templated))} in {path}.image."
        )
        yield error("spec.image", Code.CONTRADICTORY_IMAGES, message, "Keep one of them.")
    if not trainer_image(spec, installation):
        message = "no image: neither the job nor this installation of the operator names one."
        yield error("spec.image", Code.MISSING_IMAGE, message, "Name an image with python3, PyTorch and DeepSpeed.")


def _slots(spec: DeepSpeedJobSpec, template: PodTemplate) -> Iterator[Finding]:
    for resource, quantity in accelerator_limits(template).items():
        if whole(quantity) is None:
            where = f"{template.trainer_path}.resources.limits[{quoted(resource)}]"
            message = f"must be a whole number of devices, not {quoted(quantity)}."
            yield error(where, Code.INVALID_FIELD, message, "Write 8, for example.")
    accelerators, slots = accelerator_slots(spec), spec.slots_per_node
    if slots and slots > accelerators > 0:
        message = f"{slots} ranks per pod, but the template limits the trainer to {accelerators} accelerators."
        fix = f"Remove it ({accelerators} are the default), or raise the limit."
        yield error("spec.slotsPerNode", Code.MORE_RANKS_THAN_ACCELERATORS, message, fix)
    elif slots and slots < accelerators:
        message = f"{accelerators - slots} of the {accelerators} accelerators that the template gives a pod stay idle."
        fix = f"Remove it ({accelerators} are the default), or lower the limit."
        yield warning("spec.slotsPerNode", Code.IDLE_ACCELERATORS, message, fix)


def _surprises(spec: DeepSpeedJobSpec, template: PodTemplate) -> Iterator[Finding]:
    pod, trainer = template.pod, template.trainer
    for position, container in enumerate(list_at(pod, "containers")):
        if container is not trainer and trainer:
            message = "a plain sidecar keeps its pod, and so its GPUs, after the trainer has ended."
            fix = "Make it a native sidecar: an init container with restartPolicy Always."
            yield advice(f"{POD}.containers[{position}]", Code.PLAIN_SIDECAR, message, fix)
    if pod.get("hostNetwork") and pod.get("dnsPolicy") not in {None, "ClusterFirstWithHostNet"}:
        message = "with hostNetwork the hostfile's names resolve only with ClusterFirstWithHostNet."
        yield warning(f"{POD}.dnsPolicy", Code.DNS_POLICY, message, "Remove it: the operator sets that.")
    if trainer.get("workingDir") and spec.training.files is not None:
        message = "with spec.training.files the ranks' working directory is /workspace."
        yield warning(
            f"{template.trainer_path}.workingDir", Code.WORKING_DIRECTORY, message, "Remove it, or spec.training.files."
        )


def _shown(text: str) -> str:
    """A user's word, short and printable."""
    return quoted(text)[1:-1]
