"""Queues of a real Kueue, and the jobs in them, on simulated nodes."""

from dataclasses import dataclass
from typing import Any

from dev.cluster.api import Api, ApiError
from tests.faults.jobs import Jobs, Json, condition_of, manifest

API_VERSION = "kueue.x-k8s.io/v1beta2"
KUEUE = f"/apis/{API_VERSION}"
GPUS_A_POD = 8


def made(kind: str, name: str, spec: Json) -> Json:
    """An object of Kueue's."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Queue:
    """A LocalQueue `team` with a ClusterQueue of its own, which has quota for this many pods."""

    jobs: Jobs
    pods: int

    @property
    def name(self) -> str:
        return self.jobs.namespace

    @property
    def api(self) -> Api:
        return self.jobs.api

    def make(self) -> None:
        """Make it. Pods find the simulated nodes by what the flavor says, and not otherwise."""
        taint = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
        self._post(
            "ResourceFlavor", "resourceflavors", {"nodeLabels": {"type": "kwok"}, "tolerations": [taint]}, self.name
        )
        quota = {"name": "nvidia.com/gpu", "nominalQuota": str(self.pods * GPUS_A_POD)}
        flavors = [{"name": self.name, "resources": [quota]}]
        groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]
        self._post(
            "ClusterQueue",
            "clusterqueues",
            {"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"}, "resourceGroups": groups},
            self.name,
        )
        queues = f"namespaces/{self.jobs.namespace}/localqueues"
        self._post("LocalQueue", queues, {"clusterQueue": self.name}, "team")
        named = {
            "apiVersion": API_VERSION,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": f"urgent-{self.name}"},
        }
        body = {**named, "value": 100, "description": "of a test"}
        self.api.request("POST", f"{KUEUE}/workloadpriorityclasses", body)

    def change(self, **spec: Any) -> None:
        self.api.request("PATCH", f"{KUEUE}/clusterqueues/{self.name}", {"spec": spec})

    def submit(self, name: str, nodes: int = 2, labels: Json | None = None, **scheduling: str) -> None:
        """Create a job of so many pods with eight GPUs each, which names no node."""
        body = manifest(name, nodes)
        resources = {"limits": {"nvidia.com/gpu": GPUS_A_POD}}
        body["metadata"]["labels"] = labels or {}
        body["spec"] |= {
            "slotsPerNode": GPUS_A_POD,
            "template": {"spec": {"containers": [{"name": "trainer", "resources": resources}]}},
            "scheduling": {"queueName": "team", **scheduling},
        }
        self.jobs.create_job(body)

    def workload(self, job: str) -> Json | None:
        """Return the job's Workload; None if there is none."""
        found = [
            each for each in self.workloads() if each["metadata"]["labels"]["deepspeed-operator.dev/job-name"] == job
        ]
        return found[0] if found else None

    def workloads(self) -> list[Json]:
        return self.api.request("GET", f"{KUEUE}/namespaces/{self.jobs.namespace}/workloads")["items"]

    def told(self, job: str, kind: str) -> tuple[str, str]:
        """Return a condition of the job's Workload: its status and reason."""
        workload = self.workload(job)
        found = condition_of(workload.get("status", {}), kind) if workload is not None else {}
        return found.get("status", ""), found.get("reason", "")

    def activate(self, job: str, active: bool) -> None:
        workload = self.workload(job)
        assert workload is not None
        path = f"{KUEUE}/namespaces/{self.jobs.namespace}/workloads/{workload['metadata']['name']}"
        self.api.request("PATCH", path, {"spec": {"active": active}})

    def delete_workload(self, job: str) -> None:
        workload = self.workload(job)
        assert workload is not None
        self._delete(f"namespaces/{self.jobs.namespace}/workloads/{workload['metadata']['name']}")

    def state(self, job: str) -> str:
        return self.jobs.status(job).get("state", "")

    def phase(self, job: str) -> str:
        return self.jobs.status(job).get("attempt", {}).get("phase", "")

    def complete(self, job: str) -> None:
        """Have all pods of the job end with success."""
        for name in self.jobs.pods_of(job):
            trainer = {"name": "trainer", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
            ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
            status = {"phase": "Succeeded", "containerStatuses": [{**trainer, "state": ended}]}
            self.jobs.set_pod_status(name, status)

    def remove(self) -> None:
        """Take away what is the whole cluster's."""
        for path in (f"clusterqueues/{self.name}", f"resourceflavors/{self.name}"):
            self._delete(path)
        self._delete(f"workloadpriorityclasses/urgent-{self.name}")

    def _delete(self, path: str) -> None:
        try:
            self.api.request("DELETE", f"{KUEUE}/{path}")
        except ApiError as error:
            if error.status != 404:
                raise

    def _post(self, kind: str, path: str, spec: Json, name: str) -> None:
        self.api.request("POST", f"{KUEUE}/{path}", made(kind, name, spec))
