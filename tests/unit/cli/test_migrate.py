"""`dsjob migrate`: rewrites what a newer DeepSpeed refuses, tells what it does differently, and leaves the rest."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.command import dsjob

OLD = """{
  // for the cluster
  "zero_optimization": {
    "stage": 2,
    "cpu_offload": true, // fast enough
    "mics_shard_size": -1
  },
  "bfloat16": {"enabled": true, "loss_scale": 0},
  "amp": {
    "enabled": false
  },
  "train_micro_batch_size_per_gpu": 4
}
"""
NEW = """{
  // for the cluster
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"} // fast enough
  },
  "bf16": {"enabled": true},
  "train_micro_batch_size_per_gpu": 4
}
"""
JOB = """# ours
apiVersion: deepspeed-operator.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: pretrain}
spec:
  deepspeedVersion: 0.18.9  # in the image
  training: {script: train.py}
  dsConfig:
    # sharded
    zero_optimization:
      stage: 3
      offload_param: {device: cpu}  # large
      mics_hierarchical_params_gather: true
    train_micro_batch_size_per_gpu: 4
"""
SHARED = JOB.replace("zero_optimization:\n", "zero_optimization: &zero\n") + "    copy: {<<: *zero}\n"
FROM_ELSEWHERE = JOB[: JOB.index("  dsConfig:")] + "  dsConfigFrom: {configMap: configs}\n"


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_a_configuration_keeps_its_order_and_comments(tmp_path: Path) -> None:
    path = written(tmp_path, "ds_config.json", OLD)
    result = dsjob("migrate", path, "--to", "0.19.8", "--write")
    assert result.exit_code == 0
    assert path.read_text() == NEW
    assert result.stdout.endswith(f"{path}: written\n")


def test_each_step_says_what_it_means(tmp_path: Path) -> None:
    said = dsjob("migrate", written(tmp_path, "ds_config.json", OLD), "--to", "0.19.8").stdout.splitlines()
    assert said[0] == f"{tmp_path}/ds_config.json: ds_config, DeepSpeed 0.15.4 → 0.19.8"
    for words in (
        "rewritten: zero_optimization.cpu_offload: deprecated for the section offload_optimizer",
        "rewritten (since 0.17.1): bf16.loss_scale: a key of fp16",
        "rewritten (since 0.19.8): amp: Apex AMP is gone. Removed: nothing is lost.",
        "default (since 0.19.3): gradient_clipping: 1.0 by default, 0.0 before",
        "default (since 0.19.5): zero_optimization.offload_optimizer.pin_memory: true by default, false before",
        "default (since 0.19.5): bf16.check_grad_overflow",
        "behaviour (since 0.19.6): process groups give up after 10 minutes, not 30",
    ):
        assert [line for line in said if line.strip().startswith(words)], words


def test_the_diff_is_shown_and_nothing_written(tmp_path: Path) -> None:
    path = written(tmp_path, "ds_config.json", OLD)
    said = dsjob("migrate", path, "--to", "0.19.8").stdout
    assert path.read_text() == OLD
    diff = said[said.index(f"--- {path}") :].splitlines()
    assert '-    "cpu_offload": true, // fast enough' in diff
    assert '+    "offload_optimizer": {"device": "cpu"} // fast enough' in diff
    assert not [line for line in diff[3:] if line[0] not in " +-@"]


def test_what_is_migrated_already_stays(tmp_path: Path) -> None:
    path = written(tmp_path, "ds_config.json", OLD)
    dsjob("migrate", path, "--to", "0.19.8", "--write")
    again = dsjob("migrate", path, "--from", "0.19.8", "--to", "0.19.8", "--write")
    assert again.stdout == (
        f"{path}: ds_config, DeepSpeed 0.19.8 → 0.19.8\n  nothing changes for it\n\n{path}: nothing to write\n"
    )
    assert path.read_text() == NEW


def test_old_defaults_are_kept_where_that_is_wanted(tmp_path: Path) -> None:
    path = written(tmp_path, "ds_config.json", OLD)
    dsjob("migrate", path, "--to", "0.19.8", "--keep-defaults", "--write")
    text = path.read_text()
    assert '"offload_optimizer": {"device": "cpu", "pin_memory": false} // fast enough' in text
    assert '"bf16": {"enabled": true, "check_grad_overflow": false}' in text
    assert text.endswith('  "train_micro_batch_size_per_gpu": 4,\n  "gradient_clipping": 0.0\n}\n')


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("0.19.2", "0.19.5", ["gradient_clipping", "pin_memory"]),
        ("0.19.3", "0.19.5", ["pin_memory"]),
        ("0.19.5", "0.19.8", []),
        ("0.18.9", "0.19.2", []),
    ],
)
def test_only_what_changed_in_between_is_told(old: str, new: str, told: list[str]) -> None:
    config = json.dumps({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})
    said = dsjob("migrate", "-", "--from", old, "--to", new, stdin=config).stdout
    assert [key for key in ("gradient_clipping", "pin_memory") if f"{key}: " in said] == told
    assert ("10 minutes" in said) == (new == "0.19.8")


@pytest.mark.parametrize(
    "config",
    [
        {"gradient_clipping": 0.5},
        {"gradient_clipping": "auto"},
        {
            "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "pin_memory": True}},
            "gradient_clipping": 0,
        },
        {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}, "gradient_clipping": 0},
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "none"}}, "gradient_clipping": 0},
        {"bf16": {"enabled": False}, "gradient_clipping": 0},
    ],
)
def test_a_default_that_does_not_count_is_not_told(config: dict[str, object]) -> None:
    assert "default" not in dsjob("migrate", "-", "--to", "0.19.8", stdin=json.dumps(config)).stdout


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"elasticity": {"enabled": True}}, "It computed the batch sizes"),
        ({"optimizer": {"type": "OneBitAdam", "params": {}}}, "Write Adam or Lamb"),
        ({"optimizer": {"type": "onebitlamb"}}, "Write Adam or Lamb"),
        ({"amp": {"enabled": "auto"}}, "Enable bf16, fp16 or torch_autocast"),
        ({"sparse_gradients": True}, "sparse=True"),
        ({"curriculum_learning": {"enabled": True}}, "data_efficiency.data_sampling.curriculum_learning"),
        ({"zero_optimization": {"mics_shard_size": 8}}, "zero_hpz_partition_size"),
        ({"zero_optimization": {"reduce_bucket_size": 0}}, "must be greater than 0"),
        ({"fp16": {"min_loss_scale": 0.5}}, "must be a whole number"),
    ],
)
def test_what_needs_a_decision_is_yours_and_ends_with_1(config: dict[str, object], words: str) -> None:
    result = dsjob("migrate", "-", "--to", "0.19.8", stdin=json.dumps(config))
    assert result.exit_code == 1
    assert [line for line in result.stdout.splitlines() if line.startswith("  yours") and words in line]


def test_what_the_version_would_refuse_all_the_same_is_said_and_ends_with_1() -> None:
    wrong = {"train_batch_size": 8, "bf16": {"enable": True}, "zero_optimization": {"stage": 7}}
    result = dsjob("migrate", "-", stdin=json.dumps(wrong))
    assert result.exit_code == 1
    expected = "  not valid for 0.19.8: 2 errors; dsjob validate --deepspeed-version 0.19.8 lists them"
    assert expected in result.stdout.splitlines()
    job = JOB.replace("stage: 3", "stage: 7").replace("script: train.py", "script: 7")
    assert "not valid for 0.19.8: 1 error;" in dsjob("migrate", "-", stdin=job).stdout, "of the configuration"
    assert "not valid" not in dsjob("migrate", "-", "--to", "0.20.0", stdin=json.dumps(wrong)).stdout


def test_what_the_old_version_trains_wrongly_and_the_new_one_does_not_is_said(tmp_path: Path) -> None:
    path = tmp_path / "lost.json"
    config = {"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}, "gradient_clipping": 1.0}
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, **config}))
    words = "behaviour (since 0.18.3): gradient_accumulation_steps: no longer so: each micro step overwrites"
    assert words in dsjob("migrate", str(path), "--from", "0.17.6", "--to", "0.18.9").stdout
    assert "no longer so" not in dsjob("migrate", str(path), "--from", "0.18.9", "--to", "0.19.8").stdout


def test_the_newest_version_known_is_the_one_to_rewrite_for() -> None:
    assert dsjob("migrate", "-", stdin=OLD).stdout == dsjob("migrate", "-", "--to", "0.19.8", stdin=OLD).stdout
    result = dsjob("migrate", "-", "--from", "0.16", stdin=OLD)
    assert (result.exit_code, "known here are 0.15.4, 0.16.9, " in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("config", "migrated"),
    [
        ({"zero_optimization": True}, {"zero_optimization": {"stage": 1}}),
        ({"zero_optimization": {"cpu_offload": False, "stage": 1}}, {"zero_optimization": {"stage": 1}}),
        (
            {"zero_optimization": {"cpu_offload": True, "offload_optimizer": {"device": "nvme"}}},
            {"zero_optimization": {"offload_optimizer": {"device": "nvme"}}},
        ),
        (
            {"zero_optimization": {"stage3_gather_fp16_weights_on_model_save": True}},
            {"zero_optimization": {"stage3_gather_16bit_weights_on_model_save": True}},
        ),
        ({"aio": {"thread_count": 4, "block_size": 1}}, {"aio": {"intra_op_parallelism": 4, "block_size": 1}}),
        ({"compile": {"enabled": True, "deepcompile": True}}, {"compile": {"deepcompile": True}}),
        ({"elasticity": {"enabled": False, "x": 1}, "a": 1}, {"a": 1}),
        ({"zero_optimization": {"stage": 2}}, {"zero_optimization": {"stage": 2}}),
    ],
)  # fmt: skip
def test_a_rewrite(tmp_path: Path, config: dict[str, object], migrated: dict[str, object]) -> None:
    path = written(tmp_path, "ds_config.json", json.dumps({"train_batch_size": 8, **config}, indent=2))
    assert dsjob("migrate", path, "--to", "0.19.8", "--write").exit_code == 0
    assert json.loads(path.read_text()) == {"train_batch_size": 8, **migrated}


def test_the_configuration_of_a_job_is_rewritten_in_the_job(tmp_path: Path) -> None:
    path = written(tmp_path, "job.yaml", JOB)
    result = dsjob("migrate", path, "--to", "0.19.8", "--write", "--keep-defaults")
    assert "DeepSpeedJob pretrain, DeepSpeed 0.18.9 → 0.19.8" in result.stdout
    assert (
        path.read_text()
        == JOB.replace("0.18.9", "0.19.8")
        .replace("      mics_hierarchical_params_gather: true\n", "")
        .replace("{device: cpu}", "{device: cpu, pin_memory: false}")
        + "    gradient_clipping: 0.0\n"
    )


def test_the_configuration_of_a_config_map_is_rewritten_where_the_job_is_too(tmp_path: Path) -> None:
    job = FROM_ELSEWHERE
    block = "".join(f"    {line}\n" for line in OLD.splitlines())
    config_map = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: configs}}\ndata:\n  ds_config.json: |\n{block}"
    path = written(tmp_path, "all.yaml", f"{job}---\n{config_map}  other: x\n")
    assert dsjob("migrate", path, "--to", "0.19.8", "--write").exit_code == 0
    after = "".join(f"    {line}\n" for line in NEW.splitlines())
    assert path.read_text() == f"{job}---\n{config_map}  other: x\n".replace(block, after).replace("0.18.9", "0.19.8")


@pytest.mark.parametrize(
    ("text", "obstacle"),
    [
        (SHARED, "the rewritten text would not say what was meant"),
        (JOB + "    stage: 1\n    stage: 2\n", "its text has errors; see dsjob validate"),
        (FROM_ELSEWHERE, "its configuration is not in this file"),
        (JOB.replace("0.18.9", "0.20.1"), "it is for 0.20.1, and configurations are rewritten for newer versions only"),
    ],
)
def test_what_cannot_be_rewritten_stays_and_says_why(tmp_path: Path, text: str, obstacle: str) -> None:
    path = written(tmp_path, "job.yaml", text)
    result = dsjob("migrate", path, "--to", "0.19.8", "--write")
    assert result.exit_code == 1
    assert f"not rewritten: {obstacle}" in result.stdout
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x.json", "--to", "new"), "new is no version"),
        (("x.json", "--to", "0.16.9", "--from", "0.19.8"), "0.19.8 is newer than 0.16.9"),
        (("x.json", "--to", "0.10.0"), "0.15.4 is newer than 0.10.0"),
        (("-", "--to", "0.19.8", "--write"), "standard input cannot be written"),
    ],
)
def test_senseless_questions_are_refused(arguments: tuple[str, ...], message: str) -> None:
    result = dsjob("migrate", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_version_newer_than_all_that_are_known_is_told_so() -> None:
    result = dsjob("migrate", "-", "--to", "0.99.0", stdin='{"zero_optimization": {"stage": 1}}')
    assert result.stdout.startswith("DeepSpeed 0.99.0 is newer than 0.19.8, the newest known here")
    assert "newest known" not in dsjob("migrate", "-", "--to", "0.19.8", stdin="{}").stdout


def test_a_file_without_a_configuration_is_told_so() -> None:
    result = dsjob("migrate", "-", "--to", "0.19.8", stdin="apiVersion: v1\nkind: Secret\n")
    assert (result.exit_code, result.stdout) == (
        0,
        "-: nothing to rewrite: no DeepSpeedJob and no configuration is in it\n",
    )


def test_a_file_that_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    assert dsjob("migrate", tmp_path / "missing.json", "--to", "0.19.8").exit_code == 2
    assert dsjob("migrate", "-", "--to", "0.19.8", stdin="{").exit_code == 2
