"""Each fault costs what it may, and the job comes to the same end as without it."""

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dev.cluster.api import ApiError
from tests.e2e.installation import Operator
from tests.e2e.kube import CORE, Job, Namespace, eventually
from tests.survival import page
from tests.survival.faults import OF_A_JOB, OF_THE_CLUSTER, Fault
from tests.survival.measured import Measured, measured
from tests.survival.scene import Scene

SURVIVOR = Path(__file__).with_name("survivor.py")
AT_A_TIME = 7

Try = Callable[[str, Fault], Measured]


@pytest.fixture
def attempt(operator: Operator, plain: str) -> Iterator[Try]:
    """Tries a fault on a job of its own."""
    shared = Path(tempfile.mkdtemp(prefix="survival-", dir="/var/tmp"))
    shared.chmod(0o755)
    made: list[Namespace] = []

    def try_fault(name: str, fault: Fault) -> Measured:
        namespace = Namespace.create(operator.cluster, f"survival-{secrets.token_hex(3)}")
        made.append(namespace)
        namespace.config_map("rank", {"survivor.py": SURVIVOR.read_text()})
        scene = Scene(namespace, operator, namespace.name, shared / namespace.name, fault.index or 0)
        scene.begin(plain)
        scene = scene if fault.index is not None else scene.off_the_operators_node()
        try:
            at = time.time()
            fault.do(scene)
            if fault.outcome is None:
                eventually(lambda: _gone(scene), f"{namespace.name} stays", fault.seconds)
                job: Job | None = None
            else:
                job = namespace.ended(scene.name, fault.seconds)
            with contextlib.suppress(AssertionError):
                eventually(lambda: not scene.orphans(), "processes are left", 15)
            row = measured(scene, job, at)
        finally:
            fault.after(scene)
        page.write(name, row)
        return row

    yield try_fault
    for namespace in made:
        with contextlib.suppress(ApiError):  # a fault has deleted it
            operator.cluster.api.request("DELETE", f"{CORE}/namespaces/{namespace.name}")
    shutil.rmtree(shared, ignore_errors=True)


def _gone(scene: Scene) -> bool:
    try:
        return not scene.cluster.api.found(f"{CORE}/namespaces/{scene.namespace.name}")
    except ApiError:
        return False


def right(fault: Fault, row: Measured) -> bool:
    """Whether nothing went wrong, and no budget paid more than it may."""
    paid = row.user + row.infrastructure <= fault.cost
    return paid and row.outcome == (fault.outcome or "gone") and not (row.unintended or row.orphans or row.lost)


def test_faults_of_one_job_side_by_side(attempt: Try) -> None:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        tried = {name: pool.submit(attempt, name, fault) for name, fault in OF_A_JOB.items()}
    wrong = {
        name: each.exception() or each.result()
        for name, each in tried.items()
        if each.exception() or not right(OF_A_JOB[name], each.result())
    }
    assert not wrong


@pytest.mark.parametrize("name", OF_THE_CLUSTER)
def test_faults_of_the_cluster(attempt: Try, name: str) -> None:
    row = attempt(name, OF_THE_CLUSTER[name])
    assert right(OF_THE_CLUSTER[name], row), row
