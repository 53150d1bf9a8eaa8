"""The trainer's image, and what is known of it."""

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import AcceleratorSource, WorldAccelerator
from deepspeed_operator.job.accelerators import CPU, accelerator_of, names_accelerator
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.template import pod_template


def trainer_image(spec: DeepSpeedJobSpec, installation: Installation) -> str:
    """Return the image of the trainer container: the job's, else the installation's; empty if neither has one."""
    return spec.image or pod_template(spec).trainer.get("image") or installation.worker_image


def declared_version(spec: DeepSpeedJobSpec, installation: Installation) -> str | None:
    """Return the DeepSpeed version that the image is said to have; None (unknown) for an image that is not ours."""
    if spec.deepspeed_version is not None:
        return spec.deepspeed_version
    return installation.worker_deepspeed_version if is_worker_image(spec, installation) else None


def given_accelerator(spec: DeepSpeedJobSpec, installation: Installation) -> WorldAccelerator:
    """Return what the ranks run on: what the template names, else what the worker image or the install is for."""
    if names_accelerator(pod_template(spec)):
        return WorldAccelerator(name=accelerator_of(spec, CPU), source=AcceleratorSource.TEMPLATE)
    if is_worker_image(spec, installation):
        default, source = installation.worker_accelerator, AcceleratorSource.WORKER_IMAGE
    else:
        default, source = installation.default_accelerator, AcceleratorSource.INSTALL_DEFAULT
    resource = None if default == CPU else default
    return WorldAccelerator(name=accelerator_of(spec, default), resource=resource, source=source)


def is_worker_image(spec: DeepSpeedJobSpec, installation: Installation) -> bool:
    """Say whether the job runs in the worker image of the installation."""
    return trainer_image(spec, installation) == installation.worker_image
