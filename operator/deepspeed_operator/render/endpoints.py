"""EndpointSlices: the addresses behind the hostfile's names. We write them because the Service has no selector."""

from collections.abc import Mapping

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import OPERATOR, pod_name
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.render.identity import child_metadata, job_labels

_PER_SLICE = 1000  # the API server's limit
_FAMILIES = (("IPv4", ""), ("IPv6", ".ipv6"))


def endpoint_slices(job: DeepSpeedJob, attempt: int, addresses: Mapping[int, str]) -> list[Json]:
    """Return the slices for these pods, by index. A slice's name implies its address type, which cannot change."""
    slices: list[Json] = []
    for family, suffix in _FAMILIES:
        endpoints = [
            {
                "addresses": [addresses[index]],
                "conditions": {"ready": True},
                "hostname": pod_name(job.metadata.name, attempt, index),
            }
            for index in sorted(addresses)
            if (":" in addresses[index]) == (family == "IPv6")
        ]
        for start in range(0, len(endpoints), _PER_SLICE):
            name = _slice_name(job.metadata.name, suffix, start)
            slices.append(_slice(job, name, family, endpoints[start : start + _PER_SLICE]))
    return slices


def slice_names(job: str, nodes: int) -> tuple[str, ...]:
    """Return the names that slices of a job with so many pods can have."""
    return tuple(_slice_name(job, suffix, start) for _, suffix in _FAMILIES for start in range(0, nodes, _PER_SLICE))


def _slice_name(job: str, suffix: str, start: int) -> str:
    # The dot keeps further names apart from every job's and from those the cluster generates.
    return f"{job}{suffix}.{start // _PER_SLICE}" if start else f"{job}{suffix}"


def _slice(job: DeepSpeedJob, name: str, family: str, endpoints: list[Json]) -> Json:
    labels = {
        **job_labels(job),
        "kubernetes.io/service-name": job.metadata.name,
        "endpointslice.kubernetes.io/managed-by": OPERATOR,
        # As the control plane does for a headless Service: every node's kube-proxy would be told of each change else.
        "service.kubernetes.io/headless": "",
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": child_metadata(job, name, labels),
        "addressType": family,
        "endpoints": endpoints,
    }
