"""Launchers in real pods: a run whose ranks form another world than the planned one is never Complete."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.jobs import NO_GPU, deepspeed, job, script
from tests.e2e.kube import Job, Json, Namespace

# A PyTorchJob's idiom. In a file nobody sees that the command names its variables, and the defaults hold.
IDIOM = (
    "torchrun --nnodes=${WORLD_SIZE:-1} --node_rank=${RANK:-0} --nproc_per_node=1 "
    "--master_addr=${MASTER_ADDR:-localhost} --master_port=${MASTER_PORT:-29500} world.py"
)
ONE_RANK = "--nnodes=1 --node_rank=0 --nproc_per_node=1 --master_addr=localhost --master_port=29501"
EACH = "torchrun --nnodes=1 --node_rank=0 --nproc_per_node=2 --master_addr=localhost --master_port=29501 world.py"
DEEPSPEED = "deepspeed --num_gpus 1 train.py --config $DEEPSPEED_CONFIG"
COMMANDS: dict[str, list[str]] = {
    "alone": ["sh", "alone.sh"],
    "each": ["sh", "each.sh"],
    "idiom": ["sh", "-c", IDIOM],
    "helper": ["sh", "-ec", f"torchrun {ONE_RANK} world.py; torchrun world.py"],
}
OTHER: Json = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
}


def once_a_pod(name: str, image: str, command: list[str]) -> Json:
    training = {"launcher": "None", "command": command, "files": {"configMap": "world"}}
    return job(name, image, training=training, trainer={"resources": NO_GPU})


@pytest.fixture(scope="module")
def ended(make_namespace: Callable[..., Namespace], image: Callable[[str], str]) -> tuple[Namespace, dict[str, Job]]:
    """All jobs of this module, finished, by name."""
    namespace, worker = make_namespace("world"), image("worker")
    namespace.config_map(
        "world", {**script("world.py"), "alone.sh": f"unset MASTER_ADDR MASTER_PORT\n{IDIOM}", "each.sh": EACH}
    )
    files = {**script("train.py"), "alone.sh": DEEPSPEED, "other.json": json.dumps(OTHER)}
    namespace.config_map("train", files)
    runner = {"launcher": "None", "script": None, "args": [], "command": ["sh", "alone.sh"]}
    manifests = [
        *(once_a_pod(name, worker, command) for name, command in COMMANDS.items()),
        deepspeed("alone-deepspeed", worker, stage=1, training=runner, trainer={"resources": NO_GPU}),
        deepspeed("other-engine", worker, stage=1, training={"args": ["--config", "other.json"]}),
    ]

    def train(manifest: Json) -> Job:
        namespace.apply(manifest)
        return namespace.ended(manifest["metadata"]["name"], seconds=200)

    with ThreadPoolExecutor(2) as pool:
        jobs = list(pool.map(train, manifests))
    return namespace, {manifest["metadata"]["name"]: done for manifest, done in zip(manifests, jobs, strict=True)}


@pytest.mark.parametrize("name", ["alone", "alone-deepspeed"])
def test_two_worlds_of_one_are_failed_and_told_as_what_they_are(
    ended: tuple[Namespace, dict[str, Job]], name: str
) -> None:
    namespace, jobs = ended
    assert jobs[name].outcome == "Failed", namespace.report(name)
    failure = jobs[name].status["failure"]
    assert failure["reason"] == "WorldMismatch"
    pods = f"{name}-1-0, {name}-1-1"
    assert f"the ranks formed worlds of 1 (in {pods}; each trained alone); planned is one of 2" in failure["message"]
    assert "NODE_RANK" in jobs[name].message("Failed")


def test_a_world_of_the_planned_size_in_each_pod_is_failed(ended: tuple[Namespace, dict[str, Job]]) -> None:
    namespace, jobs = ended
    assert jobs["each"].outcome == "Failed", namespace.report("each")
    words = (
        "the ranks formed worlds of 2 (in each-1-0, each-1-1; each trained alone); planned is one of 2 across 2 pods"
    )
    assert words in jobs["each"].status["failure"]["message"]


@pytest.mark.parametrize("name", ["idiom", "helper"])
def test_the_planned_world_is_complete_without_a_word(ended: tuple[Namespace, dict[str, Job]], name: str) -> None:
    namespace, jobs = ended
    assert jobs[name].outcome == "Complete", namespace.report(name)
    assert "WORLD 2 SUM 2" in namespace.log(f"{name}-1-0")
    assert not any("world" in finding["message"] for finding in jobs[name].status.get("findings", []))


def test_an_engine_of_another_configuration_is_told(ended: tuple[Namespace, dict[str, Job]]) -> None:
    namespace, jobs = ended
    found = jobs["other-engine"]
    assert found.outcome == "Complete", namespace.report("other-engine")
    expected = {"world": 2, "stage": 0, "precision": "fp32", "microBatch": 2, "accumulation": 2, "trainBatch": 8}
    assert {name: found.status["engine"][name] for name in expected} == expected
    (finding,) = [each for each in found.status["findings"] if each["message"].startswith("The engine differs")]
    assert "ZeRO stage 0 (accepted: 1), optimizer adam (accepted: AdamW)" in finding["message"]
    (event,) = namespace.told("other-engine", "EngineDiffers")
    assert event["type"] == "Warning"


def test_a_launcher_that_certainly_forms_another_world_is_refused(
    ended: tuple[Namespace, dict[str, Job]], image: Callable[[str], str]
) -> None:
    namespace, _ = ended
    namespace.apply(once_a_pod("refused", image("worker"), ["deepspeed", "train.py"]))
    refused = namespace.wait("refused", lambda job: job.status.get("state") == "Invalid")
    assert "spec.training.launcher: DeepSpeed" in refused.message("Accepted")
