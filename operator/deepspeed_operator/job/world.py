"""The ranks of a job."""

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import World
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.job.accelerators import accelerator_limits, whole
from deepspeed_operator.job.template import pod_template


def world_of(spec: DeepSpeedJobSpec) -> World:
    """Return the world that spec asks for. A slot is an accelerator of the trainer container, else the pod has one."""
    slots = spec.slots_per_node or accelerator_slots(spec) or 1
    size = spec.nodes * slots
    return World(nodes=spec.nodes, slots_per_node=slots, size=size, data_parallel=size)


def declared_parallelism(spec: DeepSpeedJobSpec) -> ParallelDegrees:
    """Return what the job says about how its script divides ranks."""
    return ParallelDegrees(**spec.parallelism.model_dump()) if spec.parallelism is not None else ParallelDegrees()


def accelerator_slots(spec: DeepSpeedJobSpec) -> int:
    """Return how many accelerators the template gives the trainer; 0 if it says none, or says nothing."""
    limits = accelerator_limits(pod_template(spec))
    return sum(whole(quantity) or 0 for quantity in limits.values())
