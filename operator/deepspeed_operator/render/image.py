"""The trainer's image, and what is known of it."""

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.plan.trainer import trainer_of
from deepspeed_operator.render.installation import Installation


def trainer_image(spec: DeepSpeedJobSpec, installation: Installation) -> str:
    """Return the image of the trainer container: the job's, else the installation's; empty if neither has one."""
    return spec.image or (trainer_of(spec.template) or {}).get("image") or installation.worker_image


def declared_version(spec: DeepSpeedJobSpec, installation: Installation) -> str | None:
    """Return the DeepSpeed version that the image is said to have; None (unknown) for an image that is not ours."""
    if spec.deepspeed_version is not None:
        return spec.deepspeed_version
    ours = trainer_image(spec, installation) == installation.worker_image
    return installation.worker_deepspeed_version if ours else None
