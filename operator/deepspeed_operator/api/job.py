"""A whole DeepSpeedJob, as the API server stores it."""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, PrivateAttr

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.elastic import MIN_NODES_AT_MOST_NODES
from deepspeed_operator.api.ended_run import EndedRun, OperatorAnnotations
from deepspeed_operator.api.lifecycle import HEAD_NEEDS_PEERS
from deepspeed_operator.api.markers import Cel
from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN, API_VERSION, KIND, NAME_MAX_LENGTH, NAME_PATTERN
from deepspeed_operator.api.queueing import LABEL_PREBUILT, LABEL_PRIORITY, LABEL_QUEUE, QueueLabels
from deepspeed_operator.api.spec import ONE_CONFIG_SOURCE, DeepSpeedJobSpec
from deepspeed_operator.api.status import DeepSpeedJobStatus, Finding

# While a run is not terminal its definition stays: only `suspend`, or everything together with `runId`, may change.
# dsConfig and template are opaque to CEL; the operator keeps a run's configuration and says so in a finding.
_FROZEN_FIELDS = (
    "nodes", "slotsPerNode", "image", "training", "dsConfigFrom", "deepspeedVersion", "parallelism",
    "network", "sharedMemory", "checkpoint", "elastic", "failurePolicy", "successPolicy", "lifecycle", "scheduling",
)  # fmt: skip
_OPTIONAL_FIELDS = frozenset(_FROZEN_FIELDS) - {"nodes", "training", "successPolicy"}


def _same(field: str) -> str:
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    if field not in _OPTIONAL_FIELDS:
        return f"{new} == {old}"
    return f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"


# A run that was refused has not begun: it may be corrected without another runId.
_RUN_IN_PROGRESS = (
    "has(oldSelf.status) && has(oldSelf.status.run) && !has(oldSelf.status.run.completionTime) && "
    "has(oldSelf.status.run.id) && oldSelf.status.run.id == oldSelf.spec.runId"
)

NAME_RULE = Cel(
    f"self.metadata.name.size() <= {NAME_MAX_LENGTH} && self.metadata.name.matches('{NAME_PATTERN}')",
    f"metadata.name: at most {NAME_MAX_LENGTH} characters, lower-case letters, digits and -, beginning with a letter: "
    "pods and a Service are named after the job",
)
RUNNING_SPEC_RULES = tuple(
    Cel(
        f"!({_RUN_IN_PROGRESS}) || self.spec.runId != oldSelf.spec.runId || ({_same(field)})",
        f"spec.{field}: cannot change while a run is in progress; change spec.runId together with it to replace the "
        "run by a new one, or wait until the job is Complete or Failed",
    )
    for field in _FROZEN_FIELDS
)


class ObjectMeta(ApiModel):
    """The part of metadata that decides anything here."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: QueueLabels = Field(default={})
    annotations: OperatorAnnotations = Field(default={})


class DeepSpeedJob(ApiModel):
    """Runs multi-node DeepSpeed training: pods, hostfile and configuration from one object."""

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: ObjectMeta
    spec: DeepSpeedJobSpec
    status: DeepSpeedJobStatus = DeepSpeedJobStatus()
    _excess: tuple[Finding, ...] = PrivateAttr(default=())

    @property
    def excess(self) -> tuple[Finding, ...]:
        """What of the job was too large to be read: its spec is without it, and is refused."""
        return self._excess

    @property
    def queue_name(self) -> str | None:
        """The LocalQueue that spec asks for, or the job's label; None for no queue."""
        named = self.spec.scheduling.queue_name if self.spec.scheduling is not None else None
        return named or self.metadata.labels.get(LABEL_QUEUE) or None

    @property
    def queue_priority(self) -> str | None:
        """The WorkloadPriorityClass that spec asks for, or the job's label; None for none."""
        named = self.spec.scheduling.priority_class_name if self.spec.scheduling is not None else None
        return named or self.metadata.labels.get(LABEL_PRIORITY) or None

    @property
    def prebuilt_workload(self) -> str | None:
        """The Workload that somebody else has made for the job; None where the operator makes it."""
        return self.metadata.labels.get(LABEL_PREBUILT) or None

    @property
    def ended_run(self) -> EndedRun | None:
        """The run that has ended, as the job's annotation says, which a backup keeps; None: it says none."""
        text = self.metadata.annotations.get(ANNOTATION_ENDED_RUN)
        return EndedRun.of(text) if text is not None else None

    def without_excess(self, excess: Iterable[Finding]) -> Self:
        """Return the job as one that was read without what is too large."""
        job = self.model_copy()
        job._excess = tuple(excess)
        return job


class DeepSpeedJobSchema(ApiModel):
    """The part of a DeepSpeedJob that the CRD describes, with the rules that see the whole object."""

    spec: Annotated[DeepSpeedJobSpec, ONE_CONFIG_SOURCE, HEAD_NEEDS_PEERS, MIN_NODES_AT_MOST_NODES] = Field(
        description="What to train, where, and with which DeepSpeed configuration."
    )
    status: DeepSpeedJobStatus | None = Field(default=None, description="What is the case, why, and what came of it.")


ROOT_RULES: tuple[Cel, ...] = (NAME_RULE, *RUNNING_SPEC_RULES)
Root = Annotated[DeepSpeedJobSchema, *ROOT_RULES]
