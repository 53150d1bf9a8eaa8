"""What a platform team allows no job, or none of a namespace."""

from collections.abc import Iterator

from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.fleet import Fleet
from deepspeed_operator.api.gangs import GangScheduling
from deepspeed_operator.api.job import DeepSpeedJob, ObjectMeta
from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.api.queueing import LABEL_PRIORITY, Toleration
from deepspeed_operator.api.spec import DeepSpeedJobSpec, Training
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import list_at, object_at
from deepspeed_operator.dsconfig.wording import quoted
from deepspeed_operator.job.fabric.profile import chosen_profile
from deepspeed_operator.job.fleet_defaults import with_defaults
from deepspeed_operator.job.gang_scheduler import asked_gang
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.template import POD, PodTemplate, pod_template


def limit_findings(job: DeepSpeedJob, installation: Installation) -> Iterator[Finding]:
    """Yield an error for each limit that the job exceeds, with who has set it."""
    fleet, spec, namespace = installation.fleet, job.spec, job.metadata.namespace
    limits = fleet.limits_of(namespace)

    def exceeded(limit: str, path: str, value: str, allowed: str) -> Finding:
        setting = fleet.setting(namespace, limit)
        message = f"is {value}, and the platform team allows {allowed} ({setting} of the operator's chart)."
        return error(path, Code.EXCEEDS_LIMIT, message, "Write what is allowed, or ask the platform team.")

    if limits.max_nodes is not None and spec.nodes > limits.max_nodes:
        yield exceeded("max_nodes", "spec.nodes", f"{spec.nodes:,}", f"{limits.max_nodes:,} at most")
    profile = chosen_profile(spec)
    if limits.network_profiles is not None and profile not in {NetworkProfile.AUTO, *limits.network_profiles}:
        allowed = ", ".join([NetworkProfile.AUTO, *limits.network_profiles])
        yield exceeded("network_profiles", "spec.network.profile", profile, allowed)
    gang = asked_gang(spec)
    if gang not in {GangScheduling.AUTO, GangScheduling.NONE, *installation.gangs}:
        message = f"is {gang}, and the operator may make no PodGroup of its (gangs of the operator's chart)."
        yield error("spec.scheduling.gang", Code.EXCEEDS_LIMIT, message, "Remove it, or ask the platform team.")
    if limits.image_prefixes is not None:
        for path, image in _images(spec):
            if image != installation.worker_image and not any(_is_below(image, each) for each in limits.image_prefixes):
                allowed = f"images of {', '.join(limits.image_prefixes) or 'none but the worker image'}"
                yield exceeded("image_prefixes", path, quoted(image), allowed)
    if limits.priority_classes is not None:
        for path, name in _priority_classes(job):
            if name not in limits.priority_classes:
                allowed = ", ".join(limits.priority_classes) or "none"
                yield exceeded("priority_classes", path, quoted(name), allowed)


def contradictions(fleet: Fleet) -> Iterator[str]:
    """Yield where a job that says nothing would get by default what a limit, or Kubernetes, does not allow."""
    for namespace in ("", *fleet.namespaces):
        for toleration in fleet.defaults_of(namespace).tolerations or ():
            yield from _wrong_in(toleration)
        nodes = min(2, fleet.limits_of(namespace).max_nodes or 2)
        spec = DeepSpeedJobSpec(nodes=nodes, training=Training(script="train.py"))
        job, _ = with_defaults(
            DeepSpeedJob(metadata=ObjectMeta(name="any", namespace=namespace), spec=spec), fleet.defaults_of(namespace)
        )
        where = f"in namespace {namespace}" if namespace else "by default"
        for found in limit_findings(job, Installation("", fleet=fleet)):
            yield f"{found.path} of jobs that do not say it {where} {found.message}"


def _wrong_in(toleration: Toleration) -> Iterator[str]:
    """Yield why the API server would refuse each pod that has it."""
    where, exists = f"toleration of {toleration.key or 'all keys'}:", toleration.operator == "Exists"
    if toleration.operator not in {None, "Equal", "Exists"}:
        yield f"{where} operator must be Equal or Exists"
    if toleration.effect not in {None, "", "NoSchedule", "PreferNoSchedule", "NoExecute"}:
        yield f"{where} effect must be NoSchedule, PreferNoSchedule or NoExecute"
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        yield f"{where} tolerationSeconds needs effect NoExecute"
    if exists and toleration.value:
        yield f"{where} a value needs operator Equal"
    if not exists and not toleration.key:
        yield f"{where} without a key the operator must be Exists"


def _images(spec: DeepSpeedJobSpec) -> Iterator[tuple[str, str]]:
    """Yield the images that the job names, with their paths."""
    if spec.image is not None:
        yield "spec.image", spec.image
    template = pod_template(spec)
    for path, value in _images_of_template(template):
        if isinstance(value, str) and value:
            yield path, value


def _images_of_template(template: PodTemplate) -> Iterator[tuple[str, object]]:
    for kind in ("containers", "initContainers"):
        for at, container in enumerate(list_at(template.pod, kind)):
            yield f"{POD}.{kind}[{at}].image", object_at(container).get("image")
    for at, volume in enumerate(list_at(template.pod, "volumes")):
        yield f"{POD}.volumes[{at}].image.reference", object_at(volume, "image").get("reference")


def _is_below(image: str, prefix: str) -> bool:
    """Whether an image is what a prefix names: registry.example.com/team does not allow registry.example.com/teams."""
    rest = image.removeprefix(prefix)
    return image.startswith(prefix) and (not rest or prefix[-1] in "/:@" or rest[0] in "/:@")


def _priority_classes(job: DeepSpeedJob) -> Iterator[tuple[str, str]]:
    """Yield the priority classes that the job names, with their paths."""
    of_pods = pod_template(job.spec).pod.get("priorityClassName")
    if isinstance(of_pods, str) and of_pods:
        yield f"{POD}.priorityClassName", of_pods
    scheduling = job.spec.scheduling
    if scheduling is not None and scheduling.priority_class_name is not None:
        yield "spec.scheduling.priorityClassName", scheduling.priority_class_name
    elif job.queue_priority is not None:
        yield f"metadata.labels[{quoted(LABEL_PRIORITY)}]", job.queue_priority
