"""The examples of frameworks, as they are but for the image; and pods of strict clusters."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.e2e.jobs import NO_GPU, deepspeed, script
from tests.e2e.kube import Job, Json, Namespace

ROOT = Path(__file__).parents[2]
# Of the Trainer and of accelerate, whose examples say the same of it.
ENGINE = {"world": 2, "stage": 2, "microBatch": 8, "accumulation": 2, "trainBatch": 32}
FRAMEWORKS = ("huggingface-trainer", "accelerate", "lora")
UID = 1000680000  # as OpenShift gives them: of the namespace's own range, and no name in the image

Trained = tuple[Namespace, dict[str, Job]]


def example(name: str) -> list[Json]:
    return list(yaml.safe_load_all((ROOT / f"examples/{name}.yaml").read_text()))


@pytest.fixture(scope="module")
def frameworks(make_namespace: Callable[..., Namespace], image: Callable[[str], str]) -> Trained:
    namespace, worker = make_namespace("frameworks"), image("worker-huggingface")

    def train(name: str) -> Job:
        job, *others = example(name)
        job["spec"]["image"] = worker
        namespace.apply(*others, job)
        return namespace.ended(name, seconds=240)

    with ThreadPoolExecutor(len(FRAMEWORKS)) as pool:
        return namespace, dict(zip(FRAMEWORKS, pool.map(train, FRAMEWORKS), strict=True))


def log_of(frameworks: Trained, name: str) -> str:
    namespace, jobs = frameworks
    assert jobs[name].outcome == "Complete", namespace.report(name)
    assert not [each for each in jobs[name].status["findings"] if each["level"] != "advice"]
    return namespace.log(f"{name}-1-0")


def assert_falls(losses: list[str], least: float) -> None:
    """Whether the last is less than the first by this factor."""
    assert float(losses[-1]) < least * float(losses[0])


@pytest.mark.parametrize(("name", "lines"), [("huggingface-trainer", 8), ("lora", 8)])
def test_the_trainer_divides_the_data_among_two_ranks(frameworks: Trained, name: str, lines: int) -> None:
    losses = re.findall(r"'loss': '?([\d.]+)", log_of(frameworks, name))
    assert len(losses) == lines, "one rank alone would take twice as many steps"
    assert_falls(losses, 0.9)


def test_the_trainer_fills_auto_in_and_tells_unchanged_how_far_it_is(frameworks: Trained) -> None:
    status = frameworks[1]["huggingface-trainer"].status
    assert status["engine"].items() >= ENGINE.items()
    # How many steps there will be only its callback knows: a bar is switched off.
    assert (status["progress"]["totalSteps"], status["progress"]["summary"]) == (32, "100%")
    assert status["progress"]["source"] in {"DeepSpeedEngine", "KubeflowCallback"}


def test_an_adapter_is_trained_and_saved_and_nothing_else(frameworks: Trained) -> None:
    log = log_of(frameworks, "lora")
    assert "trainable params: 17,408 || all params: 116,032" in log
    assert "adapter saved in /tmp/output" in log


def test_a_loop_with_accelerate_trains_two_ranks(frameworks: Trained) -> None:
    log = log_of(frameworks, "accelerate")
    assert_falls(re.findall(r"epoch \d on 2 ranks: loss ([\d.]+)", log), 0.9)
    assert frameworks[1]["accelerate"].status["engine"].items() >= ENGINE.items()


def test_the_quickstart_is_admitted_where_pods_are_restricted(make_namespace: Callable[..., Namespace]) -> None:
    namespace = make_namespace("restricted", **{"pod-security.kubernetes.io/enforce": "restricted"})
    namespace.apply(*example("quickstart"))
    namespace.completed("quickstart", 120)


def test_a_user_id_without_a_name_trains_on_a_read_only_root(
    make_namespace: Callable[..., Namespace], image: Callable[[str], str]
) -> None:
    namespace = make_namespace("stranger")
    program = script("train.py")["train.py"].replace("def main() -> None:\n", STRANGER)
    namespace.config_map("train", {"train.py": program})
    trainer = {
        "resources": NO_GPU,
        "env": [{"name": "HOME", "value": "/"}],
        "securityContext": {"readOnlyRootFilesystem": True},
    }
    pod = {"securityContext": {"runAsUser": UID, "runAsGroup": 0, "fsGroup": UID}}
    namespace.apply(deepspeed("stranger", image("worker"), stage=2, trainer=trainer, pod=pod))
    namespace.completed("stranger", 120)
    assert re.search(r"^user uid1000680000, /tmp/\S+, wrote True$", namespace.log("stranger-1-0"), re.MULTILINE)


STRANGER = """
def main() -> None:
    import getpass, pathlib
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    home = pathlib.Path.home()
    (home / ".cache/huggingface").mkdir(parents=True)
    print(f"user {getpass.getuser()}, {home}, wrote {pathlib.Path(cache_dir()).is_dir()}", flush=True)
"""
