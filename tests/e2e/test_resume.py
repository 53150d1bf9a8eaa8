"""examples/resume.yaml on a volume: who may write to a new one, and where a run goes on after suspend and resume."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.kube import CORE, Json, Namespace, eventually
from tests.e2e.test_examples import example

STEPS = 120  # enough to be suspended in


@pytest.fixture
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    return make_namespace("resume")


@pytest.fixture
def volume(namespace: Namespace, tmp_path: Path) -> Iterator[Path]:
    """The directory behind the example's claim: new, root's, and the same on every node, since they share a disk."""
    directory = tmp_path / "volume"
    directory.mkdir(mode=0o755)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": namespace.cluster.nodes}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "local": {"path": str(directory)},  # kubelets give it to fsGroup, as they do not a hostPath
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "claimRef": {"namespace": namespace.name, "name": "resume-data"},
    }
    namespace.cluster.api.request(
        "POST", f"{CORE}/persistentvolumes", {"metadata": {"name": namespace.name}, "spec": spec}
    )
    yield directory
    namespace.cluster.api.request("DELETE", f"{CORE}/persistentvolumes/{namespace.name}")


def resume() -> tuple[Json, list[Json]]:
    """Return the example's job, which trains a little longer, and what belongs to it."""
    job, *others = example("resume")
    job["spec"]["training"]["args"] = [f"--steps={STEPS}"]
    return job, others


def test_who_may_not_write_to_a_new_volume_is_told_of_fs_group(namespace: Namespace, volume: Path) -> None:
    job, others = resume()
    del job["spec"]["template"]["spec"]["securityContext"]
    namespace.apply(*others, job)
    failed = namespace.finished("resume", 120)
    assert failed.outcome == "Failed", namespace.report("resume")
    assert "/data is not writable by uid 1000" in failed.status["failure"]["message"]
    assert "Set securityContext.fsGroup (such as 1000) in spec.template.spec" in failed.message("Failed")
    assert not list(volume.iterdir())


def test_a_resumed_job_goes_on_from_its_checkpoint(namespace: Namespace, volume: Path) -> None:
    job, others = resume()
    namespace.apply(*others, job)
    latest = volume / "checkpoints/latest"
    eventually(latest.exists, lambda: namespace.report("resume"), 120)
    namespace.edit("resume", suspend=True)
    namespace.wait("resume", lambda job: job.holds("Suspended"))
    reached = int(latest.read_text().removeprefix("global_step"))
    assert 0 < reached < STEPS, "suspended in the middle"
    namespace.edit("resume", suspend=False)
    namespace.completed("resume", 120)
    log = namespace.log("resume-2-0")
    assert f"going on from step {reached}, /data/checkpoints/global_step{reached}/" in log
    saved = [int(step) for step in re.findall(r"^step (\d+) loss \S+ saved$", log, re.MULTILINE)]
    assert saved == list(range(reached + 10, STEPS + 1, 10))
    assert latest.read_text() == f"global_step{STEPS}"
