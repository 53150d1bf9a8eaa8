"""`dsjob validate`: what it judges, what it shows, and how it ends."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.job.accelerators import ACCELERATORS
from tests.unit.cli.command import dsjob, findings, judged

ROOT = Path(__file__).parents[3]
ARTICLE = ROOT / "examples/article.yaml"
FINE = '{"train_micro_batch_size_per_gpu": 4}'
CONTRADICTION = '{\n  // the triple\n  "train_batch_size": 33,\n  train_micro_batch_size_per_gpu: 4\n}\n'
JOB = """
apiVersion: deepspeed-operator.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: pretrain}
spec:
  nodes: 2
  training: {script: train.py}
"""
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: configs}
data:
  ds_config.json: |
    {
      "train_batch_size": 33,

      "train_micro_batch_size_per_gpu": 4
    }
"""
NOTHING = "nothing to judge: no DeepSpeedJob and no configuration is in the files\n"
FROM_CONFIG_MAP = JOB + "  dsConfigFrom: {configMap: configs}\n"


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


ABOUT = {"article": "spec.dsConfig", "gpu": "spec.network.profile"}  # each of them is about what it is told


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_have_no_findings(example: Path) -> None:
    about = ABOUT.get(example.stem, "nothing")
    assert [each["path"] for each in findings(example) if not each["path"].startswith(about)] == []


def test_what_depends_on_a_script_that_nobody_has_seen_is_advice() -> None:
    said = {each["path"]: each["level"] for each in findings(ARTICLE) if "if the script passes" in each["message"]}
    assert said == {"spec.dsConfig.zero_optimization.offload_optimizer": "advice"}
    offload = '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
    said = {each["path"]: each["level"] for each in findings("-", stdin=offload)}
    assert said["zero_optimization.offload_optimizer"] == "warning", "the script must pass one here"


def test_a_job_without_an_image_has_the_worker_images_deepspeed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    version = judged("-", stdin=JOB)["documents"][0]["deepspeedVersion"]
    assert f"deepspeed=={version}" in project["dependency-groups"]["worker"]
    (document,) = judged("-", stdin=f"{JOB}  image: registry.example.com/own:1\n")["documents"]
    assert document["deepspeedVersion"] is None


def test_the_line_and_the_place_in_it_are_shown(tmp_path: Path) -> None:
    path = written(tmp_path, "ds_config.json", CONTRADICTION)
    result = dsjob("validate", path, "--nodes", 2, "--slots", 2)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == f"{path}: ds_config, 2 nodes × 2 slots, any DeepSpeed: 1 error, 1 advice"
    assert lines[2].startswith("error[batch-size]: train_batch_size: 33 ≠ 4 × 2 × 4")
    assert lines[3:5] == ['      3 |   "train_batch_size": 33,', "        |   ^^^^^^^^^^^^^^^^^^^^^^"]
    assert lines[5].startswith("  fix: Write train_batch_size 32, or train_batch_size 48")
    assert lines[7].startswith("advice[not-plain-json]: not plain JSON")
    assert lines[-1] == "1 configuration judged: 1 error, 1 advice"


def test_output_for_programs(tmp_path: Path) -> None:
    path = written(tmp_path, "ds_config.json", CONTRADICTION)
    said = judged(path, "--nodes", 2, "--slots", 2, "--accelerator", "cpu", "--deepspeed-version", "0.19.8")
    (document,) = said["documents"]
    finding, plainness = document.pop("findings")
    assert "not plain JSON" in plainness["message"]
    assert document == {
        "file": str(path),
        "line": 1,
        "kind": "ds_config",
        "name": None,
        "deepspeedVersion": "0.19.8",
        "accelerator": "cpu",
        "world": {"nodes": 2, "slotsPerNode": 2, "size": 4, "dataParallel": 4},
        "batch": None,
    }
    assert (finding["level"], finding["code"], finding["path"]) == ("error", "batch-size", "train_batch_size")
    assert finding["locations"] == [{"file": str(path), "line": 3, "column": 3, "endLine": 3, "endColumn": 25}]
    assert said["summary"] == {"error": 1, "warning": 0, "advice": 1, "ignored": 0, "unreadable": 0}
    assert said["format"] == 1


@pytest.mark.parametrize(
    ("text", "options", "world"),
    [
        ('{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}', (), 8),
        ('{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}', ("--nodes", 1), 1),
        (FINE, ("--slots", 8), 8),
        (FINE, ("--nodes", 3), 3),
    ],
)
def test_without_a_word_about_the_world_it_is_the_one_that_the_batch_sizes_mean(
    text: str, options: tuple[Any, ...], world: int
) -> None:
    (document,) = judged("-", *options, stdin=text)["documents"]
    assert document["world"]["size"] == world
    assert document["findings"] == []


ANY_WORLD = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 4,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW"},
    "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8},
}


@pytest.mark.parametrize(
    ("config", "paths"),
    [
        (ANY_WORLD, []),
        ({**ANY_WORLD, "sequence_parallel_size": 3, "data_parallel_size": 5}, []),
        ({**ANY_WORLD, "tensor_parallel": {"autotp_size": 6}, "zero_optimization": {"stage": 2}}, []),
        ({**ANY_WORLD, "train_batch_size": 33}, ["train_batch_size"]),
        ({**ANY_WORLD, "gradient_accumulation_steps": 5}, ["train_batch_size"]),
    ],
)
def test_where_nothing_says_the_world_what_only_some_have_is_not_told(config: dict[str, Any], paths: list[str]) -> None:
    (document,) = judged("-", "--deepspeed-version", "0.19.8", stdin=json.dumps(config))["documents"]
    assert (document["world"], document["batch"]) == (None, None)
    assert [each["path"] for each in document["findings"]] == paths
    alone = judged("-", "--deepspeed-version", "0.19.8", "--slots", 1, stdin=json.dumps(config))["documents"]
    assert alone[0]["findings"]
    assert "any world (--nodes and --slots say which)" in dsjob("validate", "-", stdin=json.dumps(config)).stdout


@pytest.mark.parametrize(
    ("options", "errors"), [((), 1), (("--nodes", 1), 0), (("--nodes", 1, "--slots", 2), 1), (("--slots", 8), 1)]
)
def test_the_command_line_stands_in_for_the_jobs_numbers(options: tuple[Any, ...], errors: int) -> None:
    said = [finding for finding in findings(ARTICLE, *options) if "≠" in finding["message"]]
    assert len(said) == errors


@pytest.mark.parametrize("name", ["cpu", *sorted({known.name for known in ACCELERATORS.values()})])
def test_every_accelerator_has_its_option(name: str) -> None:
    assert judged("-", "--accelerator", name, stdin=FINE)["documents"][0]["accelerator"] == name


def test_a_launcher_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "job.yaml", JOB)
    assert dsjob("validate", path).exit_code == 0
    (finding,) = findings(path, "--launcher", "None")
    assert finding["path"] == "spec.training.command"


def test_all_that_is_wrong_with_a_job_is_said_at_once(tmp_path: Path) -> None:
    text = JOB.replace("pretrain", "Pretrain").replace("training:", "trainig: 1\n  training:") + (
        "  dsConfig: {train_batch_size: 3, train_micro_batch_size_per_gpu: 2}\n  template: {spec: {hostname: x}}\n"
    )
    said = [finding["path"] for finding in findings(written(tmp_path, "job.yaml", text))]
    for path in ("metadata.name", "spec.trainig", "spec.dsConfig.train_batch_size", "spec.template.spec.hostname"):
        assert path in said


def test_a_wrong_world_is_not_used_for_arithmetic(tmp_path: Path) -> None:
    config = "  dsConfig: {train_batch_size: 32, train_micro_batch_size_per_gpu: 4}\n"
    text = JOB.replace("nodes: 2", "nodes: two") + config
    said = judged(written(tmp_path, "job.yaml", text))
    assert [finding["path"] for finding in said["documents"][0]["findings"]] == ["spec.nodes"]
    assert said["documents"][0]["world"] is None


@pytest.mark.parametrize("separate", [False, True], ids=["same file", "another file"])
def test_a_config_map_of_the_files_is_where_the_configuration_is(tmp_path: Path, separate: bool) -> None:
    if separate:
        files = [written(tmp_path, "job.yaml", FROM_CONFIG_MAP), written(tmp_path, "map.yaml", CONFIG_MAP)]
    else:
        files = [written(tmp_path, "all.yaml", f"{CONFIG_MAP}---{FROM_CONFIG_MAP}")]
    (finding,) = findings(*files)
    assert finding["path"] == "spec.dsConfigFrom.train_batch_size"
    (place,) = finding["locations"]
    assert (place["file"], place["line"], place["column"], place["endColumn"]) == (str(files[-1]), 8, 7, 29)


def test_a_config_map_that_is_elsewhere_leaves_the_configuration_unjudged(tmp_path: Path) -> None:
    path = written(tmp_path, "job.yaml", FROM_CONFIG_MAP)
    (finding,) = findings(path)
    assert (finding["level"], finding["path"]) == ("warning", "spec.dsConfigFrom.configMap")
    assert dsjob("validate", path).exit_code == 0
    assert dsjob("validate", "--strict", path).exit_code == 1


def test_a_config_map_without_the_key_is_an_error(tmp_path: Path) -> None:
    text = f"{CONFIG_MAP.replace('ds_config.json', 'other.json')}---{FROM_CONFIG_MAP}"
    (finding,) = findings(written(tmp_path, "all.yaml", text))
    assert finding["path"] == "spec.dsConfigFrom.key"
    assert "it has other.json" in finding["message"]


def test_text_errors_of_an_embedded_configuration_have_their_lines(tmp_path: Path) -> None:
    text = CONFIG_MAP.replace('"train_batch_size": 33,', '"train_micro_batch_size_per_gpu": 1,')
    (finding,) = findings(written(tmp_path, "all.yaml", f"{text}---{FROM_CONFIG_MAP}"))
    assert "more than once" in finding["message"]
    assert [place["line"] for place in finding["locations"]] == [8, 10]


def test_objects_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    other = "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: x}\n"
    result = dsjob("validate", written(tmp_path, "other.yaml", other))
    assert result.exit_code == 0
    assert result.stdout == NOTHING
    assert len(judged(written(tmp_path, "both.yaml", f"{other}---{JOB}"))["documents"]) == 1


def test_yaml_that_is_nothing_of_ours_is_passed_over(tmp_path: Path) -> None:
    result = dsjob("validate", written(tmp_path, "values.yaml", "replicas: 1\nimage: {tag: x}\n"))
    assert (result.exit_code, result.stdout) == (0, NOTHING)


def test_the_objects_of_a_list_are_judged(tmp_path: Path) -> None:
    job = {
        "apiVersion": "deepspeed-operator.dev/v1alpha1",
        "kind": "DeepSpeedJob",
        "metadata": {"name": "A"},
        "spec": {},
    }
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [job, {"kind": "Secret", "apiVersion": "v1"}]})
    assert [finding["path"] for finding in findings(written(tmp_path, "list.json", text))] == [
        "metadata.name",
        "spec.training",
    ]


@pytest.mark.parametrize("field", ["apiVersion: v1", "kind: Job"])
def test_a_job_of_another_group_or_kind_is_told_so(tmp_path: Path, field: str) -> None:
    name = field.partition(":")[0]
    text = "\n".join(field if line.startswith(name) else line for line in JOB.splitlines())
    assert name in [finding["path"] for finding in findings(written(tmp_path, "job.yaml", text))]


def test_a_configuration_in_yaml_is_a_warning(tmp_path: Path) -> None:
    (finding,) = findings(written(tmp_path, "ds.yaml", "train_micro_batch_size_per_gpu: 4\n"))
    assert (finding["level"], finding["message"]) == ("warning", "a configuration in YAML: DeepSpeed reads JSON.")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (FINE, "ds_config"),
        ("# hjson\ntrain_micro_batch_size_per_gpu: 4\n", "ds_config"),
        (JOB, "DeepSpeedJob"),
        ("// c\n" + FINE, "ds_config"),
    ],
)
def test_standard_input_is_recognized_by_its_text(text: str, kind: str) -> None:
    (document,) = judged("-", stdin=text)["documents"]
    assert (document["file"], document["kind"]) == ("-", kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (b"\xff\xfe", "not UTF-8: byte 0 is 0xff"),
        (b'{"a": [1, 2', "the list that begins here never ends"),
        (b"[1, 2]", "the document is a list, not a DeepSpeedJob or a configuration"),
        (b"3", "the document is a single value"),
        (b"apiVersion: v1\nkind: [", "not valid YAML"),
        (b'{"a": ' * 10_000, "nested too deeply"),
        (b"#" * (17 * 1024 * 1024), "larger than 16 MiB"),
    ],
    ids=lambda value: str(value)[:16],
)
def test_what_is_no_configuration_ends_with_2_and_says_why(text: bytes, message: str) -> None:
    result = dsjob("validate", "-", stdin=text)
    assert result.exit_code == 2
    assert result.stdout.startswith("-")
    assert message in result.stdout


def test_unreadable_files_do_not_hide_the_others(tmp_path: Path) -> None:
    path = written(tmp_path, "ds_config.json", CONTRADICTION)
    result = dsjob("validate", tmp_path / "missing.json", path, "--nodes", 2)
    assert result.exit_code == 2
    for words in ("missing.json: unreadable: No such file", "error[batch-size]: "):
        assert words in result.stdout


def test_of_a_directory_what_looks_like_a_configuration_is_judged(tmp_path: Path) -> None:
    path = written(tmp_path, "ds_config.json", CONTRADICTION)
    other = written(tmp_path, "package.json", '{"name": "trainer"}')
    for name, text in (("job.yml", JOB), ("notes.txt", "train"), ("service.yaml", "kind: Service\napiVersion: v1\n")):
        written(tmp_path, name, text)
    (tmp_path / "below.json").mkdir()
    files = [str(path), str(tmp_path / "job.yml")]
    assert [each["file"] for each in judged(tmp_path)["documents"]] == files
    assert [each["file"] for each in judged(tmp_path, path)["documents"]] == files, "once each"
    assert str(other) in [each["file"] for each in judged(other, tmp_path)["documents"]], "it is named"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "a": 2, "train_batch_size": 1}', '"a" is given more than once'),
        ('{"train_batch_size": NaN\n}', "NaN is not a number"),
        ('{"train_batch_size": 1e400}', "1e400 is too large"),
        ('{"train_batch_size": "4"}', 'must be a whole number, not "4"'),
        ('{"train_batch_size": 1' + "0" * 400 + "}", "train_batch_size"),
        ('{"train_batch_size": [' + "1," * 1000 + "]}", "must be a whole number"),
    ],
)
def test_a_configuration_with_errors_ends_with_1(text: str, message: str) -> None:
    result = dsjob("validate", "-", stdin=text)
    assert result.exit_code == 1
    assert message in result.stdout


def test_defaults_that_changed_are_told_only_when_asked_for() -> None:
    config = '{"train_micro_batch_size_per_gpu": 4}'
    assert findings("-", "--deepspeed-version", "0.19.8", stdin=config) == []
    said = findings("-", "--explain", "--deepspeed-version", "0.19.8", stdin=config)
    assert [(finding["level"], finding["path"]) for finding in said] == [
        ("advice", "gradient_clipping"),
        ("advice", ""),
    ]
    assert "since DeepSpeed 0.19.3, 1.0 by default, 0.0 before" in said[0]["message"]
    assert findings("-", "--explain", "--deepspeed-version", "0.19.2", stdin=config) == []


def test_a_long_line_is_cut_around_its_place() -> None:
    text = '{"note": "' + "x" * 1_000_000 + '", "train_batch_size": 0, "more": "' + "y" * 1_000_000 + '"}'
    result = dsjob("validate", "-", stdin=text)
    assert max(len(line) for line in result.stdout.splitlines()) < 200
    shown, mark = result.stdout.splitlines()[3:5]
    begin = mark.index("^")
    assert shown[begin : begin + len(mark.strip("| "))] == '"train_batch_size": 0'
    assert shown.count("…") == 2


def test_control_characters_do_not_reach_the_terminal() -> None:
    result = dsjob("validate", "-", stdin='{"\\u001b[31m": 1, "\\u001b[31m": 1, "train_batch_size": "\x7f"}')
    assert "\x1b" not in result.stdout
    assert "\x7f" not in result.stdout


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--nodes", "0", "0 is not a number from 1 to 10000"),
        ("--slots", "8.5", "8.5 is not a number from 1 to 1024"),
        ("--deepspeed-version", "new", "new is no version of three numbers; known here are 0.15.4, "),
        ("--launcher", "ranks", "invalid choice: 'ranks' (choose from 'Ranks', 'DeepSpeed', 'Torchrun', 'None')"),
        ("--ignore", "zero-stag", "no finding has the code zero-stag; the nearest is zero-stage"),
        ("--accelerator", "gpu", "invalid choice: 'gpu' (choose from 'cpu', 'cuda', 'rocm'"),
    ],
)
def test_an_option_that_makes_no_sense_ends_with_2(option: str, value: str, message: str) -> None:
    result = dsjob("validate", "-", option, value, stdin=FINE)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_configuration_alone_is_judged_as_the_script_divides_its_ranks(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text('{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}')
    assert dsjob("validate", path, "--slots", 4, "--parallelism", "pipeline=2").exit_code == 0
    assert dsjob("validate", path, "--slots", 4).exit_code == 1
    assert dsjob("validate", path, "--parallelism", "pipe=2").exit_code == 2


def test_a_problem_under_a_very_long_name_is_said(tmp_path: Path) -> None:
    name = "x" * 5000
    path = written(tmp_path, "ds_config.json", f'{{"{name}": {{"twice": 1, "twice": 2}}}}')
    assert name[:1024] in [each["path"] for each in findings(path)]
