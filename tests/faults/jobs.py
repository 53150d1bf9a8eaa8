"""DeepSpeedJobs in a namespace, on simulated nodes."""

from dataclasses import dataclass, field
from typing import Any

from dev.cluster.api import Api, ApiError
from tests.faults.simulated_agent import SimulatedAgent

# Written by the first replica of an install, and for the first job of a namespace.
ONCE = frozenset({"POST secrets deepspeed-operator-key", "POST networkpolicies deepspeed-operator-jobs"})

GROUP = "/apis/deepspeed-operator.dev/v1alpha1"
CORE = "/api/v1"

Json = dict[str, Any]


def manifest(name: str, nodes: int) -> Json:
    """Return a job whose pods the simulated nodes run."""
    return {
        "apiVersion": "deepspeed-operator.dev/v1alpha1",
        "kind": "DeepSpeedJob",
        "metadata": {"name": name},
        "spec": {
            "nodes": nodes,
            "slotsPerNode": 1,
            "image": "registry.local/none:1",
            "training": {"script": "train.py", "args": ["--deepspeed", "$(DEEPSPEED_CONFIG)"]},
            "dsConfig": {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1},
            "template": {
                "spec": {
                    "nodeSelector": {"type": "kwok"},
                    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
                    "containers": [{"name": "trainer"}],
                }
            },
        },
    }


KINDS = ("pods", "configmaps", "secrets", "services", "endpointslices")


@dataclass(frozen=True)
class Jobs:
    """The jobs of one namespace, and their children."""

    api: Api
    namespace: str
    agents: dict[str, SimulatedAgent] = field(default_factory=dict[str, SimulatedAgent])  # by job

    def apply(self, name: str = "pretrain", nodes: int = 2, **spec: Any) -> None:
        job = manifest(name, nodes)
        self.api.request("POST", self._jobs(), {**job, "spec": {**job["spec"], **spec}})

    def create_job(self, body: Json) -> None:
        self.api.request("POST", self._jobs(), body, timeout=60)

    def read(self, name: str = "pretrain") -> Json:
        return self.api.request("GET", self._jobs(name), timeout=60)  # some are large

    def read_all(self) -> list[Json]:
        return self.api.request("GET", self._jobs(), timeout=60)["items"]

    def status(self, name: str = "pretrain") -> Json:
        return self.read(name).get("status", {})

    def condition(self, kind: str, name: str = "pretrain") -> Json:
        """Return a condition; nothing if it is not there yet."""
        return condition_of(self.status(name), kind)

    def running(self, name: str = "pretrain") -> bool:
        return self.condition("Running", name).get("status") == "True"

    def runs_attempt(self, number: int, name: str = "pretrain") -> bool:
        """Whether it is this attempt that runs: asked of one reading, since another one may begin between two."""
        status = self.status(name)
        running = condition_of(status, "Running").get("status") == "True"
        return running and status["attempt"]["number"] == number

    def delete(self, name: str = "pretrain", policy: str = "Background") -> None:
        self.api.request("DELETE", self._jobs(name), {"propagationPolicy": policy})

    def exists(self, name: str = "pretrain") -> bool:
        return self.api.found(self._jobs(name))

    def change(self, name: str = "pretrain", **spec: Any) -> None:
        self.api.request("PATCH", self._jobs(name), {"spec": spec})

    def annotate(self, name: str = "pretrain", **annotations: str) -> None:
        self.api.request("PATCH", self._jobs(name), {"metadata": {"annotations": annotations}})

    def pods(self) -> list[Json]:
        return self.api.request("GET", self.path("pods"))["items"]

    def pod_names(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods())

    def pods_of(self, name: str) -> list[str]:
        """Return the names of a job's pods that have not ended."""
        pods = self._children("pods", name)
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] not in {"Succeeded", "Failed"}]

    def delete_pod(self, name: str) -> None:
        self.api.request("DELETE", f"{self.path('pods')}/{name}", {"gracePeriodSeconds": 0})

    def hold(self, name: str) -> None:
        """Keep a pod that is deleted, as if it took its time to end."""
        self.api.request("PATCH", f"{self.path('pods')}/{name}", {"metadata": {"finalizers": ["tests.dev/hold"]}})

    def let_go(self, name: str) -> None:
        """Have a pod that is held end."""
        self.api.request("PATCH", f"{self.path('pods')}/{name}", {"metadata": {"finalizers": None}})

    def set_pod_status(self, name: str, status: Json) -> None:
        """Say of a pod what its node would."""
        self.api.request("PATCH", f"{self.path('pods')}/{name}/status", {"status": status})

    def answer_as_agents(self, name: str) -> None:
        """Let rank 0's agent of the job's first attempt answer, at another address of its pod."""
        agent = self.agents[name] = SimulatedAgent(self.read(name)["metadata"]["uid"], 1)
        self.set_pod_status(f"{name}-1-0", {"podIP": agent.address, "podIPs": [{"ip": agent.address}]})

    def publishes_agent(self, name: str) -> bool:
        """Whether the name of rank 0's host resolves to its agent."""
        slices = self._children("endpointslices", name)
        known = [each for part in slices for endpoint in part["endpoints"] for each in endpoint["addresses"]]
        return self.agents[name].address in known

    def create(self, plural: str, body: Json) -> None:
        self.api.request("POST", self.path(plural), body)

    def lease_holder(self) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/deepspeed-operator"
        try:
            return self.api.request("GET", path)["spec"].get("holderIdentity", "")
        except ApiError:
            return ""

    def picture(self, name: str = "pretrain") -> Json:
        """Return the state that a disturbance must not change: without uids, times and versions."""
        status = self.status(name)
        slices = self._children("endpointslices", name)
        return {
            "state": status["state"],
            "attempt": status["attempt"]["number"],
            **{kind: self._names(kind, name) for kind in KINDS},
            "addresses": [endpoint["hostname"] for part in slices for endpoint in part["endpoints"]],
        }

    def _names(self, plural: str, job: str) -> list[str]:
        children = [child["metadata"] for child in self._children(plural, job)]
        return sorted(child["name"].removesuffix(f"-{child['ownerReferences'][0]['uid'][:5]}") for child in children)

    def _children(self, plural: str, job: str) -> list[Json]:
        group = "/apis/discovery.k8s.io/v1" if plural == "endpointslices" else CORE
        selector = f"labelSelector=deepspeed-operator.dev%2Fjob-name%3D{job}"
        return self.api.request("GET", f"{group}/namespaces/{self.namespace}/{plural}?{selector}")["items"]

    def path(self, plural: str) -> str:
        return f"{CORE}/namespaces/{self.namespace}/{plural}"

    def _jobs(self, name: str = "") -> str:
        return f"{GROUP}/namespaces/{self.namespace}/deepspeedjobs" + (f"/{name}" if name else "")


def condition_of(status: Json, kind: str) -> Json:
    """Return a condition; nothing if it is not there yet."""
    conditions: list[Json] = status.get("conditions", [])
    absent: Json = {}
    return next((each for each in conditions if each["type"] == kind), absent)
