"""What tests need of Kubernetes: a namespace in which jobs are applied, watched and read."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import quote

from dev.cluster.api import ApiError
from dev.cluster.cluster import Cluster
from dev.cluster.processes import CommandError

Json = dict[str, Any]
Found = TypeVar("Found")

JOBS = "/apis/deepspeed-operator.dev/v1alpha1"
SLICES = "/apis/discovery.k8s.io/v1"
CORE = "/api/v1"
TERMINAL = ("Complete", "Failed")


TERMINAL_PHASES = ("Succeeded", "Failed")


# A busy machine takes so many times as long as is said where something is awaited.
_PATIENCE = 3


def eventually(look: Callable[[], Found | None], what: Callable[[], str] | str, seconds: float) -> Found:
    """Look until there is something to see; say what was waited for if there is not."""
    deadline = time.monotonic() + _PATIENCE * seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {_PATIENCE * seconds} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.25)


@dataclass(frozen=True)
class Job:
    """A DeepSpeedJob as it was read."""

    body: Json

    @property
    def status(self) -> Json:
        return self.body.get("status", {})

    @property
    def run(self) -> Json:
        return self.status.get("run", {})

    @property
    def attempt(self) -> int:
        return self.status.get("attempt", {}).get("number", 0)

    @property
    def failure(self) -> Json:
        return self.status.get("failure", {})

    def condition(self, kind: str) -> Json:
        conditions: list[Json] = self.status.get("conditions", [])
        absent: Json = {}
        return next((found for found in conditions if found["type"] == kind), absent)

    def reason(self, kind: str) -> str:
        return self.condition(kind).get("reason", "")

    def message(self, kind: str) -> str:
        return self.condition(kind).get("message", "")

    def holds(self, *kinds: str) -> bool:
        return any(self.condition(kind).get("status") == "True" for kind in kinds)

    @property
    def outcome(self) -> str | None:
        return next((kind for kind in TERMINAL if self.holds(kind)), None)

    def says(self, text: str) -> bool:
        """Whether any condition's message has this text."""
        return any(text in condition.get("message", "") for condition in self.status.get("conditions", []))


@dataclass(frozen=True)
class Namespace:
    """A namespace of one test."""

    cluster: Cluster
    name: str

    @classmethod
    def create(cls, cluster: Cluster, name: str, labels: dict[str, str] | None = None) -> Self:
        api = cluster.api
        api.request("POST", f"{CORE}/namespaces", {"metadata": {"name": name, "labels": labels or {}}})
        account = f"{CORE}/namespaces/{name}/serviceaccounts/default"
        eventually(lambda: api.found(account), f"no service account in {name}", 20)
        return cls(cluster, name)

    def path(self, collection: str, name: str = "") -> str:
        group = {"deepspeedjobs": JOBS, "endpointslices": SLICES}.get(collection, CORE)
        return f"{group}/namespaces/{self.name}/{collection}" + (f"/{quote(name)}" if name else "")

    def apply(self, *manifests: Json) -> None:
        """`kubectl apply`, as a user does."""
        self.cluster.kubectl(
            "apply",
            "-n",
            self.name,
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}),
        )

    def config_map(self, name: str, data: dict[str, str]) -> None:
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})

    def job(self, name: str) -> Job:
        return Job(self.cluster.api.request("GET", self.path("deepspeedjobs", name)))

    def jobs(self) -> list[Job]:
        return [Job(body) for body in self._items(self.path("deepspeedjobs"))]

    def wait(self, name: str, until: Callable[[Job], object], seconds: float = 60) -> Job:
        """The job as soon as `until` holds for it."""

        def look() -> Job | None:
            job = self.job(name)
            return job if until(job) else None

        return eventually(look, lambda: f"{name}\n{self.report(name)}", seconds)

    def finished(self, name: str, seconds: float = 90) -> Job:
        return self.wait(name, lambda job: job.outcome, seconds)

    def ended(self, name: str, seconds: float = 90) -> Job:
        """The job when it has finished or the time is over: what it should be is for the caller to say."""
        try:
            return self.finished(name, seconds)
        except AssertionError:
            return self.job(name)

    def completed(self, name: str, seconds: float = 90) -> Job:
        job = self.finished(name, seconds)
        assert job.outcome == "Complete", self.report(name)
        return job

    def running(self, name: str, seconds: float = 60) -> Job:
        return self.wait(name, lambda job: job.holds("Running"), seconds)

    def pods(self, job: str | None = None) -> list[Json]:
        label = "deepspeed-operator.dev/job-name"
        query = "?labelSelector=" + quote(f"{label}={job}" if job else label)
        return self._items(self.path("pods") + query)

    def gone(self, job: str, seconds: float = 30) -> None:
        eventually(lambda: not self.pods(job), lambda: f"pods of {job} remain\n{self.report(job)}", seconds)

    def wait_for_quota(self, name: str) -> None:
        """A quota counts only once its controller has seen it."""
        path = self.path("resourcequotas", name)
        eventually(lambda: self.cluster.api.request("GET", path)["status"].get("hard"), f"quota {name} in force", 20)

    def children(self) -> dict[str, list[str]]:
        """Names of all objects in the namespace that a job could have made."""
        kinds = ("pods", "services", "configmaps", "secrets", "endpointslices")
        found = {kind: [item["metadata"]["name"] for item in self._items(self.path(kind))] for kind in kinds}
        found["configmaps"].remove("kube-root-ca.crt")
        return {kind: names for kind, names in found.items() if names}

    def log(self, pod: str, container: str = "trainer") -> str:
        return self.cluster.kubectl("logs", "-n", self.name, pod, "-c", container)

    def _items(self, path: str) -> list[Json]:
        return self.cluster.api.request("GET", path)["items"]

    def all_events(self) -> list[Json]:
        return self._items(self.path("events"))

    def events(self, job: str) -> list[Json]:
        return [event for event in self.all_events() if event["involvedObject"]["name"] == job]

    def told(self, name: str, reason: str) -> list[Json]:
        """The events of that reason about an object, once there is one: they are written after the status."""

        def look() -> list[Json]:
            return [event for event in self.events(name) if event["reason"] == reason]

        return eventually(look, lambda: f"no event {reason}\n{self.report(name)}", 30)

    def edit(self, name: str, **spec: Any) -> None:
        self.cluster.api.request("PATCH", self.path("deepspeedjobs", name), {"spec": spec})

    def delete(self, name: str, *options: str) -> None:
        self.cluster.kubectl("delete", "-n", self.name, "dsj", name, *options)

    def report(self, name: str) -> str:
        """Everything that explains why a job is not where a test wants it."""
        try:
            status = self.job(name).status
        except ApiError as error:
            return str(error)
        said = {condition["message"]: condition["reason"] for condition in status.pop("conditions", [])}
        lines = [json.dumps(status), *(f"{reason}: {message}" for message, reason in said.items() if message)]
        for pod in self.pods(name):
            states = {each["name"]: each["state"] for each in pod["status"].get("containerStatuses", [])}
            lines.append(f"pod {pod['metadata']['name']}: {pod['status']['phase']} {json.dumps(states)[:1500]}")
            try:
                lines.append(self.log(pod["metadata"]["name"])[-1500:])
            except CommandError as error:
                lines.append(str(error)[:300])
        events = (event for event in self.all_events() if event["involvedObject"]["name"].startswith(name))
        lines += [f"event {event['reason']}: {event['message']}" for event in events]
        return "\n".join(lines)
