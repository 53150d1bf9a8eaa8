"""What `dsjob init` writes is right the first time: it is valid, it fits, and nothing plain is faster."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.status import ConditionType
from tests.models import LLAMA_13B
from tests.unit.cli.command import Result, dsjob, judged
from tests.unit.plan.model.published import GPT2, PHI3_MINI, PYTHIA_1B, QWEN3
from tests.unit.reconcile.simulation import Simulation

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
MODELS = {
    "gpt2": GPT2,
    "qwen3-0.6b": QWEN3,
    "pythia-1b": PYTHIA_1B,
    "phi3-mini": PHI3_MINI,
    "llama-8b": LLAMA_8B,
    "llama-13b": LLAMA_13B,
}
MACHINES = {
    "a node of H100": ("--gpu", "h100"),
    "four nodes of A100": ("--gpu", "a100-80g", "--nodes", 4, "--network", "IB-HDR"),
    "two nodes of L40S": ("--gpu", "l40s", "--gpus", 4, "--nodes", 2, "--network", "100Gb"),
}


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    return path


def written(*arguments: object) -> dict[str, Any]:
    result = dsjob("init", "first", *arguments)
    assert result.exit_code == 0, result.stderr
    return next(yaml.safe_load_all(result.stdout))


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_what_it_writes_is_valid_and_fits(model: dict[str, Any], machine: tuple[object, ...], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model))
    made = dsjob("init", "first", "--model", path, *machine)
    assert made.exit_code == 0, made.stderr
    [document] = judged("-", stdin=made.stdout)["documents"]
    assert [each for each in document["findings"] if each["level"] != "advice"] == []
    found = Simulation(DeepSpeedJob.model_validate(yaml.safe_load(made.stdout)))
    found.settle()
    assert found.condition(ConditionType.MEMORY_FIT).status == "True"


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_no_other_stage_of_its_plan_is_faster(machine: tuple[object, ...], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT2))
    made = dsjob("init", "first", "--model", path, *machine).stdout
    options = next(line for line in made.splitlines() if "dsjob plan FILE" in line).partition("FILE ")[2].partition("`")
    [plan] = json.loads(dsjob("plan", "-", *options[0].split(), "-o", "json", stdin=made).stdout)
    fitting = [stage["samplesPerSecond"] for stage in plan["stages"] if stage["fits"]]
    assert plan["samplesPerSecond"] * 1.03 >= max(fitting)


def test_a_model_that_is_too_large_is_told_how_many_nodes_it_needs(configuration: Path) -> None:
    made = dsjob("init", "first", "--model", configuration, "--gpu", "l4", "--gpus", 1)
    assert (made.exit_code, made.stdout) == (1, "")
    assert "--nodes 2 is enough; or give --lora RANK, a shorter --sequence or a larger --gpu" in made.stderr
    assert dsjob("init", "first", "--model", configuration, "--gpu", "l4", "--gpus", 1, "--nodes", 2).exit_code == 0


def test_where_no_gpu_is_large_enough_alone_the_optimizer_goes_to_the_host(configuration: Path) -> None:
    config = written("--model", configuration, "--gpu", "4090", "--gpus", 4)["spec"]["dsConfig"]
    assert config["zero_optimization"] == {"stage": 3, "offload_optimizer": {"device": "cpu"}}


def test_the_trainer_is_told_the_numbers_of_the_configuration(configuration: Path) -> None:
    options = ("--framework", "trainer", "--image", "team/llm:1", "--data", "corpus:/data")
    spec = written("--model", configuration, "--gpu", "h100", *options)["spec"]
    words = spec["training"]["args"]
    told = dict(zip(words[::2], words[1::2], strict=True))
    assert told["--deepspeed"] == "$(DEEPSPEED_CONFIG)"
    assert int(told["--per_device_train_batch_size"]) == spec["dsConfig"]["train_micro_batch_size_per_gpu"]
    assert int(told["--gradient_accumulation_steps"]) == spec["dsConfig"]["gradient_accumulation_steps"]
    assert told["--output_dir"] == "/data/first"
    assert spec["template"]["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "corpus"}


@pytest.mark.parametrize("before", ["", "python ", "/usr/bin/python3.11 -u "])
def test_a_script_that_is_here_goes_into_a_config_map_with_its_arguments(
    configuration: Path, tmp_path: Path, before: str
) -> None:
    program = tmp_path / "run.py"
    program.write_text("print('hello')\n")
    made = dsjob(
        "init", "first", "--model", configuration, "--gpu", "h100", "--script", f"{before}{program} --epochs 3"
    )
    job, files = yaml.safe_load_all(made.stdout)
    assert job["spec"]["training"] == {
        "script": "run.py",
        "files": {"configMap": "first-code"},
        "args": ["--epochs", "3"],
    }
    assert (files["metadata"]["name"], files["data"]) == ("first-code", {"run.py": "print('hello')\n"})


@pytest.mark.parametrize("program", ["torchrun train.py", "python -m trainer", "bash run.sh", ""])
def test_what_starts_ranks_itself_is_no_program(configuration: Path, program: str) -> None:
    made = dsjob("init", "first", "--model", configuration, "--gpu", "h100", "--script", program)
    assert (made.exit_code, made.stdout) == (2, "")
    assert "name the program alone" in made.stderr


def test_facts_may_stand_in_a_file_instead_of_a_config_json(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    facts = {"parameters": 1_345_423_360, "layers": 24, "hiddenSize": 2048, "intermediateSize": 5504, "heads": 16}
    path.write_text(json.dumps({**facts, "keyValueHeads": 16, "vocabulary": 32000}))
    model = written("--model", path, "--gpu", "a100-80g", "--sequence", 1024)["spec"]["model"]
    assert (model["layers"], model["sequenceLength"]) == (24, 1024)
    path.write_text("parameters: 7000000000\nhidden: 3\n")
    wrong = dsjob("init", "first", "--model", path, "--gpu", "h100")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "hidden is no field of spec.model" in wrong.stderr


def test_what_is_missing_is_named_where_nobody_can_be_asked() -> None:
    made = dsjob("init")
    assert (made.exit_code, made.stdout) == (2, "")
    assert made.stderr == "dsjob init: give NAME, --model FILE, --gpu NAME: there is no terminal to ask\n"


def test_samples_that_the_ranks_cannot_share_evenly_are_refused_with_those_that_they_can(configuration: Path) -> None:
    made: Result = dsjob("init", "first", "--model", configuration, "--gpu", "h100", "--samples", 100)
    assert made.exit_code == 2
    assert "as 96 or 104" in made.stderr


def test_a_person_is_asked_and_asked_again_for_what_cannot_be_meant(configuration: Path) -> None:
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        [sys.executable, "-m", "deepspeed_operator.cli.main", "init", "first"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "operator")},
    )
    os.write(ours, f"{configuration}\nh1000\nh100\n\n2\n\n\nIB-NDR\n".encode())
    out, err = asked.communicate()
    os.close(ours)
    os.close(theirs)
    assert asked.returncode == 0, err
    assert "h1000 is not one of" in err
    assert "GPUs of a node [8]: " in err
    assert yaml.safe_load(out)["spec"]["nodes"] == 2
