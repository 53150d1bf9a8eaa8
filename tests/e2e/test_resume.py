"""examples/resume.yaml on a volume: who may write to a new one, and where a run goes on after suspend and resume."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.jobs import ranks, script
from tests.e2e.kube import CORE, Json, Namespace, eventually
from tests.e2e.test_examples import example

STEPS = 400  # ten a second: enough to be suspended in, also by whom a busy machine lets wait
PATH = "/data/checkpoints"
# In the first start rank 1 is killed within its last file of the second save, once `latest` names it.
KILLED = """
if rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    save = engine.checkpoint_engine.save

    def killed(state, path):
        save(state, path)
        if "global_step20" in path:
            while open(arguments.checkpoints + "/latest").read() != "global_step20":
                time.sleep(0.01)
            os.truncate(path, 1000)
            os.kill(os.getpid(), 9)

    engine.checkpoint_engine.save = killed
"""

LABEL = {"one-a-node": "resume"}
KEEPS_OFF: Json = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": LABEL}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


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
    ended = namespace.completed("resume", 120)
    report = namespace.report("resume")
    assert ended.status["attempts"][0]["savedAtEnd"] == "did not save", report
    saved = ended.status["checkpoint"]
    assert (saved["path"], saved["tag"], saved["step"]) == (PATH, f"global_step{STEPS}", STEPS), report
    log = namespace.log("resume-2-0")
    assert f"going on from step {reached}, /data/checkpoints/global_step{reached}/" in log
    saved = [int(step) for step in re.findall(r"^step (\d+) loss \S+ saved$", log, re.MULTILINE)]
    assert saved == list(range(reached + 10, STEPS + 1, 10))
    assert latest.read_text() == f"global_step{STEPS}"


def test_a_rank_that_is_killed_within_a_save_costs_what_came_since_the_last_whole_one(
    namespace: Namespace, volume: Path
) -> None:
    job, others = resume()
    job["spec"]["training"]["args"] = ["--steps=40"]
    code = next(each for each in others if each["kind"] == "ConfigMap")["data"]
    before = "# Weights, optimizer and schedule"
    assert before in code["train.py"]
    code["train.py"] = code["train.py"].replace(before, KILLED + before)
    namespace.apply(*others, job)
    ended = namespace.completed("resume", 120)
    report, log = namespace.report("resume"), namespace.log("resume-1-0")
    assert (ended.attempt, ended.status["attempt"]["round"]) == (1, 2), report
    why = "which is not complete: "
    assert f"{PATH}/latest named global_step20, {why}" in log, log
    assert f"going on from step 10, {PATH}/global_step10/" in log
    assert (volume / "checkpoints/latest").read_text() == "global_step40"
    assert ended.status["checkpoint"]["step"] == 40, report
    (event,) = namespace.told("resume", "CheckpointRepaired")
    assert f"latest named global_step20, {why}" in event["message"], report


def test_a_run_goes_on_with_one_node_and_with_two_again(namespace: Namespace, volume: Path, plain: str) -> None:
    """Pods keep off nodes that have one with their label: another job's makes that one node is left."""
    job, others = resume()
    template = job["spec"]["template"]
    template["metadata"] = {"labels": LABEL}
    template["spec"]["affinity"] = KEEPS_OFF
    policy = {"replacementDeadlineSeconds": 2}
    job["spec"] |= {"elastic": {"minNodes": 1}, "failurePolicy": policy}
    namespace.apply(*others, job)
    latest, universal = volume / "checkpoints/latest", volume / "checkpoints/latest_universal"
    eventually(latest.exists, lambda: namespace.report("resume"), 120)
    namespace.edit("resume", suspend=True)
    namespace.wait("resume", lambda job: job.holds("Suspended"))
    reached = latest.read_text()
    elsewhere = {"nodeSelector": {"kubernetes.io/hostname": namespace.cluster.nodes[1]}}
    namespace.config_map("rank", script("rank.py"))
    blocker = ranks("blocker", plain, "sleep=300", nodes=1, pod=elsewhere)
    blocker["spec"]["template"]["metadata"] = {"labels": LABEL}
    namespace.apply(blocker)
    namespace.running("blocker")
    namespace.edit("resume", suspend=False)
    alone = namespace.wait("resume", lambda job: job.attempt == 3 and job.holds("Running"), 120)
    assert (alone.run["world"]["size"], alone.run["batch"]["train"]) == (1, 16), namespace.report("resume")
    assert "gradient_accumulation_steps 2" in alone.status["attempt"]["resized"]
    assert "checkpoint.load_universal: true" in alone.status["attempt"]["resized"]
    assert alone.status["attempts"][-1]["outcome"] == "Resized"
    eventually(lambda: latest.read_text() != reached, lambda: namespace.report("resume"), 120)
    assert f"going on from step {reached.removeprefix('global_step')}, {PATH}/{reached}_universal/" in namespace.log(
        "resume-3-0"
    )
    namespace.edit("resume", suspend=True)
    namespace.wait("resume", lambda job: job.holds("Suspended"))
    namespace.delete("blocker")
    namespace.gone("blocker")
    reached = latest.read_text()
    namespace.edit("resume", suspend=False)
    ended = namespace.completed("resume", 180)
    assert (ended.attempt, ended.run["world"]["size"]) == (4, 2), namespace.report("resume")
    assert f", {PATH}/{reached}_universal/" in namespace.log("resume-4-0")
    assert universal.read_text() == f"{reached}_universal"
