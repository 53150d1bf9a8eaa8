"""What `dsjob init` writes: a DeepSpeedJob that says why each number is as it is."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from deepspeed_operator.api.names import API_VERSION, KIND, TRAINER
from deepspeed_operator.api.status import World
from deepspeed_operator.cli.first_job import Choice, Framework, Wish
from deepspeed_operator.cli.plan_answer import cost
from deepspeed_operator.cli.yaml_writer import yaml_text
from deepspeed_operator.dsconfig.batch import ACCUMULATION, MICRO
from deepspeed_operator.dsconfig.wording import plural
from deepspeed_operator.job.accelerators import NVIDIA_GPU

_WIDTH: Final = 118
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Claim:
    """A volume claim with the data, and where the program finds it."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Program:
    """What runs. `script`: its path; `text`: what is in it, None where the image has it; `image`: None for the one of
    the operator; `version`: of DeepSpeed, None where nobody says it.
    """

    script: str
    text: str | None
    arguments: tuple[str, ...]
    image: str | None
    version: str | None
    claim: Claim | None


def manifest_text(name: str, wish: Wish, choice: Choice, program: Program, gpu_options: str) -> str:
    """Return the job, and the ConfigMap of its program where it has one.

    `gpu_options`: those by which `dsjob plan` knows the machine.
    """
    planned = choice.planned
    spec = _spec(name, wish, choice, program)
    lines = [*_wrapped(_title(choice, planned.job.world), ""), *_wrapped(_PLAN.format(gpu_options), "")]
    lines.append(yaml_text({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}).rstrip())
    lines.append("spec:")
    comments = _comments(wish, choice, program)
    for field, value in spec.items():
        lines += _wrapped(comments.get(field, ""), "  ")
        lines.append(textwrap.indent(yaml_text({field: value}).rstrip(), "  "))
    text = "\n".join(lines) + "\n"
    if program.text is None:
        return text
    files = {PurePosixPath(program.script).name: program.text}
    return f"{text}---\n{yaml_text({**_CONFIG_MAP, 'metadata': {'name': _files(name)}, 'data': files})}"


_PLAN: Final = "Other choices, and what they cost: `dsjob plan FILE {}` (docs/plan.md)."
_CONFIG_MAP: Final = {"apiVersion": "v1", "kind": "ConfigMap"}


def _title(choice: Choice, world: World) -> str:
    planned = choice.planned
    ranks = f"{plural(world.nodes, 'node')} with {world.slots_per_node} × {planned.job.device}"
    plan = planned.now.plan
    batch = f"micro batch {plan.micro}, accumulation {plan.accumulation}: {plan.samples} samples a step"
    return f"By `dsjob init`, for {ranks}: ZeRO stage {int(plan.setup.stage)}, {batch}. {cost(planned, planned.now)}."


def _spec(name: str, wish: Wish, choice: Choice, program: Program) -> dict[str, Any]:
    job = choice.planned.job
    training: dict[str, Any] = {"script": program.script}
    if program.text is not None:
        training = {"script": PurePosixPath(program.script).name, "files": {"configMap": _files(name)}}
    if wish.framework is not Framework.DEEPSPEED:
        training["integration"] = "Accelerate"
    arguments = [*_arguments(name, wish, choice, program), *program.arguments]
    if arguments:
        training["args"] = arguments
    found: dict[str, Any] = {"nodes": wish.nodes}
    if program.image is not None:
        found["image"] = program.image
    # The operator knows what its worker image has.
    if program.version is not None or program.image is not None:
        found["deepspeedVersion"] = wish.version
    found |= {
        "training": training,
        "dsConfig": dict(job.config),
        "model": choice.facts.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True),
    }
    if job.gpus is not None:
        found["gpuMemory"] = f"{job.gpus.smallest // _MIB}Mi"
    container: dict[str, Any] = {"name": TRAINER, "resources": {"limits": {NVIDIA_GPU: wish.slots}}}
    pod: dict[str, Any] = {"containers": [container]}
    if program.claim is not None:
        container["volumeMounts"] = [{"name": "data", "mountPath": program.claim.path}]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": program.claim.name}}]
    return {**found, "template": {"spec": pod}}


def _arguments(name: str, wish: Wish, choice: Choice, program: Program) -> list[str]:
    """Return what tells the Trainer the same as the configuration: it refuses what differs."""
    if wish.framework is not Framework.TRAINER:
        return []
    config = choice.planned.job.config
    batch = {"per_device_train_batch_size": config[MICRO], "gradient_accumulation_steps": config[ACCUMULATION]}
    half = "bf16" if "bf16" in config else "fp16"
    found = [
        "--deepspeed",
        "$(DEEPSPEED_CONFIG)",
        *(word for key, value in batch.items() for word in _option(key, value)),
    ]
    found += _option(half, "true")
    if choice.facts.activation_checkpointing:
        found += _option("gradient_checkpointing", "true")
    if program.claim is not None:
        found += _option("output_dir", PurePosixPath(program.claim.path) / name)
    return found


def _option(name: str, value: object) -> list[str]:
    return [f"--{name}", str(value)]


def _comments(wish: Wish, choice: Choice, program: Program) -> Mapping[str, str]:
    facts, device = choice.facts, choice.planned.job.device
    checkpointing = "with" if facts.activation_checkpointing else "without"
    kernel = facts.attention.value if facts.attention is not None else "any"
    samples = f"samples of at most {facts.sequence_length} tokens"
    usage = f"{samples}, {kernel} attention, {checkpointing} activation checkpointing"
    version = "Assumed: write what the image has." if program.version is None else ""
    look = f"`kubectl get nodes -L {NVIDIA_GPU}.product`"
    return {
        "deepspeedVersion": version,
        "training": _TRAINING[wish.framework],
        "model": f"What the memory is computed from, and what the program therefore has to do: {usage}.",
        "gpuMemory": f"Of {device}. Where nodes differ, write template.spec.nodeSelector ({look}).",
    }


_TRAINING: Final[Mapping[Framework, str]] = {
    Framework.DEEPSPEED: "Ranks find dsConfig by $DEEPSPEED_CONFIG: deepspeed.initialize(config=os.environ[...], ...).",
    Framework.TRAINER: "The Trainer refuses batch sizes and precision that differ from dsConfig: change them in both.",
    Framework.ACCELERATE: "The data loader takes train_micro_batch_size_per_gpu; the optimizer is the program's.",
}


def _files(name: str) -> str:
    return f"{name}-code"


def _wrapped(text: str, indent: str) -> list[str]:
    begin = f"{indent}# "
    return textwrap.wrap(text, _WIDTH, initial_indent=begin, subsequent_indent=begin, break_on_hyphens=False)
