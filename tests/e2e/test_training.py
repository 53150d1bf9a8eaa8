"""DeepSpeed really trains: every ZeRO stage and every launcher."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.jobs import EAGER, NO_GPU, deepspeed, job, script
from tests.e2e.kube import Job, Json, Namespace

# Importing torch and DeepSpeed takes each rank about seven seconds of processor time; more jobs at once gain nothing.
AT_ONCE = 4
# As the documentation shows it: the world comes from PET_*.
TORCHRUN = ["torchrun", "train.py"]
ACCELERATE_LAUNCH = [
    *("accelerate", "launch", "--num_machines=$(NNODES)", "--num_processes=2", "--machine_rank=$(NODE_RANK)"),
    *("--main_process_ip=$(MASTER_ADDR)", "--main_process_port=$(MASTER_PORT)"),
    *("--use_deepspeed", "--deepspeed_multinode_launcher=standard", "--deepspeed_config_file=$(DEEPSPEED_CONFIG)"),
    "accelerate_train.py",
]

# Each stage, launcher and way to lie on nodes once: a wrong one of them changes the losses, whatever goes with it.
REGRESSIONS: dict[str, Json] = {
    "zero-0": {"stage": 0},
    "one-node": {"stage": 1, "nodes": 1, "slotsPerNode": 2},
    "launcher-deepspeed": {
        "stage": 1,
        "training": {"launcher": "DeepSpeed"},
        "network": {"profile": "TCP", "interface": "eth0", "env": {"NCCL_DEBUG": "WARN"}},
    },
    "launcher-torchrun": {"stage": 2, "training": {"launcher": "Torchrun"}},
    "launcher-none": {"stage": 3, "training": {"launcher": "None", "script": None, "command": TORCHRUN}},
}


def accelerate_launch(image: str) -> Json:
    training = {"files": {"configMap": "accelerate"}, "command": ACCELERATE_LAUNCH, "launcher": "None"}
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1}}
    allowed = {"zero_allow_untested_optimizer": True}
    return job("accelerate-launch", image, training=training, trainer={"env": EAGER}, dsConfig={**config, **allowed})


def eight_pods(image: str) -> Json:
    training = {"script": "all_reduce.py", "files": {"configMap": "all-reduce"}}
    return job("eight-pods", image, training=training, trainer={"resources": NO_GPU}, nodes=8, slotsPerNode=1)


def script_of_the_image(image: str) -> Json:
    training = {"script": "/usr/lib/python3.13/this.py"}
    return job("image-script", image, training=training, trainer={"resources": NO_GPU}, nodes=1)


@pytest.fixture(scope="module")
def trained(make_namespace: Callable[..., Namespace], image: Callable[[str], str]) -> tuple[Namespace, dict[str, Job]]:
    """All jobs of this module, finished, by name."""
    namespace = make_namespace("training")
    scripts = {
        "train": "train.py",
        "accelerate": "accelerate_train.py",
        "all-reduce": "all_reduce.py",
    }
    for name, file in scripts.items():
        namespace.config_map(name, script(file))
    worker = image("worker")
    manifests = [
        accelerate_launch(image("worker-huggingface")),
        *(deepspeed(name, worker, **options) for name, options in REGRESSIONS.items()),
        eight_pods(worker),
        script_of_the_image(image("plain-python")),
    ]

    def train(manifest: Json) -> Job:
        namespace.apply(manifest)
        return namespace.ended(manifest["metadata"]["name"], seconds=240)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = list(pool.map(train, manifests))
    return namespace, {manifest["metadata"]["name"]: job for manifest, job in zip(manifests, jobs, strict=True)}


def result(trained: tuple[Namespace, dict[str, Job]], name: str) -> dict[str, Any]:
    namespace, jobs = trained
    assert jobs[name].outcome == "Complete", namespace.report(name)
    line = next(line for line in namespace.log(f"{name}-1-0").splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


@pytest.mark.parametrize("name", REGRESSIONS)
def test_the_losses_depend_on_the_batch_and_not_on_stage_launcher_or_nodes(
    trained: tuple[Namespace, dict[str, Job]], name: str
) -> None:
    found = result(trained, name)
    assert found["world"] == 2
    assert found["batch"] == 8
    assert found["zero"] == REGRESSIONS[name]["stage"]
    losses = found["losses"]
    assert losses == result(trained, "zero-0")["losses"]
    assert float(losses[-1]) < float(losses[0])


def test_two_nodes_train_one_job(trained: tuple[Namespace, dict[str, Job]]) -> None:
    namespace, _ = trained
    assert len({pod["spec"]["nodeName"] for pod in namespace.pods("launcher-torchrun")}) == 2


def test_status_says_what_was_trained(trained: tuple[Namespace, dict[str, Job]]) -> None:
    job = trained[1]["launcher-torchrun"]
    run = job.run
    cpus = {"name": "cpu", "source": "WorkerImage"}
    assert run["world"] == {"nodes": 2, "slotsPerNode": 1, "size": 2, "dataParallel": 2, "accelerator": cpus}
    sizes = {"train": 8, "microPerGpu": 2, "accumulation": 2, "dataParallelRanks": 2, "samplesPerStep": 8}
    assert run["batch"] == sizes
    assert job.status["workers"] == {"ready": 0, "active": 0, "succeeded": 2, "failed": 0}
    assert run["deepspeedVersion"] == "0.19.8"


def test_the_world_of_launcher_none_is_the_jobs(trained: tuple[Namespace, dict[str, Job]]) -> None:
    findings = trained[1]["launcher-none"].status.get("findings", [])
    assert not any("not asserted" in finding["message"] for finding in findings)


def test_accelerates_own_launcher_trains_the_jobs_world(trained: tuple[Namespace, dict[str, Job]]) -> None:
    assert result(trained, "accelerate-launch") == {
        "engine": "DeepSpeedEngine", "distributed": "DEEPSPEED", "world": 2, "zero": 1, "micro": 4, "batch": 8,
    }  # fmt: skip


def test_eight_pods_reach_each_other(trained: tuple[Namespace, dict[str, Job]]) -> None:
    namespace, jobs = trained
    assert jobs["eight-pods"].outcome == "Complete", namespace.report("eight-pods")
    assert "sum of 8 ranks: 28" in namespace.log("eight-pods-1-0")


def test_a_script_of_the_image_needs_no_files(trained: tuple[Namespace, dict[str, Job]]) -> None:
    namespace, jobs = trained
    assert jobs["image-script"].outcome == "Complete", namespace.report("image-script")
    assert "Beautiful is better than ugly." in namespace.log("image-script-1-0")
