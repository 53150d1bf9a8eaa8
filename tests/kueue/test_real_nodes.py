"""Jobs that train on real nodes, in a queue of a real Kueue, with the operator as the chart installs it."""

import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.cluster.cluster import Cluster
from dev.cluster.kueue import Kueue
from tests.consoles import hold
from tests.e2e.conftest import image, plain
from tests.e2e.installation import Operator
from tests.e2e.jobs import ranks
from tests.e2e.kube import CORE, Json, Namespace, eventually
from tests.kueue.queues import API_VERSION, KUEUE, made

__all__ = ["image", "plain"]

TRAINER = Path(__file__).with_name("trainer.py")
STEPS = 24
QUOTA = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2"}  # for one job
# As docs/kueue.md has them; they are of the jobs' uids.
SUFFIXES = {"pretrain": "0e9a7", "evaluate": "5b1c3", "hotfix": "c27d4"}


@dataclass(frozen=True)
class Line:
    """What a rank has written."""

    at: float
    attempt: int
    rank: int
    what: str


@pytest.fixture
def operator(cluster: Cluster, kueue: Kueue) -> Iterator[Operator]:
    """The operator, with the rights that the chart gives it for queues."""
    assert kueue.log.exists()
    installed = Operator(cluster)
    installed.install("kueue.enabled=true")
    installed.settled()
    yield installed
    installed.uninstall()


@pytest.fixture
def namespace(operator: Operator) -> Iterator[Namespace]:
    """A namespace with a LocalQueue, whose ClusterQueue has quota for two pods, and a class of urgent jobs."""
    namespace = Namespace.create(operator.cluster, f"kueue-{secrets.token_hex(3)}")
    api = operator.cluster.api
    flavors = [{"name": "h100", "resources": [{"name": name, "nominalQuota": quota} for name, quota in QUOTA.items()]}]
    groups = [{"coveredResources": list(QUOTA), "flavors": flavors}]
    preemption = {"withinClusterQueue": "LowerPriority"}
    own = f"{KUEUE}/namespaces/{namespace.name}/localqueues"
    for path, body in (
        (f"{KUEUE}/resourceflavors", made("ResourceFlavor", "h100", {"nodeLabels": {"kubernetes.io/os": "linux"}})),
        (
            f"{KUEUE}/clusterqueues",
            made("ClusterQueue", "gpus", {"namespaceSelector": {}, "preemption": preemption, "resourceGroups": groups}),
        ),
        (own, made("LocalQueue", "team-a", {"clusterQueue": "gpus"})),
        (
            f"{KUEUE}/workloadpriorityclasses",
            {"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 100},
        ),
    ):
        api.request("POST", path, body)
    yield namespace
    api.request("DELETE", f"{CORE}/namespaces/{namespace.name}")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that the pods of a job share."""
    path = Path(tempfile.mkdtemp(prefix="kueue-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def training(name: str, image: str, shared: Path, **scheduling: str) -> Json:
    """A job of two pods with one GPU each."""
    (shared / name).mkdir()
    (shared / name).chmod(0o777)
    resources = {"limits": {"nvidia.com/gpu": 1, "memory": "256Mi"}, "requests": {"cpu": "10m"}}
    trainer = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}], "resources": resources}
    pod = {"volumes": [{"name": "shared", "hostPath": {"path": str(shared / name)}}]}
    program = {"script": "trainer.py", "args": [str(STEPS)], "files": {"configMap": "trainer"}}
    queue = {"queueName": "team-a", **scheduling}
    return ranks(name, image, training=program, trainer=trainer, pod=pod, scheduling=queue)


def journal(shared: Path) -> list[Line]:
    """What the ranks of a job have written."""
    path = shared / "journal"
    lines = [line.split(" ", 3) for line in path.read_text().splitlines()] if path.exists() else []
    return [Line(float(at), int(attempt), int(rank), what) for at, attempt, rank, what in lines]


def written(shared: Path, attempt: int, rank: int) -> list[str]:
    return [line.what for line in journal(shared) if (line.attempt, line.rank) == (attempt, rank)]


def console(namespace: Namespace) -> str:
    """What kubectl shows of the jobs and their Workloads, with names that another run has, too."""
    text = namespace.cluster.kubectl("-n", namespace.name, "get", "dsj,workloads")
    return re.sub(r"(\w+)-0-[0-9a-f]{5}", lambda found: f"{found[1]}-0-{SUFFIXES[found[1]]}", text)


def test_a_training_that_is_preempted_saves_and_goes_on_from_there(
    namespace: Namespace, plain: str, shared: Path, pytestconfig: pytest.Config
) -> None:
    half = [f"step {step + 1}" for step in range(STEPS // 2)]
    namespace.config_map("trainer", {"trainer.py": TRAINER.read_text()})
    namespace.apply(training("pretrain", plain, shared))
    eventually(
        lambda: all(written(shared / "pretrain", 1, rank) == half for rank in (0, 1)),
        lambda: namespace.report("pretrain"),
        120,
    )
    namespace.running("pretrain")
    namespace.apply(training("evaluate", plain, shared))
    namespace.wait("evaluate", lambda job: job.says("insufficient unused quota"))
    consoles = [console(namespace)]
    namespace.apply(training("hotfix", plain, shared, priorityClassName="urgent"))
    namespace.running("hotfix", 120)
    namespace.wait("pretrain", lambda job: job.status["state"] == "Queued")
    consoles.append(console(namespace))
    for job in ("hotfix", "evaluate", "pretrain"):
        (shared / job / "go").touch()
    for job in ("hotfix", "evaluate", "pretrain"):
        namespace.completed(job, 120)
        # Its queue is told after its status is written.
        namespace.wait(job, lambda job: "workload" not in job.status["queue"])
    consoles.append(console(namespace))
    for rank in (0, 1):
        assert written(shared / "pretrain", 1, rank) == [*half, f"saved {STEPS // 2}"]
        assert written(shared / "pretrain", 2, rank) == [f"step {step + 1}" for step in range(STEPS // 2, STEPS)]
    last = max(line.at for line in journal(shared / "pretrain") if line.attempt == 1)
    assert last < min(line.at for line in journal(shared / "hotfix")), "it had not ended when another had its quota"
    ended = namespace.job("pretrain").status["attempts"][0]
    assert (ended["outcome"], ended["reason"]) == ("Evicted", "QuotaReclaimed")
    moments = iter(consoles)
    assert hold("docs/kueue.md", lambda _: next(moments), pytestconfig, varies=True) == len(consoles)
