"""spec.template, parsed once. A user may have written a value of any type anywhere in it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from posixpath import normpath
from typing import Any, Final, NamedTuple

from deepspeed_operator.api.names import SHARED_MEMORY, TEMPORARY, TRAINER
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at
from deepspeed_operator.job.node_selection import Demand, demand_of

TEMPLATE: Final = "spec.template"
POD: Final = f"{TEMPLATE}.spec"

_KINDS: Final = {"secret": "Secret", "configMap": "ConfigMap", "persistentVolumeClaim": "PersistentVolumeClaim"}
_OF_THE_NODE: Final = frozenset({"emptyDir", "downwardAPI", "serviceAccountToken"})


class VolumeSource(NamedTuple):
    """An object that a volume is made from; of a kind that we do not know, `kind` is volume and `name` the volume's."""

    kind: str
    name: str


@dataclass(frozen=True)
class PodTemplate:
    """A job's pod template. A value of a wrong type counts as absent; lint.shapes reports it.

    `written`: the template as the user wrote it, None if the job has none.
    `pod`: its spec.
    `containers`: the containers that are objects.
    `trainer`: the container named `trainer`, or the only one; empty if the template leaves it to us or is ambiguous.
    `trainer_index`: the trainer's place in the list of containers as written; None if there is no trainer.
    """

    written: Json | None
    pod: Json
    containers: list[Json]
    trainer: Json
    trainer_index: int | None

    @classmethod
    def parse(cls, written: Json | None) -> "PodTemplate":
        pod = object_at(written, "spec")
        containers = objects_at(pod, "containers")
        named = [container for container in containers if container.get("name") == TRAINER]
        trainer = next(iter(named or (containers if len(containers) == 1 else ())), None)
        index = next((at for at, each in enumerate(list_at(pod, "containers")) if each is trainer), None)
        return cls(written, pod, containers, {} if trainer is None else trainer, None if trainer is None else index)

    def __getstate__(self) -> dict[str, object]:
        """Leave to another process what is computed on demand: of a large template it is many times the template."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def metadata(self) -> Json:
        return object_at(self.written, "metadata")

    @property
    def labels(self) -> Json:
        return object_at(self.metadata, "labels")

    @property
    def annotations(self) -> Json:
        return object_at(self.metadata, "annotations")

    @property
    def pod_security_context(self) -> Json:
        return object_at(self.pod, "securityContext")

    @property
    def trainer_path(self) -> str:
        """Where the trainer is, as findings name it; the first container's place if there is no trainer."""
        return f"{POD}.containers[{self.trainer_index or 0}]"

    @property
    def limits(self) -> Json:
        """The trainer's limits, as all below."""
        return object_at(self.trainer, "resources", "limits")

    @property
    def requests(self) -> Json:
        return object_at(self.trainer, "resources", "requests")

    @property
    def claims(self) -> list[Any]:
        return list_at(self.trainer, "resources", "claims")

    @property
    def security_context(self) -> Json:
        return object_at(self.trainer, "securityContext")

    @cached_property
    def env(self) -> list[Json]:
        return objects_at(self.trainer, "env")

    @property
    def env_from(self) -> list[Any]:
        return list_at(self.trainer, "envFrom")

    @property
    def mounts_shared_memory(self) -> bool:
        """Whether the user mounts something of their own at /dev/shm."""
        return SHARED_MEMORY in self._mount_paths

    @property
    def lacks_temporary(self) -> bool:
        """Whether the root is read-only and nothing is mounted where programs put temporary files and caches."""
        return self.security_context.get("readOnlyRootFilesystem") is True and TEMPORARY not in self._mount_paths

    @cached_property
    def volumes(self) -> list[Json]:
        return objects_at(self.pod, "volumes")

    @cached_property
    def volume_sources(self) -> tuple[VolumeSource, ...]:
        """The objects that pods wait for until they exist, in the order of the volumes, each once."""
        return tuple(dict.fromkeys(_volume_sources(self.volumes)))

    @cached_property
    def demand(self) -> Demand:
        """What the pods demand of their nodes."""
        return demand_of(self.pod)

    @cached_property
    def _mount_paths(self) -> frozenset[str]:
        return frozenset(normpath(f"{each.get('mountPath')}") for each in objects_at(self.trainer, "volumeMounts"))


def pod_template(spec: DeepSpeedJobSpec) -> PodTemplate:
    """Return the job's template, which is parsed once for each spec object and kept as long as that."""
    parsed = spec.memo.get(TEMPLATE)
    if not isinstance(parsed, PodTemplate) or parsed.written is not spec.template:  # a copy may have another template
        spec.memo[TEMPLATE] = parsed = PodTemplate.parse(spec.template)
    return parsed


def _volume_sources(volumes: Iterable[Json]) -> Iterator[VolumeSource]:
    for volume in volumes:
        projected = objects_at(volume, "projected", "sources")
        for kind, source in (pair for part in projected or [volume] for pair in part.items()):
            if kind == "name" or kind in _OF_THE_NODE or object_at(source).get("optional"):
                continue
            yield VolumeSource(_KINDS.get(kind, "volume"), _object_name(object_at(source)) or str(volume.get("name")))


def _object_name(source: Json) -> str:
    return next((str(source[key]) for key in ("secretName", "claimName", "name") if key in source), "")
