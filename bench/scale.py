"""200 jobs of 8 pods at once, against a bare client that posts the same 1,600 pods; on simulated nodes, in one run.

Both are measured by the API server's audit log, from the first request to the last pod's creation. They take turns, so
that both meet the same machine. The client has 32 requests under way, the operator more: of a busy API server, each
gets by what it asks. A client with 128 takes two thirds of the time: `--client-requests 128`.

    uv run python -m bench.scale [--jobs 200] [--nodes 8] [--rounds 2] [--qps 500] [--client-requests 32]
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp

from deepspeed_operator.controller.connection import connect
from deepspeed_operator.controller.settings import Settings
from dev.cluster.cluster import AuditEvent, Cluster
from dev.cluster.kwok import ACCELERATORS
from tests.faults.jobs import GROUP, manifest
from tests.faults.replica import Replica, eventually

ROOT = Path(__file__).parents[1]
GOAL = 1.5

Json = dict[str, Any]


@dataclass(frozen=True)
class Cost:
    """What a process has used so far."""

    cpu_seconds: float
    rss_mib: float

    @classmethod
    def of(cls, pid: int) -> "Cost":
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        return cls((int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * page / 2**20)


class Bench:
    """Turns of the operator and of the bare client, each in a namespace of its own."""

    def __init__(self, cluster: Cluster, jobs: int, nodes: int, *, qps: float, client_requests: int) -> None:
        self._cluster = cluster
        self._jobs, self._nodes, self._qps, self._client_requests = jobs, nodes, qps, client_requests
        self._pods: list[Json] = []

    def operator(self) -> float:
        """Seconds from the first job's creation to the last pod's."""
        with namespace_of(self._cluster) as namespace, tempfile.TemporaryDirectory() as directory:
            replica = Replica(self._cluster.kubeconfig, namespace, Path(directory))
            lease = Settings().leader
            replica.start(
                f"--qps={self._qps}",
                f"--lease-duration={lease.lease_duration}",
                f"--renew-deadline={lease.renew_deadline}",
            )
            try:
                idle = Cost.of(replica.pid)
                jobs = [manifest(f"job-{number}", self._nodes) for number in range(self._jobs)]
                self._post(f"{GROUP}/namespaces/{namespace}/deepspeedjobs", jobs)
                replica.eventually(lambda: replica.jobs("Running") == self._jobs, 400, every=1)
                return self._report(namespace, replica, idle)
            finally:
                replica.stop()

    def bare_client(self) -> float:
        """Seconds from the first pod's creation to the last one's."""
        with namespace_of(self._cluster) as namespace:
            self._post(f"/api/v1/namespaces/{namespace}/pods", self._pods)
            made = [event.time for event in self._audit(namespace) if creates_pod(event)]
            assert len(made) == len(self._pods), f"{len(made)} pods"
            seconds = between(min(made), max(made))
            print(f"client   {seconds:6.2f} s to the last pod", flush=True)
            return seconds

    def _post(self, path: str, bodies: list[Json]) -> None:
        asyncio.run(post_all(self._cluster.kubeconfig, path, bodies, self._client_requests))

    def _report(self, namespace: str, replica: Replica, idle: Cost) -> float:
        used, events = Cost.of(replica.pid), self._audit(namespace)
        begun = min(event.time for event in events if (event.resource, event.verb) == ("deepspeedjobs", "create"))
        made = [event.time for event in events if creates_pod(event)]
        assert len(made) == self._jobs * self._nodes, f"{len(made)} pods"
        said = max(event.time for event in events if event.resource == "deepspeedjobs/status")
        children = {"services", "configmaps", "secrets", "endpointslices", "pods", "deepspeedjobs/status"}
        writes = [each for each in events if each.user == "admin" and each.resource in children and not each.dry_run]
        decisions = "deepspeed_operator_decide_seconds"
        decided = replica.metric(f"{decisions}_sum") / replica.metric(f"{decisions}_count")
        seconds = between(begun, max(made))
        print(
            f"operator {seconds:6.2f} s to the last pod, {between(begun, said):6.2f} s to the last status; "
            f"CPU {used.cpu_seconds - idle.cpu_seconds:.1f} s, RSS {used.rss_mib:.0f} MiB (idle {idle.rss_mib:.0f}), "
            f"{len(writes) / self._jobs:.1f} writes a job, {1000 * decided:.2f} ms a decision",
            flush=True,
        )
        path = f"/api/v1/namespaces/{namespace}/pods"
        self._pods = [bare(pod) for pod in self._cluster.api.request("GET", path, timeout=60)["items"]]
        return seconds

    def _audit(self, namespace: str) -> list[AuditEvent]:
        time.sleep(2)  # the log is written behind the answers
        return [event for event in self._cluster.audit_events() if event.namespace == namespace and event.code < 300]


@contextlib.contextmanager
def namespace_of(cluster: Cluster) -> Generator[str]:
    """Make a namespace, and yield its name; wait until nothing of it is left."""
    name = f"bench-{secrets.token_hex(3)}"
    api, path = cluster.api, f"/api/v1/namespaces/{name}"
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        eventually(lambda: api.found(f"{path}/serviceaccounts/default"), 10)
        yield name
    finally:
        api.request("DELETE", path)
        eventually(lambda: not api.found(path), 300)


async def post_all(kubeconfig: Path, path: str, bodies: list[Json], at_a_time: int) -> None:
    """Post the objects as fast as the server takes them, so many at a time."""
    connection = await connect(str(kubeconfig))
    pending = iter([json.dumps(body).encode() for body in bodies])
    headers = {"Content-Type": "application/json", **await connection.authorization()}

    async def post(session: aiohttp.ClientSession) -> None:
        for body in pending:
            async with session.post(connection.server + path, data=body) as response:
                response.raise_for_status()
                await response.read()

    async with connection.session(at_a_time, headers) as session:
        await asyncio.gather(*(post(session) for _ in range(at_a_time)))


def creates_pod(event: AuditEvent) -> bool:
    return event.resource == "pods" and event.verb == "create" and not event.dry_run


def bare(pod: Json) -> Json:
    """Return the pod as it was posted: without what the API server, the scheduler and the node made of it."""
    metadata = {key: pod["metadata"][key] for key in ("name", "labels")}
    spec = {key: value for key, value in pod["spec"].items() if key not in {"nodeName", "serviceAccount"}}
    mounted = [volume["name"] for volume in spec.get("volumes", []) if volume["name"].startswith("kube-api-access")]
    spec["volumes"] = [volume for volume in spec.get("volumes", []) if volume["name"] not in mounted]
    for container in spec["containers"]:
        mounts = container.get("volumeMounts", [])
        container["volumeMounts"] = [mount for mount in mounts if mount["name"] not in mounted]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def main() -> None:
    """Take turns, print each, and exit with 1 if the operator needs more than its share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--qps", type=float, default=Settings().qps, help="the operator's limit of writes a second")
    parser.add_argument("--client-requests", type=int, default=32, help="how many the client has under way")
    given = parser.parse_args()
    cluster = Cluster()
    cluster.up()
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    # A few more than needed: pods of others may be on some.
    cluster.kwok(nodes=-(-given.jobs * given.nodes // ACCELERATORS) + 2)
    bench = Bench(cluster, given.jobs, given.nodes, qps=given.qps, client_requests=given.client_requests)
    print(f"{given.jobs} jobs of {given.nodes} pods, the operator writes at most {given.qps:g} times a second")
    operator: list[float] = []
    client: list[float] = []
    for _ in range(given.rounds):
        operator.append(bench.operator())
        client.append(bench.bare_client())
    ratio = statistics.median(operator) / statistics.median(client)
    print(f"ratio    {ratio:.2f} of the medians (goal: at most {GOAL})")
    sys.exit(0 if ratio <= GOAL else 1)


if __name__ == "__main__":
    main()
