"""One attempt of a job as Kubernetes objects: Service, ConfigMap, pods, EndpointSlices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from deepspeed_operator.api.attempt_status import Replacement
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import (
    ANNOTATION_TEMPLATE,
    CONFIG_FILE,
    HOSTFILE,
    LABEL_INDEX,
    LABEL_INSTANCE,
    LABEL_NAME,
    LABEL_REPLACEMENT,
    LAUNCH_FILE,
    RUN_CONFIG_FILE,
    content_name,
    host_name,
    pod_name,
)
from deepspeed_operator.api.queueing import Placement
from deepspeed_operator.api.status import World
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.digest import template_digest
from deepspeed_operator.job.fabric.profile import profile_of
from deepspeed_operator.job.image import declared_version, is_worker_image, trainer_image
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.ports import Ports, ports
from deepspeed_operator.job.template import PodTemplate, pod_template
from deepspeed_operator.render.content import hostfile, launch_document
from deepspeed_operator.render.contributor import Contributor, annotations_for, pod_for, trainer_for
from deepspeed_operator.render.endpoints import endpoint_slices
from deepspeed_operator.render.hardening import Hardening
from deepspeed_operator.render.identity import attempt_labels, child_metadata, job_labels
from deepspeed_operator.render.network_profile import Fabric
from deepspeed_operator.render.pod import AGENT_KEY, DEFAULT_CONTAINER, GangMembership, place_trainer, pod_volumes
from deepspeed_operator.render.pod_group import PodGroupMembership, pod_group
from deepspeed_operator.render.scheduling import Scheduling
from deepspeed_operator.render.trainer_container import trainer_container, with_index


@dataclass(frozen=True)
class Attempt:
    """Renders the children of one attempt. Manifests share parts with each other: read them, never change them."""

    job: DeepSpeedJob
    attempt: int
    world: World
    config_text: str | None  # ds_config.json as the ranks read it; None: the job has no configuration
    installation: Installation
    run_config_text: str | None = None  # that of the run, which is kept for its later attempts; None: it is the same

    @cached_property
    def ports(self) -> Ports:
        return ports(self.job.metadata.uid, self.attempt)

    def service(self) -> Json:
        """Return the headless Service through which the hostfile's names resolve, ready or not."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": child_metadata(self.job, self.job.metadata.name, job_labels(self.job)),
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True},
        }

    def config_map(self) -> Json:
        """Return the immutable ConfigMap with everything that the pods read."""
        spec = self.job.spec
        config_path = None if self.config_text is None else spec.training.config_path
        version = declared_version(spec, self.installation)
        hosts = (host_name(self.job.metadata.name, self.attempt, index) for index in range(self.world.nodes))
        data = {
            HOSTFILE: hostfile(hosts, self.world),
            LAUNCH_FILE: launch_document(
                self.job, self.attempt, self.world, ports=self.ports, config_path=config_path, deepspeed=version
            ),
        }
        if self.config_text is not None:
            data[CONFIG_FILE] = self.config_text
        if self.run_config_text is not None:
            data[RUN_CONFIG_FILE] = self.run_config_text
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": child_metadata(self.job, self._content_name, self._labels),
            "immutable": True,
            "data": data,
            "binaryData": {AGENT_KEY: self.installation.agent},
        }

    def secret(self) -> Json:
        """Return the immutable Secret of the same name, for the token that only the controller knows to put in."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": child_metadata(self.job, self._content_name, self._labels),
            "immutable": True,
        }

    def pod_groups(self) -> list[Json]:
        """Return the PodGroup of the scheduler whose gang the run is, if it is any's."""
        metadata = child_metadata(self.job, self._content_name, self._labels)
        return [pod_group(each.gang, metadata, self.world.nodes, self._template) for each in self._membership]

    def pod(self, index: int) -> Json:
        """Return the pod with this index: the one that the attempt began with, or the latest that takes its place."""
        job, replacement = self.job.metadata.name, self._replacements.get(index)
        number = replacement.number if replacement is not None else 0
        name = pod_name(job, self.attempt, index, number)
        trainer = with_index(self._trainer, index, replacement)
        annotations = {
            DEFAULT_CONTAINER: trainer["name"],
            **annotations_for(self._contributors),
            **self._template.annotations,
            **(self._placement.annotations if self._placement is not None else {}),
            ANNOTATION_TEMPLATE: self._template_digest,
        }
        labels = {
            **self._template.labels,
            **(self._placement.labels if self._placement is not None else {}),
            **{label: value for each in self._membership for label, value in each.labels.items()},
            **{label: value for label, value in self._labels.items() if label not in self._kept_labels},
            LABEL_INDEX: str(index),
            **({LABEL_REPLACEMENT: str(number)} if number else {}),
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**child_metadata(self.job, name, labels, keeps_job=True), "annotations": annotations},
            "spec": {
                **self._pod_spec,
                "hostname": pod_name(job, self.attempt, index),
                "containers": place_trainer(self.job.spec, trainer),
            },
        }

    def endpoint_slices(self, addresses: Mapping[int, str]) -> list[Json]:
        """Return the EndpointSlices for the pods with an address, by index."""
        return endpoint_slices(self.job, self.attempt, addresses)

    @property
    def _content_name(self) -> str:
        return content_name(self.job.metadata.name, self.job.metadata.uid, self.attempt)

    @property
    def _template(self) -> PodTemplate:
        return pod_template(self.job.spec)

    @cached_property
    def _labels(self) -> dict[str, str]:
        return attempt_labels(self.job, self.attempt)

    @cached_property
    def _replacements(self) -> Mapping[int, Replacement]:
        known = self.job.status.attempt
        return known.latest_replacements if known is not None and known.number == self.attempt else {}

    @property
    def _excluded_nodes(self) -> Sequence[str]:
        known = self.job.status.attempt
        return known.excluded_nodes or () if known is not None and known.number == self.attempt else ()

    @property
    def _placement(self) -> Placement | None:
        known = self.job.status.attempt
        return known.placement if known is not None and known.number == self.attempt else None

    @cached_property
    def _membership(self) -> tuple[PodGroupMembership, ...]:
        run = self.job.status.run
        gang = run.gang if run is not None else None
        return (PodGroupMembership(gang, self._content_name),) if gang is not None else ()

    @cached_property
    def _template_digest(self) -> str:
        return template_digest(self.job)

    @cached_property
    def _kept_labels(self) -> frozenset[str]:
        """Labels of ours that nobody selects by: the template's own value is kept."""
        return frozenset(label for label in (LABEL_NAME, LABEL_INSTANCE) if label in self._template.labels)

    @cached_property
    def _contributors(self) -> tuple[Contributor, ...]:
        spec = self.job.spec
        return (
            Fabric(profile_of(spec), self._template),
            GangMembership(self.job.metadata.name, pod_volumes(spec, self._content_name)),
            Scheduling(self._labels, self._excluded_nodes, self._placement),
            *self._membership,
            *([Hardening()] if is_worker_image(spec, self.installation) else []),
        )

    @cached_property
    def _pod_spec(self) -> Json:
        spec = pod_for(self._template, self._contributors)
        if spec.get("terminationGracePeriodSeconds") == 0:
            # Kubernetes forgets such a pod as soon as it is deleted, while its ranks may still write.
            spec = {**spec, "terminationGracePeriodSeconds": 1}
        return spec

    @cached_property
    def _trainer(self) -> Json:
        trainer = trainer_container(
            self.job.spec,
            trainer_image(self.job.spec, self.installation),
            self.world,
            agent_port=self.ports.agent,
            has_config=self.config_text is not None,
            host_network=bool(self._pod_spec.get("hostNetwork")),
        )
        return trainer_for(trainer, self._pod_spec, self._contributors)
