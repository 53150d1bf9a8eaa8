"""The spec of a DeepSpeedJob: what a user writes. Field descriptions are what `kubectl explain` prints."""

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.checkpoint import Checkpoint
from deepspeed_operator.api.elastic import Elastic
from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.api.failure_policy import FailurePolicy
from deepspeed_operator.api.lifecycle import PARTIAL_GANG_WITHIN_STARTUP, Lifecycle, SuccessPolicy
from deepspeed_operator.api.markers import Atomic, Cel, FreeForm, IntOrString
from deepspeed_operator.api.names import CONFIG_FILE, CONFIG_PATH
from deepspeed_operator.api.network import MINIMUM_NEEDS_PREFLIGHT, REQUIRE_NEEDS_FABRIC, Network
from deepspeed_operator.api.quantity import QUANTITY_PATTERN
from deepspeed_operator.api.queueing import JobScheduling


class Launcher(StrEnum):
    RANKS = "Ranks"
    DEEPSPEED = "DeepSpeed"
    TORCHRUN = "Torchrun"
    NONE = "None"


class AdmissionPolicy(StrEnum):
    ALWAYS = "Always"
    REQUIRE_FIT = "RequireFit"


class Integration(StrEnum):
    NONE = "None"
    ACCELERATE = "Accelerate"
    LIGHTNING = "Lightning"


Argument = Annotated[str, Field(max_length=4096)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class Files(ApiModel):
    """Files of a ConfigMap that the ranks find in their working directory."""

    config_map: ObjectName = Field(
        description="Name of a ConfigMap in the job's namespace. Each key becomes a file in /workspace, "
        "which is writable and the ranks' working directory. Example: my-code, made by `kubectl create configmap "
        "my-code --from-file=train.py`"
    )


class Training(ApiModel):
    """The program that every rank runs."""

    script: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="Path of a Python script, relative to the working directory or absolute. A job has one of script, "
        "module and command. Example: train.py",
    )
    module: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="Name of a Python module, run as `python -m`, instead of script. Example: my_package.train",
    )
    command: Annotated[list[Argument], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="A program and its first arguments, instead of script or module. With launcher Ranks every rank "
        "runs it, with launcher None every pod runs it once. Example, with launcher None: [torchrun, train.py]",
    )
    args: Annotated[list[Argument], Atomic()] = Field(
        default=[],
        max_length=1024,
        description="Arguments of the program. $(NAME) is replaced by the rank's variable NAME, $$(NAME) stays as "
        "$(NAME). $(RESUME_FROM) is the newest complete checkpoint; where there is none, the argument and its option "
        "are left out. Default: none. Example: [--deepspeed, $(DEEPSPEED_CONFIG)]",
    )
    config_path: str = Field(
        default=CONFIG_PATH,
        min_length=2,
        max_length=1024,
        pattern=r"^/[^:]*[^/:]$",
        description="Absolute path at which the ranks find dsConfig as a JSON file; it may cover a file of the image. "
        f"The variable DEEPSPEED_CONFIG holds this path. Default: {CONFIG_PATH}",
    )
    integration: Integration = Field(
        default=Integration.NONE,
        description="The framework that calls DeepSpeed: sets the variables by which it finds the configuration. "
        "Accelerate: ACCELERATE_USE_DEEPSPEED and ACCELERATE_DEEPSPEED_CONFIG_FILE. Lightning: "
        "PL_DEEPSPEED_CONFIG_PATH. None, the default: nothing; the Hugging Face Trainer takes the path as an argument.",
    )
    launcher: Launcher = Field(
        default=Launcher.RANKS,
        description="Who starts the ranks. Ranks, the default: the operator's agent starts slotsPerNode processes a "
        "pod, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set. DeepSpeed: the image's `deepspeed` "
        "command line, with the job's hostfile. Torchrun: the image's `torchrun`, once a pod. None: the command runs "
        "once a pod and starts its ranks itself (accelerate launch, a torchrun of its own); NNODES, NODE_RANK, "
        "NPROC_PER_NODE, MASTER_ADDR, MASTER_PORT and PET_* are set, and where the command names $WORLD_SIZE or $RANK "
        "these too, as in a PyTorchJob: pods, and the pod's index.",
    )
    python: str = Field(
        default="python3",
        min_length=1,
        max_length=1024,
        description="The ranks' Python interpreter, by name or absolute path. Default: python3. Example: "
        "/opt/conda/bin/python",
    )
    files: Files | None = Field(
        default=None,
        description="Files put into the ranks' working directory, which then is /workspace. Unset: the program is in "
        "the image or on a volume, and the working directory is the image's.",
    )
    debug: bool = Field(
        default=False,
        description="True starts no program: the pods come up, find each other and wait, so that you can run it by "
        "hand with `kubectl exec`. Delete or suspend the job to end that, or set false together with a new runId. "
        "docs/commands.md. Default: false",
    )

    @property
    def started_by(self) -> Launcher:
        """Who starts the ranks of the run: where it is debugged, a person does, whatever the launcher is later."""
        return Launcher.NONE if self.debug else self.launcher


class ConfigSource(ApiModel):
    """A ds_config in a ConfigMap."""

    config_map: ObjectName = Field(description="Name of a ConfigMap in the job's namespace. Example: my-ds-config")
    key: str = Field(
        default=CONFIG_FILE,
        min_length=1,
        max_length=253,
        pattern=r"^[-._a-zA-Z0-9]+$",
        description=f"Key whose value is the DeepSpeed configuration, as JSON or hjson. Default: {CONFIG_FILE}",
    )


Degree = Annotated[int, Field(ge=1, le=10_000)]


class Parallelism(ApiModel):
    """How the program divides its ranks besides data parallelism."""

    tensor: Degree | None = Field(
        default=None,
        description="Ranks that share each layer. Unset: tensor_parallel.autotp_size of dsConfig, else 1.",
    )
    pipeline: Degree | None = Field(
        default=None, description="Stages over which a deepspeed.PipelineModule spreads the layers. Unset: 1."
    )
    sequence: Degree | None = Field(
        default=None,
        description="Ranks that share each sequence (Ulysses). Unset: sequence_parallel_size of dsConfig, else 1.",
    )
    expert: Degree | None = Field(
        default=None,
        description="Ranks over which the experts of a mixture are spread. Unset: expert_parallel.autoep_size of "
        "dsConfig, else 1.",
    )


EXACTLY_ONE_PROGRAM = Cel(
    "[has(self.script), has(self.module), has(self.command)].filter(set, set).size() == 1",
    "spec.training: set exactly one of script, module and command",
)
LAUNCHER_NONE_NEEDS_COMMAND = Cel(
    "self.launcher != 'None' || has(self.command)",
    "spec.training.command: launcher None runs a command once per pod; write the command that starts the ranks, "
    "or choose launcher Ranks for a script or module",
)
LAUNCHER_NEEDS_PYTHON = Cel(
    "!(self.launcher in ['DeepSpeed', 'Torchrun']) || !has(self.command)",
    "spec.training.command: launchers DeepSpeed and Torchrun start a script or a module; use spec.training.script or "
    "module, or launcher None for a command that starts the ranks itself",
)
MANAGED_BY_STAYS = Cel(
    "self == oldSelf",
    "spec.managedBy: cannot change, since two controllers would run the job; delete the job and make it again",
)
ONE_CONFIG_SOURCE = Cel(
    "!(has(self.dsConfig) && has(self.dsConfigFrom))",
    "spec.dsConfigFrom: dsConfig and dsConfigFrom exclude each other; remove one of them",
)


class DeepSpeedJobSpec(ApiModel):
    """What to train, where, and with which DeepSpeed configuration."""

    nodes: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Number of pods, each a host of the DeepSpeed hostfile with slotsPerNode ranks. Default: 1",
    )
    slots_per_node: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Ranks per pod, usually the GPUs of a node. Unset: the accelerator limit of the template's trainer "
        "container (nvidia.com/gpu and others), else 1. Where the template names no accelerator, a pod is limited to "
        "so many of what the chart says: of worker.accelerator in jobs without an image, else of defaultAccelerator "
        "(nvidia.com/gpu unless changed); cpu limits nothing. nvidia.com/gpu: 0 in the template means: train on CPUs. "
        "status.run.world.accelerator says what holds. Example: 8",
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Image of the trainer container; short for spec.template.spec.containers[].image. It needs "
        "python3 (3.8 or newer), PyTorch and DeepSpeed, and nothing of the operator. Unset: the template's, else the "
        "chart's worker.image. Example: registry.example.com/team/llm:1.4",
    )
    training: Annotated[Training, EXACTLY_ONE_PROGRAM, LAUNCHER_NONE_NEEDS_COMMAND, LAUNCHER_NEEDS_PYTHON] = Field(
        description="The program that every rank runs."
    )
    ds_config: Annotated[dict[str, Any], FreeForm()] | None = Field(
        default=None,
        description="The DeepSpeed configuration, as its documentation writes it in JSON. It reaches the ranks key for "
        "key. train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × data-parallel size. "
        "Without it and dsConfigFrom the program configures DeepSpeed, and nothing is judged. Example: "
        "{train_micro_batch_size_per_gpu: 8, bf16: {enabled: true}, zero_optimization: {stage: 2}}",
    )
    ds_config_from: ConfigSource | None = Field(
        default=None,
        description="Takes the DeepSpeed configuration from a ConfigMap, instead of dsConfig. It is read once a run.",
    )
    deepspeed_version: str | None = Field(
        default=None,
        max_length=64,
        pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([-+.]?[a-zA-Z0-9]+)*$",
        description="DeepSpeed version in the image, by which dsConfig is judged. The agent compares it with what it "
        "finds; a difference is listed in status.findings. Unset: that of the chart's worker.image in its jobs, else "
        "unknown, and only what every version refuses is an error. Example: 0.19.8",
    )
    parallelism: Parallelism | None = Field(
        default=None,
        description="How the program divides its ranks, where dsConfig does not say it: the batch arithmetic depends "
        "on it. Unset: as dsConfig says, else all ranks are data-parallel.",
    )
    model: ModelFacts | None = Field(
        default=None,
        description="Facts about the model, by which memory and step time are computed: the condition MemoryFit and "
        "status.plan. Unset: neither is. docs/memory.md",
    )
    gpu_memory: Annotated[int | str, IntOrString(QUANTITY_PATTERN)] | None = Field(
        default=None,
        description="Memory of one GPU, in bytes or as a quantity. Unset: taken from template's node selector or "
        "affinity, where it names a GPU (nvidia.com/gpu.memory, nvidia.com/gpu.product, "
        "cloud.google.com/gke-accelerator), else from such labels of the nodes, if the operator may read them. "
        "Example: 80Gi",
    )
    admission: AdmissionPolicy = Field(
        default=AdmissionPolicy.ALWAYS,
        description="RequireFit refuses a job that certainly needs more memory than its GPUs have (condition MemoryFit "
        "False); where that is Unknown, the job runs. Always, the default, refuses none.",
    )
    network: Annotated[Network, REQUIRE_NEEDS_FABRIC, MINIMUM_NEEDS_PREFLIGHT] | None = Field(
        default=None, description="How the ranks reach each other. Unset: as their libraries choose."
    )
    shared_memory: Annotated[int | str, IntOrString(QUANTITY_PATTERN)] | None = Field(
        default=None,
        description="Size limit of /dev/shm, which NCCL, gloo and data loaders use; what is in it counts as the pod's "
        "memory. Unset: the trainer container's memory limit; without one, the node's. Example: 16Gi",
    )
    template: Annotated[dict[str, Any], FreeForm()] | None = Field(
        default=None,
        description="A PodTemplateSpec for the pods: resources, volumes, sidecars, tolerations and everything else, "
        "passed on untouched. The trainer container is the one named `trainer`, or the only one. Its args, "
        "restartPolicy, hostname, subdomain, nodeName and activeDeadlineSeconds belong to the operator. Unset: one "
        "container named trainer, with the accelerators that slotsPerNode describes. Example: "
        "{spec: {containers: [{name: trainer, resources: {limits: {nvidia.com/gpu: 8}}}]}}",
    )
    checkpoint: Checkpoint | None = Field(
        default=None,
        description="Where the program saves, and what may be done there before it goes on. Unset: found from its "
        "arguments and its output. docs/checkpoints.md",
    )
    elastic: Elastic | None = Field(
        default=None, description="With how few nodes the run goes on. Unset: with all of them, or not at all."
    )
    suspend: bool = Field(
        default=False,
        description="True deletes the pods and frees their GPUs; false afterwards begins a new attempt of the run. "
        "A result that arrives first wins. Default: false",
    )
    failure_policy: FailurePolicy | None = Field(
        default=None,
        description="After which failures the run goes on. Unset: failures of nodes, network and cluster, disruptions "
        "and unexplained signals start the ranks again; what repeats by itself ends the run. docs/failure-policy.md",
    )
    success_policy: SuccessPolicy = Field(
        default=SuccessPolicy.ALL_PODS,
        description="Whose success is that of the run. AllPods, the default: every pod's program ends with 0. Head: "
        "pod 0's does, and the others, which only serve it, are then told to end, as with Ray. One that fails before "
        "is a failure in both. With Head the world that the ranks form is not asserted.",
    )
    lifecycle: Annotated[Lifecycle, PARTIAL_GANG_WITHIN_STARTUP] | None = Field(
        default=None, description="Limits in time, and what is kept of a finished job. Unset: their defaults."
    )
    scheduling: JobScheduling | None = Field(
        default=None, description="The queue that the job waits in, and who places its pods. Unset: none."
    )
    run_id: str = Field(
        default="",
        max_length=64,
        description="Any text. Change it to run a finished job again, or to replace a running run by a new one: no "
        "rename, no delete. Default: empty. Example: second-try",
    )
    managed_by: Annotated[str, MANAGED_BY_STAYS] = Field(
        default="",
        max_length=63,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?)?$",
        description="The controller that runs the job, as in a Kubernetes Job. Empty, the default: this operator. Any "
        "other name: this operator leaves the job alone, and writes nothing to it or beside it. It cannot change. "
        "Example: kueue.x-k8s.io/multikueue",
    )

    @cached_property
    def memo(self) -> dict[str, object]:
        """Keeps what other modules have computed of this object, so that they compute it once; no part of its value.

        A copy shares it: whoever keeps something here compares the fields that it was computed of.
        """
        return {}

    @property
    def startup_deadline_seconds(self) -> int:
        return (self.lifecycle or Lifecycle()).startup_deadline_seconds
