"""Making Services, ConfigMaps, EndpointSlices and PodGroups exist, with one write each where nothing is in the way."""

import hashlib
import json
import logging
from collections.abc import Iterable
from typing import Final

from deepspeed_operator.api.gangs import GangScheduling
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.clock import steady
from deepspeed_operator.controller.contents import contains, merged
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.memory import Ensured, JobMemory
from deepspeed_operator.controller.ownership import Owner, describe_owner, owner_of
from deepspeed_operator.controller.resources import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    POD_GROUPS,
    SECRETS,
    SERVICES,
    Json,
    Resource,
    resource_of,
)

# A child is believed in for so long: while its job is being started it is doubted again and again.
TRUSTED_SECONDS = 15.0
_UNDELETABLE: Final = frozenset({SECRETS, SERVICES, ENDPOINT_SLICES})

_log = logging.getLogger(__name__)


class TryAgainSoonError(Exception):
    """Something that ends by itself is in the way."""


class RefusedError(Exception):
    """A child cannot be made: the server's words, or whose object has its name."""

    def __init__(self, message: str, *, name_taken: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.name_taken = name_taken


class NamespaceTerminatingError(Exception):
    """Nothing can be made in this namespace any more."""


async def ensure(client: Client, job: DeepSpeedJob, memory: JobMemory, manifest: Json, *, doubted: bool) -> None:
    """Make the object exist with at least this content; where that is doubted, look although it was there before.

    Raises RefusedError, TryAgainSoonError or NamespaceTerminatingError if it does not.
    """
    name = manifest["metadata"]["name"]
    identity = manifest["kind"], name
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    known = memory.ensured.get(identity)
    if known is not None and known.digest == digest and not (doubted and steady() - known.at > TRUSTED_SECONDS):
        return
    resource = resource_of(manifest)
    # Of an attempt that this process began there is nothing yet: post at once. Else somebody may have: read first.
    unknown = memory.begun_attempt == job.status.attempt_number and known is None
    live = None if unknown else await read(client, resource, job.metadata.namespace, name)
    if live is None:
        if known is not None:
            _log.warning("%s %s/%s is gone and is made again", manifest["kind"], job.metadata.namespace, name)
        live = await _create(client, job, resource, manifest)
    if live is not None:
        await _adjust(client, job, resource, live, manifest)
    memory.ensured[identity] = Ensured(digest, steady())


async def ensure_secret(client: Client, job: DeepSpeedJob, memory: JobMemory, manifest: Json) -> None:
    """Make the attempt's Secret exist, without ever reading it.

    What has its name is taken for ours. The name holds the attempt and characters of the job's uid, which nobody knows
    before the job is there; who is quick enough to make a Secret of that name may write Secrets in the namespace, and
    gains nothing by it: all pods of the attempt take their token from it, and one without a token ends them.
    """
    name = manifest["metadata"]["name"]
    identity, namespace = (manifest["kind"], name), job.metadata.namespace
    known = memory.ensured.get(identity)
    if known is not None and steady() - known.at <= TRUSTED_SECONDS:
        return
    try:
        # A create would do to look, but for a quota: it refuses what exists already, too.
        new = known is None and memory.begun_attempt == job.status.attempt_number
        if new or not await client.deletable(SECRETS, namespace, name):
            if known is not None:
                _log.warning("Secret %s/%s is gone and is made again", namespace, name)
            await client.create(SECRETS, namespace, manifest)
    except ApiError as error:
        if not error.already_exists:
            raise refusal_of(error) from error
    memory.ensured[identity] = Ensured("", steady())


async def _create(client: Client, job: DeepSpeedJob, resource: Resource, manifest: Json) -> Json | None:
    """Post the object; return the one that is there already, if so."""
    try:
        await client.create(resource, job.metadata.namespace, manifest)
    except ApiError as error:
        if error.not_found and resource in POD_GROUPS.values() and not error.details.get("name"):
            words = f"the API server has no {resource.kind} of {resource.api_version}: the scheduler that "
            raise RefusedError(f"{words}spec.scheduling.gang asks for is not installed") from error
        if not error.already_exists:
            raise refusal_of(error) from error
    else:
        return None
    live = await read(client, resource, job.metadata.namespace, manifest["metadata"]["name"])
    if live is None:
        raise TryAgainSoonError(f"{resource.kind} {manifest['metadata']['name']} has just gone")
    return live


async def _adjust(client: Client, job: DeepSpeedJob, resource: Resource, live: Json, manifest: Json) -> None:
    name = manifest["metadata"]["name"]
    match owner_of(live, job):
        case Owner.LEAVING:
            raise TryAgainSoonError(f"an old {resource.kind} {name} is being deleted")
        case Owner.FOREIGN:
            raise RefusedError(
                f"{resource.kind} {name} exists and is {describe_owner(live)}: delete it, or give the job another name",
                name_taken=True,
            )
        case Owner.OURS:
            # A ConfigMap of an attempt is immutable: what its pods see is what the attempt began with.
            if resource is CONFIG_MAPS or contains(live, manifest):
                return
            try:
                await client.replace(resource, job.metadata.namespace, merged(live, manifest))
            except ApiError as error:
                if error.conflict or error.not_found:
                    raise TryAgainSoonError(f"{resource.kind} {name} was changed meanwhile") from error
                raise refusal_of(error) from error


async def remove_config_map(
    client: Client, job: DeepSpeedJob, name: str, gangs: Iterable[GangScheduling]
) -> str | None:
    """Delete an attempt's ConfigMap, if it is the job's, and before it the Secret and PodGroups of the same name.

    Return the API server's words where the operator may not; None where there is none of the job's any more.
    """
    live = await read(client, CONFIG_MAPS, job.metadata.namespace, name, metadata=True)
    if live is None or owner_of(live, job) is not Owner.OURS:
        return None
    await _delete(client, job, SECRETS, name, None)
    for gang in gangs:
        await _remove(client, job, POD_GROUPS[gang], name)
    try:
        await _delete(client, job, CONFIG_MAPS, name, live["metadata"]["uid"])
    except ApiError as error:
        if error.status != 403:
            raise
        return error.message
    return None


async def remove_names(client: Client, job: DeepSpeedJob, service: str, slices: Iterable[str]) -> None:
    """Delete the job's Service and EndpointSlices, as far as they are the job's."""
    for resource, name in (SERVICES, service), *((ENDPOINT_SLICES, name) for name in slices):
        await _remove(client, job, resource, name)


async def _remove(client: Client, job: DeepSpeedJob, resource: Resource, name: str) -> None:
    live = await read(client, resource, job.metadata.namespace, name, metadata=True)
    if live is not None and owner_of(live, job) is Owner.OURS:
        await _delete(client, job, resource, name, live["metadata"]["uid"])


async def _delete(client: Client, job: DeepSpeedJob, resource: Resource, name: str, uid: str | None) -> None:
    try:
        await client.delete(resource, job.metadata.namespace, name, uid=uid)
    except ApiError as error:
        # Without its policy the chart gives no right to delete Secrets, and roles of your own may give fewer: what may
        # not be deleted here goes with the job.
        if error.status not in {404, 409} and not (resource in _UNDELETABLE and error.status == 403):
            raise


async def read(client: Client, resource: Resource, namespace: str, name: str, *, metadata: bool = False) -> Json | None:
    """Read an object; None if there is none. With `metadata`, nothing but its metadata."""
    try:
        return await client.get(resource, namespace, name, metadata=metadata)
    except ApiError as error:
        if error.not_found:
            return None
        raise


def refusal_of(error: ApiError) -> Exception:
    """Turn the server's answer to a create into what it means for the attempt."""
    if error.namespace_terminating:
        return NamespaceTerminatingError(error.message)
    return RefusedError(error.message) if error.refusal else error
