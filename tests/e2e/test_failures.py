"""Every way to fail ends in a message that names pod, node, rank where there is one, and cause."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from tests.e2e import processes
from tests.e2e.jobs import NO_GPU, NO_RESTARTS, ranks, script
from tests.e2e.kube import TERMINAL_PHASES, Job, Json, Namespace, eventually
from tests.e2e.pod_watch import PodWatch

AT_ONCE = 6
KNOWN_WITHIN_SECONDS = 30
NO_DATA = {"command": ["python3", "-c", "exit('no data here')"], "terminationMessagePolicy": "FallbackToLogsOnError"}
SIDECAR_COMMAND = ["python3", "-c", "import time; time.sleep(1e6)"]
DEADLINE = {"startupDeadlineSeconds": 40}
NO_DNS = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}
SMALL = {"resources": {"limits": {**NO_GPU["limits"], "memory": "128Mi"}, "requests": {"cpu": "10m"}}}


@dataclass(frozen=True)
class Case:
    """A job's actions and fields, and what its end must say."""

    reason: str
    says: tuple[str, ...]
    actions: tuple[str, ...] = ()
    index: int | None = None  # of the pod to blame, where only one can be the first
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    image: str = "plain-python"
    options: Json = field(default_factory=dict[str, Any])


CASES = {
    "exit-code": Case(
        "RankFailed", ("exited with code 7", "a last word"),
        ("sleep=1", "1:print=a last word", "1:exit=7", "sleep=90"), index=1, rank=1, exit_code=7,
    ),
    "killed": Case("RankFailed", ("signal 9",), ("1:kill=9", "sleep=90"), index=1, rank=1, signal=9),
    "traceback": Case(
        "UserError", ("ValueError: bad shape",), ("1:raise=bad shape", "sleep=90"), index=1, rank=1, exit_code=1,
    ),
    "second-slot": Case(
        "RankFailed", ("exited with code 3",), ("3:exit=3", "sleep=90"), index=1, rank=3, exit_code=3,
        options={"slotsPerNode": 2, "trainer": {}},
    ),
    "out-of-memory": Case(
        "HostOutOfMemory", ("out of memory", "trainer"), ("1:allocate=2000", "sleep=90"), index=1, rank=1,
        exit_code=137, signal=9, options={"trainer": SMALL},
    ),
    "container-killed": Case(
        "ContainerKilled", ("killed by signal 9", "trainer"), ("sleep=90",), index=1, exit_code=137, signal=9,
    ),
    "import-deepspeed": Case(
        "UserError", ("ModuleNotFoundError: No module named 'deepspeed'",), ("1:import=deepspeed", "sleep=90"),
        index=1, rank=1, exit_code=1,
    ),
    "launch-deepspeed": Case("PodCheckFailed", ("no deepspeed",), options={"training": {"launcher": "DeepSpeed"}}),
    "image-without-python": Case("PythonNotFound", ("python3",), exit_code=128, image="no-python"),
    "python-not-found": Case(
        "PythonNotFound", ("/opt/none/python",), options={"training": {"python": "/opt/none/python"}},
    ),
    "script-not-found": Case("ScriptNotFound", ("absent.py",), options={"training": {"script": "absent.py"}}),
    "init-container": Case(
        "InitContainerFailed", ("prepare", "no data here"), exit_code=1,
        options={"pod": {"initContainers": [{"name": "prepare", **NO_DATA}]}},
    ),
    "host-not-resolved": Case(
        "HostNotResolved", ("host-not-resolved-1-0",), options={"pod": NO_DNS, "lifecycle": DEADLINE},
    ),
    "image-not-pullable": Case(
        "StartupDeadlineExceeded", ("registry.local:5000/absent:1",), image="registry.local:5000/absent:1",
        options={"lifecycle": DEADLINE},
    ),
    "unschedulable": Case(
        "StartupDeadlineExceeded", ("didn't match Pod's node affinity/selector",),
        options={"pod": {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}, "lifecycle": DEADLINE},
    ),
    "sidecar": Case(
        "RankFailed", ("exited with code 5",), ("1:exit=5", "sleep=90"), index=1, rank=1, exit_code=5,
        options={"pod": {"containers": [{"name": "exporter", "command": SIDECAR_COMMAND}]}},
    ),
}  # fmt: skip
NEVER_ON_A_NODE = {"unschedulable"}
# No container of theirs ends: what Kubernetes says of the pod, and the reason under which the job does.
NEVER_BEGIN = {
    "image-not-pullable": ("Failed", "ImagePullFailed"),
    "unschedulable": ("FailedScheduling", "Unschedulable"),
}


def beside_a_sidecar_that_ends(code: int) -> Case:
    """Ranks that succeed a while after the sidecar has ended."""
    exporter = {"name": "exporter", "command": ["python3", "-c", f"exit({code})"]}
    return Case("", (), ("sleep=20",), options={"pod": {"containers": [exporter]}})


@dataclass(frozen=True)
class Ended:
    namespace: Namespace
    jobs: dict[str, Job]
    pods: dict[str, Json]  # as they were last, by their names: those that are gone included


@pytest.fixture(scope="module")
def ended(make_namespace: Callable[..., Namespace], image: Callable[[str], str]) -> Ended:
    """All jobs of this module, finished."""
    namespace = make_namespace("failures")
    namespace.config_map("rank", script("rank.py"))
    plain, seen = image("plain-python"), PodWatch(namespace)

    def manifest(name: str, case: Case) -> Json:
        picture = case.image if "/" in case.image else image(case.image)
        made = ranks(name, picture, *case.actions, failurePolicy=NO_RESTARTS, **case.options)
        pod = made["spec"]["template"]["spec"]
        for container in [*pod["containers"][1:], *pod.get("initContainers", [])]:
            container["image"] = plain
        return made

    succeeding = manifest("sidecar-succeeds", CASES["sidecar"])
    succeeding["spec"]["training"]["args"] = []
    beside = (manifest(f"sidecar-exits-{code}", beside_a_sidecar_that_ends(code)) for code in (0, 1))
    manifests = [succeeding, *beside, *(manifest(name, case) for name, case in CASES.items())]

    def run(job: Json) -> Job:
        name = job["metadata"]["name"]
        namespace.apply(job)
        if name == "container-killed":
            namespace.running(name)
            processes.kill(namespace.pods(name)[1], "trainer")
        return namespace.ended(name)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = list(pool.map(run, manifests))
    by_name = {each["metadata"]["name"]: done for each, done in zip(manifests, jobs, strict=True)}
    return Ended(namespace, by_name, dict(seen.last))


@pytest.mark.parametrize("name", CASES)
def test_a_failed_job_names_the_cause(ended: Ended, name: str) -> None:
    case, job = CASES[name], ended.jobs[name]
    report = ended.namespace.report(name)
    assert job.outcome == "Failed", report
    found, message = job.failure, job.message("Failed")
    assert found["reason"] == job.reason("Failed") == case.reason, report
    assert found.get("rank") == case.rank, report
    assert found.get("signal") == case.signal, report
    assert found.get("exitCode") == case.exit_code, report
    indices = (0, 1) if case.index is None else (case.index,)
    assert found["pod"] in {f"{name}-1-{index}" for index in indices}, report
    assert f"pod {found['pod']}" in message, report
    assert case.rank is None or f"rank {case.rank}" in message
    assert all(text in found["message"] for text in case.says), report
    assert found.get("node") == ended.pods[found["pod"]]["spec"].get("nodeName"), report
    assert ("node" not in found) == (name in NEVER_ON_A_NODE), report
    assert name in NEVER_ON_A_NODE or f"on node {found['node']}" in message, report


@pytest.mark.parametrize("name", [name for name in CASES if name not in NEVER_BEGIN])
def test_the_message_comes_within_30_seconds_of_the_end_of_a_container(ended: Ended, name: str) -> None:
    ends = [
        datetime.fromisoformat(status["state"]["terminated"]["finishedAt"])
        for pod in (ended.pods[f"{name}-1-{index}"] for index in (0, 1))
        for kind in ("initContainerStatuses", "containerStatuses")
        for status in pod["status"].get(kind, [])
        if status["name"] in {"trainer", "prepare"} and "terminated" in status["state"]
    ]
    completed = datetime.fromisoformat(ended.jobs[name].run["completionTime"])
    assert ends
    assert (completed - min(ends)).total_seconds() < KNOWN_WITHIN_SECONDS


@pytest.mark.parametrize("name", NEVER_BEGIN)
def test_the_message_comes_within_30_seconds_of_kubernetes_own_where_no_container_begins(
    ended: Ended, name: str
) -> None:
    def first(reason: str, *objects: str) -> datetime:
        told = (event for each in objects for event in ended.namespace.told(each, reason))
        return min(datetime.fromisoformat(event["metadata"]["creationTimestamp"]) for event in told)

    of_the_pod, of_the_job = NEVER_BEGIN[name]
    known, told = first(of_the_pod, f"{name}-1-0", f"{name}-1-1"), first(of_the_job, name)
    assert (told - known).total_seconds() < KNOWN_WITHIN_SECONDS


def test_pods_that_do_not_find_rank_0_are_named_before_the_startup_deadline(ended: Ended, plain: str) -> None:
    name, namespace = "lost", ended.namespace
    namespace.apply(ranks(name, plain, pod=NO_DNS))
    said = namespace.wait(name, lambda job: job.reason("Running") == "WaitingForPeers", 60).message("Running")
    node = next(pod["spec"]["nodeName"] for pod in namespace.pods(name) if pod["metadata"]["name"] == "lost-1-1")
    assert f"pod lost-1-1 on node {node}" in said
    assert "does lost-1-0.lost resolve there?" in said
    namespace.delete(name, "--wait=false")


def test_peers_end_with_the_failing_rank_and_carry_its_cause(ended: Ended) -> None:
    peer, culprit = (
        pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in ended.namespace.pods("exit-code")
    )
    assert culprit["exitCode"] == 7
    assert '"rank":1,"exitCode":7' in peer["message"].splitlines()[0]
    end, peers_end = (datetime.fromisoformat(each["finishedAt"]) for each in (culprit, peer))
    assert (peers_end - end).total_seconds() <= 30


def test_a_sidecar_that_never_ends_keeps_no_job_from_success(ended: Ended) -> None:
    assert ended.jobs["sidecar-succeeds"].outcome == "Complete", ended.namespace.report("sidecar-succeeds")
    assert any("sidecar" in finding["message"] for finding in ended.jobs["sidecar-succeeds"].status["findings"])


@pytest.mark.parametrize("code", [0, 1])
def test_a_sidecar_that_has_ended_changes_nothing_about_a_job_that_succeeds(ended: Ended, code: int) -> None:
    name = f"sidecar-exits-{code}"
    job, report = ended.jobs[name], ended.namespace.report(name)
    assert job.outcome == "Complete", report
    assert job.status["workers"] == {"ready": 0, "active": 0, "succeeded": 2, "failed": 0}, report
    for pod in ended.namespace.pods(name):
        ends = {each["name"]: each["state"]["terminated"] for each in pod["status"]["containerStatuses"]}
        assert {each: end["exitCode"] for each, end in ends.items()} == {"trainer": 0, "exporter": code}
        assert ends["exporter"]["finishedAt"] < ends["trainer"]["finishedAt"]


@pytest.mark.parametrize("name", ["sidecar", "sidecar-succeeds"])
def test_no_sidecar_holds_its_pod_after_the_job(ended: Ended, name: str) -> None:
    def released() -> bool:
        return all(pod["status"]["phase"] in TERMINAL_PHASES for pod in ended.namespace.pods(name))

    eventually(released, lambda: ended.namespace.report(name), 30)


def test_a_failed_job_has_a_warning_event(ended: Ended) -> None:
    events = [event for event in ended.namespace.told("exit-code", "RankFailed") if event["type"] == "Warning"]
    assert any("exit-code-1-1" in event["message"] for event in events)
