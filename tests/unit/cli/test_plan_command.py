"""`dsjob plan`."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.job.data_sheets import devices_like
from tests.unit.cli.command import dsjob

ROOT = Path(__file__).parents[3]
JOB_7B = ROOT / "examples/llama-7b.yaml"
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}
JOB = """\
apiVersion: deepspeed-operator.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: pretrain}
spec:
  nodes: 2
  deepspeedVersion: 0.19.8
  training: {script: train.py}
  dsConfig:
    train_micro_batch_size_per_gpu: 4
    gradient_accumulation_steps: 4
    bf16: {enabled: true}
    zero_optimization: {stage: 2}
"""
SPEEDS = ("--network", "2.46", "--micro-step", "0.09")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def recorded(*arguments: object, stdin: str = "") -> dict[str, Any]:
    result = dsjob("plan", *arguments, "-o", "json", stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)[0]


def test_a_job_is_planned_for_its_own_world_and_version() -> None:
    found = recorded("-", "--parameters", "1e9", stdin=JOB)
    assert (found["name"], found["version"]) == ("pretrain", "0.19.8")
    assert {term["collective"]: term["payload"] for term in found["communication"]["terms"]} == {
        "all-reduce": 8 * 10**9,
        "all-gather": 2 * 10**9,
    }
    assert found["communication"]["unproven"] == []
    assert found["step"] is None  # nothing is said of the network


def test_a_configuration_is_planned_for_the_world_that_is_asked_about(config: Path) -> None:
    wire = [
        recorded(config, "--parameters", "1e9", "--nodes", nodes, "--slots", 2)["communication"]["wire"]
        for nodes in (1, 2)
    ]
    assert wire == [9e9, 13.5e9]


def test_people_read_the_change_its_gain_and_its_caveat(config: Path) -> None:
    out = dsjob("plan", config, "--parameters", "1.345e9", "--nodes", 2, "--slots", 1, *SPEEDS).stdout
    lines = out.splitlines()
    assert any(line.startswith("  1. ×3.") and line.endswith("zero_optimization.stage: 0") for line in lines)
    assert "the global batch grows from 32 to 128 samples" in out


def test_a_total_that_leaves_something_out_is_marked_and_says_what(config: Path) -> None:
    config.write_text(
        json.dumps({**CONFIG, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}})
    )
    out = dsjob("plan", config, "--parameters", "1e9", "--slots", 2).stdout
    assert "≥ 9.00 GB" in out
    assert "≥: not counted with offload_optimizer to nvme" in out


def test_facts_come_with_their_source(config: Path, tmp_path: Path) -> None:
    model = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model.write_text(json.dumps({"model_type": "llama", "vocab_size": 100, **sizes}))
    out = dsjob("plan", config, "--model", model).stdout
    assert "HuggingFaceConfig" in out
    assert "Assumed" in out


def test_too_little_memory_is_said(config: Path) -> None:
    found = recorded(config, "--parameters", "70e9", "--gpu-memory", "80")
    assert found["memory"]["fit"] == "False"
    assert recorded(config, "--parameters", "7e9", "--gpu-memory", "80")["memory"]["fit"] == "Unknown"


def test_what_cannot_be_planned_is_said_and_ends_with_1(config: Path) -> None:
    config.write_text(json.dumps({**CONFIG, "train_micro_batch_size_per_gpu": "auto"}))
    result = dsjob("plan", config, "--parameters", "1e9")
    assert result.exit_code == 1
    assert "batch sizes" in result.stderr


def test_a_plan_of_an_invalid_configuration_is_its_errors(config: Path) -> None:
    config.write_text(json.dumps({**CONFIG, "zero_optimization": {"stage": 7}}))
    result = dsjob("plan", config, "--parameters", "1e9")
    assert result.exit_code == 1
    assert "error[invalid-value]: zero_optimization.stage: must be one of 0, 1, 2, 3, not 7" in result.stderr
    assert "fix: Write stage: 3" in result.stderr


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (b"{", "config.json is not JSON"),
        (b"\xff", "config.json is not text in UTF-8"),
        (b"[]", "config.json is not one object"),
        (b"[" * 100_000, "config.json is not JSON"),
        (b'{"model_type": "mamba"}', "model_type 'mamba' is not one of llama"),
        (b'{"model_type": ["llama"]}', "model_type ['llama'] is not one of llama"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_model_that_cannot_be_read_ends_with_2(config: Path, tmp_path: Path, model: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(model)
    result = dsjob("plan", config, "--model", path)
    assert result.exit_code == 2
    assert result.stderr.startswith("dsjob plan: ")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "calibration.jsonl is not JSON"),
        ("3", "calibration.jsonl is not as bench/gpu writes it"),
        ('{"fabric": "a", "collectives": 3}', "calibration.jsonl is not as bench/gpu writes it"),
        ("", "calibration.jsonl has no measured fabric"),
    ],
)
def test_a_calibration_that_cannot_be_read_ends_with_2(config: Path, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "calibration.jsonl"
    path.write_text(text)
    result = dsjob("plan", config, "--parameters", "1e9", "--calibration", path)
    assert (result.exit_code, message in result.stderr) == (2, True)


@pytest.mark.parametrize("option", ["--model", "--calibration"])
def test_a_file_that_is_missing_is_named(config: Path, option: str) -> None:
    beside = ("--parameters", "1e9") if option == "--calibration" else ()
    result = dsjob("plan", config, *beside, option, "missing.json")
    assert (result.exit_code, result.stderr) == (2, "dsjob plan: missing.json: No such file or directory\n")
    assert "missing.yaml: unreadable: No such file" in dsjob("plan", "missing.yaml").stderr


def test_a_file_without_a_job_or_a_configuration_is_told_so() -> None:
    result = dsjob("plan", "-", "--parameters", "1e9", stdin="apiVersion: v1\nkind: Secret\n")
    assert (result.exit_code, result.stderr) == (1, "-: no DeepSpeedJob and no configuration is in it\n")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--parameters", "-1", "-1 is not a number above 0"),
        ("--parameters", "many", "many is not a number above 0, such as 7B"),
        ("--parameters", "B", "B is not a number above 0"),
        ("--gpu", "abacus", "abacus is not one of B200-180G, "),
        ("--gpu", "a100", "a100 is one of A100-80G, A100-40G: which one?"),
        ("--precision", "int8", "invalid choice: 'int8'"),
        ("--slots", "0", "0 is not a number from 1 to 1024"),
        ("--deepspeed-version", "new", "new is no version"),
        ("--network", "carrier pigeon", "carrier pigeon is not a bandwidth above 0, such as 12.5"),
        ("--network", "Gb", "Gb is not a bandwidth above 0"),
    ],
)
def test_a_wrong_command_line_ends_with_2(config: Path, option: str, value: str, message: str) -> None:
    result = dsjob("plan", config, option, value)
    assert (result.exit_code, message in " ".join(result.stderr.split())) == (2, True)


MODEL_7B = ("--parameters", "7e9")


def test_a_family_of_which_one_is_called_by_its_memory_alone_means_that_one() -> None:
    assert recorded(JOB_7B, "--gpu", "H100") == recorded(JOB_7B, "--gpu", "H100-80G")


def test_a_gpu_by_name_has_memory_speed_and_links() -> None:
    found = recorded(JOB_7B, "--gpu", "A100-80G")
    facts = {fact["name"]: fact["source"] for fact in found["facts"]}
    assert facts["GPU"] == "Declared"
    assert facts["between GPUs of a node, GB/s"] == "Assumed"
    assert found["memory"]["fit"] == "True"
    assert found["step"]["seconds"] > 1


def test_the_stages_answer_the_question_that_is_asked_most() -> None:
    stages = recorded(JOB_7B, "--gpu", "A100-80G")["stages"]
    assert [stage["fits"] for stage in stages] == [False, True, True, True]
    rates = [stage["samplesPerSecond"] for stage in stages[1:]]
    assert rates == sorted(rates, reverse=True)


def test_a_network_has_a_number_or_a_name() -> None:
    rates = [recorded(JOB_7B, "--nodes", 2, "--network", each)["samplesPerSecond"] for each in ("1", "IB-NDR")]
    assert rates[1] > 2 * rates[0]


@pytest.mark.parametrize(
    ("network", "rate"),
    [
        ("100Gb", 8.12), ("100Gbps", 8.12), ("100gbit/s", 8.12), ("100G", 8.12), ("100GbE", 8.12), ("100gbe", 8.12),
        ("3.2Tb/s", 260), ("12.5", 12.5), ("12.5GB", 12.5), ("12.5 GB/s", 12.5), ("400GB/s", 400),
    ],
)  # fmt: skip
def test_a_network_is_said_as_it_is_sold_or_as_it_is_reached(network: str, rate: float) -> None:
    result = dsjob("plan", JOB_7B, "--nodes", 2, "--network", network, "-o", "json")
    facts = {fact["name"]: fact["value"] for fact in json.loads(result.stdout)[0]["facts"]}
    assert float(str(facts["between nodes, GB/s"]).replace(",", "")) == rate
    assert result.stderr == ""


def test_gigabits_that_are_read_as_gigabytes_are_warned_of() -> None:
    result = dsjob("plan", JOB_7B, "--nodes", 2, "--network", 100)
    assert result.exit_code == 0
    assert "--network 100 is read as GB/s: a network of 100 Gb/s is 100Gb; 100 GB/s" in result.stderr


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h200", "H200-141G"), ("H100-8", "H100-80G"), ("h100 nvl", "H100-NVL-94G"), ("A100-80GB", "A100-80G"),
        ("L4", "L4-24G"), ("L40S", "L40S-48G"), ("A10", "A10-24G"), ("T4", "T4-16G"), ("a6000", "A6000-48G"),
        ("RTX A5000", "A5000-24G"), ("NVIDIA GeForce RTX 4090", "RTX4090-24G"), ("3090", "RTX3090-24G"),
        ("rtx-5090", "RTX5090-32G"),
    ],
)  # fmt: skip
def test_a_gpu_is_known_by_the_beginning_of_its_name(text: str, name: str) -> None:
    assert [device.name for device in devices_like(text)] == [name]


@pytest.mark.parametrize(("parameters", "number"), [("7B", 7e9), ("1.5b", 1.5e9), ("350M", 350e6), ("7e9", 7e9)])
def test_parameters_are_counted_as_models_are_named(config: Path, parameters: str, number: float) -> None:
    facts = recorded(config, "--parameters", parameters)["facts"]
    assert {"name": "parameters", "value": round(number), "source": "Declared"} in facts


def test_a_calibration_is_shown_as_measured_and_names_its_fabrics() -> None:
    file = ROOT / "bench/gpu/results/calibration.jsonl"
    recipe = ROOT / "bench/gpu/recipe.yaml"
    found = recorded(recipe, "--calibration", file, "--fabric", "nvlink")
    assert {"name": "fabric", "value": "nvlink", "source": "Measured"} in found["facts"]
    result = dsjob("plan", recipe, "--calibration", file)
    assert result.exit_code == 2
    assert "--fabric must be one of nvlink, tcp" in result.stderr


def test_a_calibration_of_another_model_is_refused() -> None:
    file = ROOT / "bench/gpu/results/calibration.jsonl"
    result = dsjob("plan", JOB_7B, "--calibration", file, "--fabric", "nvlink")
    assert result.exit_code == 2
    assert "6,738,415,616" in result.stderr


def test_an_alternative_is_applied_with_comments_and_order_kept() -> None:
    before = JOB_7B.read_text()
    change = recorded(JOB_7B, "--gpu", "A100-80G")["alternatives"][0]["change"]
    assert change == {"zero_optimization.stage": 1}
    after = dsjob("plan", JOB_7B, "--gpu", "A100-80G", "--apply", 1).stdout
    assert after == before.replace("stage: 2 # the choice", "stage: 1 # the choice")


def test_sections_that_are_missing_are_written(config: Path) -> None:
    config.write_text('{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}')
    assert (
        dsjob(
            "plan", config, "--parameters", "1e9", "--slots", 2, "--interconnect", 1, "--apply", 1, "--in-place"
        ).exit_code
        == 0
    )
    written = json.loads(config.read_text())
    assert written["bf16"] == {"enabled": True}
    assert written["train_micro_batch_size_per_gpu"] == 4


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--in-place"], "--in-place writes the alternative of --apply N: add it."),
        (["--fabric", "tcp1"], "add --calibration FILE."),
        (["--calibration", "a", "--micro-step", 1], "leave one of them out."),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(config: Path, options: list[object], hint: str) -> None:
    result = dsjob("plan", config, *MODEL_7B, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert hint in result.stderr


def test_an_alternative_that_is_not_there_ends_with_1(config: Path) -> None:
    result = dsjob("plan", config, *MODEL_7B, "--apply", 99)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no configuration" in result.stderr


def test_without_a_model_there_is_no_plan(config: Path) -> None:
    result = dsjob("plan", config)
    assert result.exit_code == 2
    assert "spec.model" in result.stderr


def test_what_a_script_does_with_its_ranks_is_counted_from_the_job_or_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB_7B.read_text().replace("  model:\n", "  parallelism: {tensor: 2}\n  model:\n"))
    options = {"job": (path,), "command line": (JOB_7B, "--parallelism", "tensor=2")}
    for arguments in options.values():
        terms = recorded(*arguments, "--gpu", "A100-80G")["communication"]["terms"]
        assert {term["group"]: term["ranks"] for term in terms} == {"data-parallel": 4, "tensor-parallel": 2}


@pytest.mark.parametrize(("parameters", "words"), [("0.4", "greater than"), ("1e14T", "less than")])
def test_a_number_that_no_model_has_is_refused_in_words(config: Path, parameters: str, words: str) -> None:
    result = dsjob("plan", config, "--parameters", parameters)
    assert (result.exit_code, "Traceback" in result.stderr) == (2, False)
    assert "--parameters" in result.stderr
    assert words in result.stderr
