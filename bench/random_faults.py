"""200 jobs of 2 pods on simulated nodes, a random fault each, and an operator that is killed meanwhile.

Each job must come to the state that its fault leads to, with the restarts that it costs; then the operator writes
nothing. Prints what each kind of fault came to, the operator's memory, and the writes of the quiet time at the end.

    uv run python -m bench.random_faults [--jobs 200] [--kills 3] [--quiet 30] [--seed N]
"""

import argparse
import json
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.scale import ROOT, Cost, namespace_of
from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN
from dev.cluster.cluster import Cluster
from dev.cluster.kwok import ACCELERATORS
from tests.faults.jobs import Jobs, Json
from tests.faults.proxy import Proxy
from tests.faults.replica import LONG_LEASE, Replica

AT_A_TIME = 16


class Operator(Replica):
    """Started again whenever it has ended, as its kubelet would: where the machine is busy it may lose its Lease."""

    started = 0

    def again(self) -> None:
        self.start(wait=False)
        super().eventually(lambda: self.get("/readyz")[1] == "leading", 120)
        self.started += 1

    def eventually(self, holds: Callable[[], object], seconds: float, *, every: float = 0.05) -> None:
        def lives_and_holds() -> object:
            if not self.alive and self.started:
                self.again()
            return holds()

        super().eventually(lives_and_holds, seconds, every=every)


@dataclass(frozen=True)
class Fault:
    """What is done to a running job, and what must come of it."""

    do: Callable[[Jobs, str, str], None]  # to the job of this name, or to this pod of it
    state: str
    restarts: int
    reason: str = ""


def ends(jobs: Jobs, pod: str, exit_code: int, words: Json | None = None, **more: list[Json]) -> None:
    """Say of a pod that its trainer has ended, as its node would."""
    ended = {"exitCode": exit_code, "finishedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    message = {"message": json.dumps({"protocol": 3, **words})} if words is not None else {}
    trainer = {"name": "trainer", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    status = {"containerStatuses": [{**trainer, "state": {"terminated": {**ended, **message}}}]}
    jobs.set_pod_status(pod, {**status, "phase": "Failed" if exit_code else "Succeeded", **more})


def succeed(jobs: Jobs, name: str, _: str) -> None:
    for pod in jobs.pods_of(name):
        ends(jobs, pod, 0, {"reason": "Completed"})


def delete(jobs: Jobs, _: str, pod: str) -> None:
    jobs.delete_pod(pod)


def kill(jobs: Jobs, _: str, pod: str) -> None:
    ends(jobs, pod, 137)


def evict(jobs: Jobs, _: str, pod: str) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    ends(jobs, pod, 143, {"reason": "Terminated"}, conditions=[target])


def raise_exception(jobs: Jobs, _: str, pod: str) -> None:
    ends(jobs, pod, 1, {"reason": "UserError", "rank": 0, "exitCode": 1, "signature": "ValueError: loss is nan"})


def suspend(jobs: Jobs, name: str, _: str) -> None:
    jobs.change(name, suspend=True)


FAULTS = {
    "none: all ranks end with 0": Fault(succeed, "Complete", 0),
    "pod deleted": Fault(delete, "Complete", 1),
    "container killed": Fault(kill, "Complete", 1),
    "pod evicted": Fault(evict, "Complete", 1),
    "exception of the program": Fault(raise_exception, "Failed", 0, "UserError"),
    "suspended": Fault(suspend, "Suspended", 0),
}


def main() -> None:
    """Do it, print what came of it, and end with 1 where that is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=3, help="how often the operator is killed while jobs restart")
    parser.add_argument("--quiet", type=float, default=30, help="seconds at the end in which it must write nothing")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    given = parser.parse_args()
    drawn, cluster = random.Random(given.seed), Cluster()
    cluster.up()
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    cluster.kwok(nodes=-(-given.jobs * 4 // ACCELERATORS) + 2)
    with (
        namespace_of(cluster) as namespace,
        tempfile.TemporaryDirectory() as directory,
        Proxy(cluster.kubeconfig) as proxy,
    ):
        jobs = Jobs(cluster.api, namespace)
        replica = Operator(proxy.kubeconfig(Path(directory)), jobs.namespace, Path(directory), lease=LONG_LEASE)
        replica.again()
        try:
            wrong = run(given, drawn, jobs, proxy, replica)
        finally:
            replica.end()
    sys.exit(1 if wrong else 0)


def run(given: argparse.Namespace, drawn: random.Random, jobs: Jobs, proxy: Proxy, replica: Operator) -> int:
    """Return how many jobs came to another end than they must, or were written to afterwards."""
    faults = {f"job-{number}": drawn.choice(list(FAULTS)) for number in range(given.jobs)}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        applied = [pool.submit(jobs.apply, name, failurePolicy={"backoffSeconds": 1}) for name in faults]
        for each in applied:
            each.result()
        replica.eventually(lambda: states(jobs)["Running"] == given.jobs, 600, every=1)
        began = time.monotonic()
        done = [
            pool.submit(FAULTS[faults[name]].do, jobs, name, f"{name}-1-{drawn.randrange(2)}")
            for name in drawn.sample(list(faults), len(faults))
        ]
        for _ in range(given.kills):
            time.sleep(drawn.uniform(1, 4))
            replica.send(signal.SIGKILL)
            replica.wait()
            replica.again()
        for each in done:
            each.result()
    again = {name for name, fault in faults.items() if FAULTS[fault].restarts}
    finished: set[str] = set()  # those whose ranks were told to end after their restart

    def all_ended() -> bool:
        found = by_name(jobs)
        for name in again - finished:
            status = found[name]
            if status["state"] == "Running" and status.get("restarts"):
                finished.add(name)
                succeed(jobs, name, "")
        return all(found[name]["state"] == FAULTS[fault].state for name, fault in faults.items())

    replica.eventually(all_ended, 1200, every=1)
    seconds = time.monotonic() - began
    replica.eventually(lambda: all(map(says_what_ended, jobs.read_all())), 60)
    before = len(proxy.writes())
    time.sleep(given.quiet)
    later, found = len(proxy.writes()) - before, by_name(jobs)
    wrong: Counter[str] = Counter()
    for name, fault in faults.items():
        status, expected = found[name], FAULTS[fault]
        failure = status.get("failure", {}).get("reason", "")
        if (status.get("restarts", 0), failure) != (expected.restarts, expected.reason):
            wrong[fault] += 1
            print(f"{name}: {fault}: {status.get('restarts')} restarts, {failure}", flush=True)
    print(f"{given.jobs} jobs of 2 pods, seed {given.seed}; the operator was killed {given.kills} times\n")
    print("| fault | jobs | state | restarts | otherwise |\n|---|---|---|---|---|")
    for fault, count in sorted(Counter(faults.values()).items()):
        print(f"| {fault} | {count} | {FAULTS[fault].state} | {FAULTS[fault].restarts} | {wrong[fault]} |")
    rss = Cost.of(replica.pid).rss_mib
    itself = replica.started - 1 - given.kills
    print(
        f"\nAll ended after {seconds:.0f} s. RSS {rss:.0f} MiB. Writes in the {given.quiet:g} s after: {later}. "
        f"The operator ended by itself {itself} times."
    )
    return wrong.total() + later


def says_what_ended(job: Json) -> bool:
    """Whether the job's annotation, which is written after its status, says what its status says of the end."""
    ended = bool(job.get("status", {}).get("run", {}).get("completionTime"))
    return ended == (ANNOTATION_ENDED_RUN in job["metadata"].get("annotations", {}))


def by_name(jobs: Jobs) -> dict[str, Json]:
    return {job["metadata"]["name"]: job.get("status", {}) for job in jobs.read_all()}


def states(jobs: Jobs) -> Counter[str]:
    return Counter(status.get("state", "") for status in by_name(jobs).values())


if __name__ == "__main__":
    main()
