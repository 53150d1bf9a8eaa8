"""The kinds that the operator reads and writes, and their paths in the API."""

from dataclasses import dataclass
from typing import Any

from deepspeed_operator.api.names import API_VERSION, KIND, PLURAL
from deepspeed_operator.render.pod_group import API_VERSIONS

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind; one that is not namespaced has its path without a namespace."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Path of an object, of a collection in a namespace, or of the collection over all namespaces."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        parts = [root, *(("namespaces", namespace) if namespace else ()), self.plural, name, subresource]
        return "/".join(part for part in parts if part)


JOBS = Resource(API_VERSION, KIND, PLURAL)
NODES = Resource("v1", "Node", "nodes")
PODS = Resource("v1", "Pod", "pods")
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
SECRETS = Resource("v1", "Secret", "secrets")
SERVICES = Resource("v1", "Service", "services")
ENDPOINT_SLICES = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
EVENTS = Resource("v1", "Event", "events")
QUOTAS = Resource("v1", "ResourceQuota", "resourcequotas")
WORKLOADS = Resource("kueue.x-k8s.io/v1beta2", "Workload", "workloads")
RESOURCE_FLAVORS = Resource("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "resourceflavors")
WORKLOAD_PRIORITY_CLASSES = Resource("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
POD_GROUPS = {gang: Resource(version, "PodGroup", "podgroups") for gang, version in API_VERSIONS.items()}
LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases")

_CHILDREN = {
    (resource.api_version, resource.kind): resource
    for resource in (PODS, CONFIG_MAPS, SERVICES, ENDPOINT_SLICES, *POD_GROUPS.values())
}


def resource_of(manifest: Json) -> Resource:
    """Return the kind of a child's manifest; KeyError for a kind that is never a child."""
    return _CHILDREN[manifest["apiVersion"], manifest["kind"]]
