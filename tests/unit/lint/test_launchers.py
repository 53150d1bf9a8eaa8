"""Launchers in a command are recognised, and what they would make of the job's world is said before it runs."""

from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.world import world_of
from deepspeed_operator.lint.launchers import launcher_findings


def shell(script: str) -> list[str]:
    return ["bash", "-c", script]


def findings_of(
    command: list[str], launcher: str = "None", nodes: int = 2, slots: int = 8, **trainer: Any
) -> list[Finding]:
    written = {
        "nodes": nodes,
        "slotsPerNode": slots,
        "training": {"launcher": launcher, "command": command},
        "template": {"spec": {"containers": [{"name": "trainer", **trainer}]}},
    }
    spec = DeepSpeedJobSpec.model_validate(written)
    found = launcher_findings(spec, world_of(spec))
    assert all(each.fix and each.path == "spec.training.command" for each in found)
    return found


def levels(*arguments: Any, **fields: Any) -> list[str]:
    return [finding.level.value for finding in findings_of(*arguments, **fields)]


NEVER_THE_JOBS_WORLD = [
    ["deepspeed", "train.py"],
    ["/opt/conda/bin/deepspeed", "--num_gpus=8", "train.py", "--deepspeed", "ds.json"],
    ["python", "-m", "deepspeed.launcher.runner", "train.py"],
    ["python3.11", "-u", "/opt/conda/bin/deepspeed", "train.py"],
    shell("deepspeed train.py"),
    shell("set -ex; cd /code && NCCL_DEBUG=INFO exec deepspeed train.py 2>&1 | tee log"),
    ["env", "A=1", "deepspeed", "train.py"],
    ["torchrun", "--standalone", "--nproc_per_node=8", "train.py"],
    ["torchrun", "--nnodes=1", "train.py"],
    ["torchrun", "--nnodes", "4", "train.py"],
    ["python", "-m", "torch.distributed.run", "--nnodes", "1", "train.py"],
    ["torchrun", "--nproc-per-node", "4", "train.py"],
    ["sh", "-ec", "pip install -r requirements.txt\ntorchrun \\\n  --nnodes 1 \\\n  train.py  # all of it"],
    ["timeout", "10h", "bash", "-lc", "conda run -n x torchrun --standalone train.py"],
]


@pytest.mark.parametrize("command", NEVER_THE_JOBS_WORLD, ids=" ".join)
def test_a_command_that_certainly_forms_another_world_is_an_error(command: list[str]) -> None:
    assert levels(command) == ["error"]


PERHAPS = [
    shell("deepspeed $ARGS train.py"),
    shell('if [ -n "$X" ]; then deepspeed train.py; else torchrun --standalone train.py; fi'),
    shell("python prepare.py && torchrun --nnodes 1 train.py"),
    ["deepspeed", "--hostfile", "/job/hosts", "train.py"],
    shell("torchrun --nnodes=${SLURM_NNODES:-1} train.py"),
    ["accelerate", "launch", "train.py"],
    ["accelerate", "launch", "--num_machines", "1", "train.py"],
    ["mpirun", "-np", "8", "python", "train.py"],
    ["horovodrun", "-np", "8", "python", "train.py"],
    ["colossalai", "run", "--nproc_per_node", "8", "train.py"],
    ["axolotl", "train", "config.yaml"],
    ["composer", "-n", "8", "train.py"],
]


@pytest.mark.parametrize("command", PERHAPS, ids=" ".join)
def test_a_command_that_may_form_another_world_is_a_warning(command: list[str]) -> None:
    assert levels(command) == ["warning"]


RIGHT = [
    ["torchrun", "train.py"],
    ["torchrun", "--nnodes=2", "--nproc_per_node=8", "train.py", "--nnodes", "1"],
    ["torchrun", "--nnodes=1:4", "train.py"],
    shell("torchrun --nnodes=$NNODES --node_rank=$NODE_RANK --nproc_per_node=$(nvidia-smi -L | wc -l) train.py"),
    shell("torchrun --nnodes=${WORLD_SIZE:-1} --node_rank=${RANK:-0} train.py"),
    ["torchrun", "--nnodes", "$(WORLD_SIZE)", "--node_rank", "$(RANK)", "train.py"],
    shell("torchrun --nnodes 1 --nproc_per_node 1 tokenize.py; torchrun train.py"),
    shell("N=$NNODES; torchrun --nnodes $N train.py"),
    shell(". /etc/cluster.env; torchrun --nnodes $CLUSTER_NODES train.py"),
    ["deepspeed", "--no_ssh", "--node_rank", "$(NODE_RANK)", "--hostfile", "/etc/deepspeed-operator/hostfile", "t.py"],
    ["accelerate", "launch", "--config_file", "a.yaml", "train.py"],
    ["accelerate", "launch", "--num_machines", "$(NNODES)", "train.py"],
    ["axolotl", "train", "config.yaml", "--launcher", "torchrun"],
    ["llamafactory-cli", "train", "x.yaml"],
    ["swift", "sft", "--model", "m"],
    ["ray", "start", "--block"],
    ["python", "train.py", "--deepspeed", "ds.json"],
    ["mpirun", "--hostfile", "/etc/hosts.mpi", "python", "train.py"],
    shell("echo 'unbalanced"),
    shell('exec "$@"'),
    ["bash", "run.sh"],
    ["accelerate", "config"],
]


@pytest.mark.parametrize("command", RIGHT, ids=" ".join)
def test_a_command_that_forms_the_jobs_world_or_is_not_known_is_silent(command: list[str]) -> None:
    assert levels(command) == []


@pytest.mark.parametrize("command", [["deepspeed", "train.py"], ["torchrun", "--standalone", "train.py"]], ids=" ".join)
def test_a_launcher_of_one_node_is_right_on_one_node(command: list[str]) -> None:
    assert levels(command, nodes=1) == []


def test_a_variable_that_the_job_sets_itself_is_known() -> None:
    command = shell("torchrun --nnodes=$HOSTS train.py")
    assert levels(command) == ["warning"]
    assert levels(command, env=[{"name": "HOSTS", "value": "2"}]) == []
    assert levels(command, envFrom=[{"configMapRef": {"name": "all"}}]) == []


def test_llamafactory_starts_torchrun_on_one_device_only_where_it_is_told_to() -> None:
    command = ["llamafactory-cli", "train", "x.yaml"]
    assert levels(command, slots=1) == ["warning"]
    assert levels(command, slots=1, env=[{"name": "FORCE_TORCHRUN", "value": "1"}]) == []
    assert levels(shell("FORCE_TORCHRUN=1 llamafactory-cli train x.yaml"), slots=1) == []


def test_what_to_write_is_said() -> None:
    (finding,) = findings_of(["deepspeed", "train.py"])
    assert "each of the 2 pods trains alone" in finding.message
    assert "spec.training.launcher: DeepSpeed" in finding.fix


@pytest.mark.parametrize(
    ("command", "level"),
    [
        (["torchrun", "train.py"], "error"),
        (["/opt/bin/deepspeed", "train.py"], "error"),
        (["torchrun", "--nnodes", "$(WORLD_SIZE)", "--node_rank", "$(RANK)", "train.py"], "warning"),
        (["accelerate", "launch", "train.py"], "warning"),
        (shell("exec llamafactory-cli train x.yaml"), "warning"),
        (["python", "-m", "torch.distributed.run", "train.py"], "error"),
        (["python", "train.py", "--deepspeed", "ds.json"], None),
        (["accelerate", "config"], None),
        (["rocket", "launch"], None),
    ],
)
def test_ranks_that_are_launchers_are_found_and_launcher_none_is_named(command: list[str], level: str | None) -> None:
    found = findings_of(command, launcher="Ranks")
    assert [finding.level.value for finding in found] == [level] * bool(level)
    assert all("spec.training.launcher: None" in finding.fix for finding in found)
    assert levels(command, launcher="Ranks", nodes=1, slots=1) == [], "one rank is a world of one"


def test_a_module_that_is_a_launcher_is_found() -> None:
    training = {"module": "torch.distributed.run", "args": ["train.py"]}
    spec = DeepSpeedJobSpec.model_validate({"nodes": 2, "training": training})
    (finding,) = launcher_findings(spec, world_of(spec))
    assert (finding.path, finding.level.value) == ("spec.training.module", "error")


@pytest.mark.parametrize(("seconds", "told"), [(None, False), (35, False), (36, True)])
def test_a_grace_that_torchrun_does_not_give_its_ranks_is_told(seconds: int | None, told: bool) -> None:
    pod = {"containers": [{"name": "trainer"}], "terminationGracePeriodSeconds": seconds}
    training = {"launcher": "Torchrun", "script": "train.py"}
    spec = DeepSpeedJobSpec.model_validate({"training": training, "template": {"spec": pod}})
    assert [each.code for each in launcher_findings(spec, world_of(spec))] == ["launcher-grace"] * told
