"""The operator as the chart installs it, and what it writes."""

import json
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from dev.cluster.cluster import AuditEvent, Cluster
from dev.cluster.processes import run
from dev.images import images, recipes
from tests.e2e import processes
from tests.e2e.kube import CORE, Json, eventually

ROOT = Path(__file__).parents[2]
NAME = "deepspeed-operator"
NAMESPACE = "deepspeed-operator"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
QUIET_SECONDS = 10
ENDPOINT_CONTROLLERS = ("endpoint-controller", "endpointslice-controller", "endpointslicemirroring-controller")


@dataclass(frozen=True)
class Operator:
    """One installation in the cluster."""

    cluster: Cluster

    def install(self, *settings: str) -> None:
        """Install or upgrade the chart; `settings`: further values, as `--set` takes them."""
        repository, _, tag = images.ensure("operator").rpartition(":")
        values = {
            "image.repository": repository,
            "image.tag": tag,
            "worker.image": images.ensure("worker"),
            "worker.deepspeedVersion": recipes.worker_deepspeed(),
        }
        options = [option for name, value in values.items() for option in ("--set-string", f"{name}={value}")]
        options += ["--set", "gangs={Volcano,Coscheduling,KAI}"]
        options += [option for setting in settings for option in ("--set", setting)]
        # As on a strict cluster: the API server refuses pods there that are not of Pod Security's narrowest kind.
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(namespace))
        # A test run that was ended while it upgraded leaves the release locked.
        locked = f"labelSelector=owner=helm,name={NAME},status in (pending-install,pending-upgrade,pending-rollback)"
        self.cluster.api.request("DELETE", f"{CORE}/namespaces/{NAMESPACE}/secrets?{quote(locked, safe='=&')}")
        # The CRD may have been applied by hand before.
        options += ["--take-ownership", "--force-conflicts", "--wait", "--timeout=120s"]
        self._helm("upgrade", "--install", NAME, str(ROOT / "charts" / NAME), *options)

    def uninstall(self) -> None:
        self._helm("uninstall", NAME, "--wait", "--timeout=60s")

    def _helm(self, *arguments: str) -> None:
        program, kubeconfig = str(self.cluster.bin / "helm"), f"--kubeconfig={self.cluster.kubeconfig}"
        run([program, kubeconfig, f"--namespace={NAMESPACE}", *arguments], timeout=150)

    def pods(self) -> list[Json]:
        selector = f"labelSelector=app.kubernetes.io%2Fname%3D{NAME}"
        return self.cluster.api.request("GET", f"{CORE}/namespaces/{NAMESPACE}/pods?{selector}")["items"]

    def scale(self, replicas: int) -> None:
        """Change the number of replicas, and wait until exactly so many are ready and no other is left."""
        self.cluster.api.request("PATCH", DEPLOYMENT, {"spec": {"replicas": replicas}})
        self.settled(replicas)

    def settled(self, replicas: int = 1) -> None:
        def so_many_ready() -> bool:
            pods = self.pods()
            return len(pods) == replicas and all(_is_ready(pod) for pod in pods)

        eventually(so_many_ready, lambda: f"{replicas} operator pods ready: {self.pods()}", 60)

    def leader(self) -> Json:
        """The pod that holds the Lease."""

        def holder() -> Json | None:
            held = [
                lease["spec"].get("holderIdentity") or "" for lease in self.cluster.api.request("GET", LEASES)["items"]
            ]
            return next((pod for pod in self.pods() if any(pod["metadata"]["name"] in name for name in held)), None)

        return eventually(holder, "an operator pod holds the Lease", 60)

    def kill(self) -> None:
        """SIGKILL, as a crash; the kubelet starts it again."""
        before = self.leader()
        processes.kill(before, "operator", signal.SIGKILL)
        restarts = before["status"]["containerStatuses"][0]["restartCount"]

        def restarted() -> bool:
            status = self.pods()[0]["status"]["containerStatuses"][0]
            return status["restartCount"] > restarts and status["ready"]

        eventually(restarted, "the operator started again", 60)

    def writes(self, since: str, namespace: str | None = None, *, controllers: bool = False) -> list[AuditEvent]:
        """What the operator (and, if asked for, the endpoint controllers) wrote, the Lease apart."""
        users = {f"system:serviceaccount:{NAMESPACE}:{NAME}"}
        if controllers:
            users |= {f"system:serviceaccount:kube-system:{name}" for name in ENDPOINT_CONTROLLERS}
        return [
            event
            for event in self.cluster.audit_events(since=since)
            if event.user in users
            and event.code < 300
            and not event.dry_run
            and event.resource != "leases"
            and namespace in {None, event.namespace}
        ]

    def quiet(self, namespace: str) -> None:
        """Wait until nothing has been written there for a while: on a busy machine much comes late."""

        def look() -> bool:
            since = now()
            time.sleep(QUIET_SECONDS)
            return self.writes(since, namespace, controllers=True) == []

        eventually(look, f"writes in {namespace} go on", 60)

    def created(self, since: str, namespace: str) -> list[str]:
        """Objects that the operator made, Events apart."""
        writes = self.writes(since, namespace)
        return [
            f"{each.resource} {each.name}" for each in writes if each.verb == "create" and each.resource != "events"
        ]


def now() -> str:
    """This moment as the audit log writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
