"""What a platform team sets once for the jobs of an install, or of a namespace: their defaults and their limits."""

from typing import Annotated, Final

from pydantic import Field
from pydantic.alias_generators import to_camel

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.failure_policy import MAX_BACKOFF_SECONDS, Count, WarmInterpreters
from deepspeed_operator.api.markers import Atomic
from deepspeed_operator.api.network import Interface, NetworkProfile
from deepspeed_operator.api.quantity import QUANTITY_PATTERN
from deepspeed_operator.api.queueing import MAX_ASSIGNED, Name, Toleration
from deepspeed_operator.api.untyped import Json, list_at, object_at, present

_MAX_PATHS = 32


class NetworkDefaults(ApiModel):
    """For jobs of several nodes the profile, for all of them the interface."""

    profile: NetworkProfile | None = Field(
        default=None, description="Value of spec.network.profile, for jobs of several nodes."
    )
    interface: Interface | None = Field(default=None, description="Value of spec.network.interface.")


class FailurePolicyDefaults(ApiModel):
    """Fields of spec.failurePolicy."""

    max_restarts: Count | None = Field(default=None, description="Value of spec.failurePolicy.maxRestarts.")
    max_infrastructure_restarts: Count | None = Field(
        default=None, description="Value of spec.failurePolicy.maxInfrastructureRestarts."
    )
    restart_in_place: bool | None = Field(default=None, description="Value of spec.failurePolicy.restartInPlace.")
    replacement_deadline_seconds: int | None = Field(
        default=None, ge=0, le=86_400, description="Value of spec.failurePolicy.replacementDeadlineSeconds."
    )
    warm_interpreters: WarmInterpreters | None = Field(
        default=None, description="Value of spec.failurePolicy.warmInterpreters."
    )
    backoff_seconds: int | None = Field(
        default=None, ge=1, le=MAX_BACKOFF_SECONDS, description="Value of spec.failurePolicy.backoffSeconds."
    )
    avoid_blamed_nodes: bool | None = Field(default=None, description="Value of spec.failurePolicy.avoidBlamedNodes.")


class JobDefaults(ApiModel):
    """What jobs get that do not say it themselves."""

    image: str | None = Field(default=None, min_length=1, max_length=1024, description="Value of spec.image.")
    network: NetworkDefaults | None = Field(default=None, description="Fields of spec.network.")
    shared_memory: str | None = Field(
        default=None, max_length=64, pattern=QUANTITY_PATTERN, description="Value of spec.sharedMemory."
    )
    node_selector: dict[str, Annotated[str, Field(max_length=256)]] | None = Field(
        default=None, max_length=MAX_ASSIGNED, description="Labels of the nodes, added to the template's nodeSelector."
    )
    tolerations: Annotated[list[Toleration], Atomic()] | None = Field(
        default=None, max_length=MAX_ASSIGNED, description="Tolerations, added to the template's."
    )
    priority_class_name: Name | None = Field(default=None, description="Value of the template's priorityClassName.")
    queue_name: Name | None = Field(default=None, description="Value of spec.scheduling.queueName.")
    failure_policy: FailurePolicyDefaults | None = Field(default=None, description="Fields of spec.failurePolicy.")

    def over(self, below: "JobDefaults") -> "JobDefaults":
        """Return these defaults, and of the others what these leave open."""
        own, others = (each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in (self, below))
        return JobDefaults.model_validate(_merged(own, others))


class RunDefaults(JobDefaults):
    """The defaults that a run has."""

    paths: Annotated[list[Annotated[str, Field(max_length=128)]], Atomic()] = Field(
        max_length=_MAX_PATHS,
        description="The fields of spec whose values are these, in whole or, as with tolerations, in part.",
    )


class JobLimits(ApiModel):
    """What a job may not exceed."""

    max_nodes: int | None = Field(default=None, ge=1, le=10_000)
    max_jobs: int | None = Field(default=None, ge=0)  # of a namespace, whose runs have not ended
    network_profiles: list[NetworkProfile] | None = None  # beside Auto, which asks for nothing
    image_prefixes: list[Annotated[str, Field(min_length=1, max_length=1024)]] | None = None
    priority_classes: list[Name] | None = None  # of Kubernetes and of Kueue


class FleetRules(ApiModel):
    """What holds for the jobs of an install, or of a namespace."""

    defaults: JobDefaults = JobDefaults()
    limits: JobLimits = JobLimits()


class Fleet(FleetRules):
    """What holds for all jobs of the install, and by namespace what holds there besides, or instead."""

    namespaces: dict[Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")], FleetRules] = (
        Field(default={})
    )

    def defaults_of(self, namespace: str) -> JobDefaults:
        """Return what jobs of this namespace get."""
        named = self.namespaces.get(namespace)
        return named.defaults.over(self.defaults) if named is not None else self.defaults

    def limits_of(self, namespace: str) -> JobLimits:
        """Return what jobs of this namespace may not exceed: each limit is the namespace's, else the install's."""
        named = self.namespaces.get(namespace)
        return self.limits.model_copy(update=present(dict(named.limits))) if named is not None else self.limits

    def setting(self, namespace: str, limit: str) -> str:
        """Return the chart's value in which a limit of this namespace is set; `limit` is a field of JobLimits."""
        named = self.namespaces.get(namespace)
        own = named is not None and getattr(named.limits, limit) is not None
        return f"{f'fleet.namespaces.{namespace}' if own else 'fleet'}.limits.{to_camel(limit)}"


NO_FLEET: Final = Fleet()


def _merged(own: Json, below: Json) -> Json:
    """Return an object with the fields of both: of a field that both have, the first one's, or both where it has parts.

    An object has those of both, a list the items of both, each once.
    """
    merged = {**below, **own}
    for field in own.keys() & below.keys():
        if isinstance(own[field], dict):
            merged[field] = _merged(object_at(own, field), object_at(below, field))
        elif isinstance(own[field], list):
            items = list_at(own, field)
            merged[field] = [*items, *(each for each in list_at(below, field) if each not in items)]
    return merged
