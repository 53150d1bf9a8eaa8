"""What a job costs, from its spec."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepspeed_operator.api.quantity import bytes_of
from deepspeed_operator.api.spec import DeepSpeedJobSpec, Integration
from deepspeed_operator.api.status import Batch, World
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.dsconfig.versions import judge_of
from deepspeed_operator.job.gpus import Gpus
from deepspeed_operator.job.precision import decided, undecided
from deepspeed_operator.job.template import pod_template
from deepspeed_operator.job.units import gib
from deepspeed_operator.job.world import declared_parallelism
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.fit import Fit, MemoryFit, fit_of
from deepspeed_operator.plan.memory.host import certain_host_memory, host_memory, loading
from deepspeed_operator.plan.memory.peaks import Memory, memory
from deepspeed_operator.plan.model.architecture import Model, UnknownModelError
from deepspeed_operator.plan.model.declared import model_of


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a job's traffic and memory follow from."""

    config: Mapping[str, Any]
    model: Model
    micro: int
    accumulation: int
    world: int
    version: str
    parallelism: ParallelDegrees
    undecided: tuple[str, ...] = ()  # sections that config has as they are assumed to be
    framework: bool = False  # whether one runs the steps, such as transformers' Trainer

    def fit(self, capacity: int) -> MemoryFit:
        """Compare with a GPU's memory: what an assumed precision could make otherwise is Unknown."""
        found = fit_of(self.setup, self.model, self.micro, self.accumulation, capacity)
        for name in self.undecided:
            section = object_at(self.config, name)
            config = {**self.config, name: {**section, "enabled": not section.get("enabled")}}
            other = setup_of(config, self.world, self.version, self.parallelism)
            if fit_of(other, self.model, self.micro, self.accumulation, capacity).fit is not found.fit:
                return replace(found, fit=Fit.UNKNOWN, open=(*found.open, f"{name}.enabled, which is auto"))
        return found

    @property
    def memory(self) -> Memory:
        """What its ranks need of a GPU, as far as that is known."""
        return memory(self.setup, self.model, self.micro, self.accumulation)

    def pod(self, slots: int) -> float:
        """Bytes of memory that a pod of so many ranks needs at least."""
        return sum(item.size for item in host_memory(self.setup, self.model, self.micro, self.accumulation, slots))

    def pod_at_least(self, slots: int) -> float:
        """Bytes of memory that a pod of so many ranks holds for certain."""
        return 0.0 if self.undecided else certain_host_memory(self.setup, self.model, slots)

    def loading(self, slots: int) -> float:
        """Bytes that a pod of so many ranks needs besides while it loads the model, unless zero.Init divides it."""
        return loading(self.setup, self.model, slots)

    @property
    def setup(self) -> Setup:
        """The configuration as the planner asks it."""
        return setup_of(self.config, self.world, self.version, self.parallelism)


@dataclass(frozen=True, slots=True)
class Missing:
    """Why nothing can be said of a job's costs: the path of what is missing or wrong, and why."""

    path: str
    why: str
    wrong: bool = False


def case_of(
    spec: DeepSpeedJobSpec,
    config: Mapping[str, Any],
    world: World,
    batch: Batch | None,
    version: str | None,
) -> Case | Missing:
    """Return what the costs of a judged job follow from, whatever it trains on."""
    if spec.model is None:
        return Missing("spec.model", "it is not given")
    judge = judge_of(version) if version is not None else None
    if judge is None:
        return Missing("spec.deepspeedVersion", "the DeepSpeed version of the image is not known")
    if batch is None or batch.micro_per_gpu is None or batch.accumulation is None:
        return Missing("spec.dsConfig", "it leaves the batch sizes to the framework")
    try:
        model = model_of(spec.model)
    except UnknownModelError as error:
        return Missing("spec.model", str(error), wrong=True)
    parallelism = declared_parallelism(spec)
    micro, accumulation = batch.micro_per_gpu, batch.accumulation
    return Case(
        config=decided(config),
        model=model,
        micro=micro,
        accumulation=accumulation,
        world=world.size,
        version=judge.version,
        parallelism=parallelism,
        undecided=undecided(config),
        framework=spec.training.integration is not Integration.NONE,
    )


def plan_memory(case: Case | Missing, gpus: Gpus | None) -> MemoryFit | Missing:
    """Return whether a job's memory is enough, or why that cannot be said.

    Of GPUs that differ, the smallest decides that it is, and the largest that it is not.
    """
    if isinstance(case, Missing):
        return case
    if gpus is None or not gpus.smallest:
        unknown = f", and nodes have {gpus.kinds[0].name}" if gpus is not None and gpus.kinds[0].name else ""
        need = f"it needs about {gib(case.memory.needed)} of a GPU, whose memory is not known{unknown}"
        return Missing("spec.gpuMemory", need)
    least = case.fit(gpus.smallest)
    most = case.fit(gpus.largest) if gpus.largest != gpus.smallest else least
    if least.fit is Fit.YES or gpus.smallest == gpus.largest:
        found = least
    elif most.fit is Fit.NO:
        found = most
    else:
        found = replace(least, fit=Fit.UNKNOWN, open=(*least.open, "which of the GPUs its ranks get"))
    return replace(found, source=gpus.source_of(found.capacity))


def pod_limit(spec: DeepSpeedJobSpec) -> int | None:
    """Return the bytes that the trainer container is limited to, None for no limit."""
    limit = pod_template(spec).limits.get("memory")
    return bytes_of(limit) if limit is not None else None
