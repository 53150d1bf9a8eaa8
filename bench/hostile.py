"""How long a good job takes to run beside another tenant's hostile ones, over how long it takes by itself.

The hostile jobs are those of tests/faults/hostile.py: large, deep, many and odd ones, all at once, and one
that is edited 20 times a second. Their namespace has a quota of pods, as one that is shared has. Pods run on simulated
nodes.

    uv run python -m bench.hostile [--rounds 5] [--update]

`--update` writes the table into docs/security.md.
"""

import argparse
import contextlib
import re
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepspeed_operator.controller.settings import Settings
from dev.cluster.api import ApiError
from dev.cluster.cluster import Cluster
from tests.faults.hostile import KINDS, job
from tests.faults.jobs import Jobs
from tests.faults.replica import Replica, eventually, processes_of
from tests.faults.simulated import simulated_nodes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security.md"
QUOTA = "300"
EDITS_A_SECOND = 20
GOAL, GOAL_MIB = 2.0, 512
SETTLED_SECONDS = 30

Json = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A good job beside so much else."""

    seconds: list[float]
    largest_mib: float
    starts: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Bench:
    """One operator that serves two namespaces."""

    def __init__(self, cluster: Cluster, rounds: int) -> None:
        self._cluster = cluster
        self._rounds = rounds
        self._largest = 0.0
        self._slowest = 0.0

    def run(self) -> tuple[Measured, Measured]:
        """Return how it goes alone, and beside the hostile jobs."""
        with self._namespace() as good, self._namespace() as bad, tempfile.TemporaryDirectory() as directory:
            self._cluster.api.request("POST", f"/api/v1/namespaces/{bad}/resourcequotas", quota())
            replica = Replica(self._cluster.kubeconfig, good, Path(directory))
            lease = Settings().leader
            replica.start(
                f"--watch-namespaces={good},{bad}",
                f"--lease-duration={lease.lease_duration}",
                f"--renew-deadline={lease.renew_deadline}",
            )
            first = replica.pid
            stop = threading.Event()
            watching = threading.Thread(target=self._watch, args=(replica, stop))
            watching.start()
            try:
                alone = self._good_jobs(Jobs(self._cluster.api, good), "alone")
                print(f"alone: {alone}", flush=True)
                idle = Measured(alone, self._largest, 0)
                self._apply(bad)
                editing = threading.Thread(target=self._edit, args=(Jobs(self._cluster.api, bad), stop))
                editing.start()
                beside = self._good_jobs(Jobs(self._cluster.api, good), "beside")
                print(f"beside: {beside}", flush=True)
                time.sleep(SETTLED_SECONDS)
                beside += self._good_jobs(Jobs(self._cluster.api, good), "later")
                print(f"and later: {beside}", flush=True)
                ended = not replica.alive
                self._print_refusals(bad)
                return idle, Measured(beside, self._largest, int(ended or replica.pid != first))
            finally:
                stop.set()
                watching.join()
                print(f"memory: {self._largest:.0f} MiB at most", flush=True)
                print(replica.log[-3000:])
                replica.end()

    def _good_jobs(self, jobs: Jobs, name: str) -> list[float]:
        found: list[float] = []
        for number in range(self._rounds):
            begun = time.monotonic()
            jobs.apply(f"{name}-{number}", nodes=2)
            eventually(lambda number=number: jobs.running(f"{name}-{number}"), 120, every=0.02)
            found.append(time.monotonic() - begun)
            jobs.delete(f"{name}-{number}")
        return found

    def _apply(self, namespace: str) -> None:
        for kind in KINDS:
            begun = time.monotonic()
            for body in kind.make():
                plural = "configmaps" if body["kind"] == "ConfigMap" else "deepspeedjobs"
                group = "/api/v1" if plural == "configmaps" else f"/apis/{body['apiVersion']}"
                try:
                    self._cluster.api.request("POST", f"{group}/namespaces/{namespace}/{plural}", body, timeout=60)
                except ApiError as error:
                    print(f"refused by the API server: {kind.what}: {str(error)[:300]}", flush=True)
            print(
                f"{time.monotonic() - begun:5.1f} s {self._largest:4.0f} MiB {self._slowest:4.1f} s {kind.what}",
                flush=True,
            )
            self._slowest = 0.0

    def _edit(self, jobs: Jobs, stop: threading.Event) -> None:
        jobs.create_job(job("edited"))
        number = 0
        while not stop.wait(1 / EDITS_A_SECOND):
            number += 1
            with contextlib.suppress(ApiError, OSError):
                jobs.change("edited", runId=str(number), suspend=number % 3 == 0)

    def _watch(self, replica: Replica, stop: threading.Event) -> None:
        while not stop.wait(0.1):
            begun = time.monotonic()
            replica.get("/healthz")
            self._slowest = max(self._slowest, time.monotonic() - begun)
            self._largest = max(self._largest, memory_of(replica.pid))

    def _print_refusals(self, namespace: str) -> None:
        sys.setrecursionlimit(20_000)
        path = f"/apis/deepspeed-operator.dev/v1alpha1/namespaces/{namespace}/deepspeedjobs"
        for item in self._cluster.api.request("GET", path, timeout=60)["items"]:
            conditions = {each["type"]: each for each in item.get("status", {}).get("conditions", [])}
            ready = conditions.get("Ready", {})
            if not item["metadata"]["name"].startswith(("many", "files")):
                print(f"{item['metadata']['name']:14} {ready.get('reason')}: {ready.get('message', '')[:150]}")

    @contextlib.contextmanager
    def _namespace(self) -> Generator[str]:
        name = f"hostile-{secrets.token_hex(3)}"
        api, path = self._cluster.api, f"/api/v1/namespaces/{name}"
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            eventually(lambda: api.found(f"{path}/serviceaccounts/default"), 10)
            yield name
        finally:
            api.request("DELETE", path)


def memory_of(pid: int) -> float:
    """Return what the operator's processes take together, in MiB: memory that they share counts once."""
    total = 0
    for each in processes_of(pid):
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
            total += int(re.findall(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[0])
    return total / 1024


def quota() -> Json:
    return {"metadata": {"name": "tenant"}, "spec": {"hard": {"pods": QUOTA}}}


def table(idle: Measured, beside: Measured) -> str:
    """Return what was measured, for the page."""
    rows = [
        ("a job of 2 pods runs after, median", f"{idle.median:.1f} s", f"{beside.median:.1f} s"),
        ("… at the latest", f"{max(idle.seconds):.1f} s", f"{max(beside.seconds):.1f} s"),
        ("memory of the operator, all its processes", f"{idle.largest_mib:.0f} MiB", f"{beside.largest_mib:.0f} MiB"),
        ("restarts of the operator", str(idle.starts), str(beside.starts)),
    ]
    lines = ["| | by itself | beside them |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def write_page(idle: Measured, beside: Measured) -> None:
    """Put the kinds and the table between their marks."""
    kinds = "\n".join(f"* {kind.what}" for kind in KINDS)
    made = f"{kinds}\n* one that is edited {EDITS_A_SECOND} times a second\n\n{table(idle, beside)}\n"
    text = PAGE.read_text()
    begin, end = "<!-- begin bench/hostile -->\n", "<!-- end bench/hostile -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}{made}{end}{after}")


def main() -> None:
    """Print the table; exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--update", action="store_true", help="write the table into docs/security.md")
    given = parser.parse_args()
    cluster = Cluster()
    cluster.up()
    with simulated_nodes(cluster):
        idle, beside = Bench(cluster, given.rounds).run()
    print(table(idle, beside))
    if given.update:
        write_page(idle, beside)
    good = beside.median <= GOAL * idle.median and beside.largest_mib <= GOAL_MIB and not beside.starts
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
