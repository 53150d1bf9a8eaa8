from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.checkpoint_path import checkpoint_path


def named(checkpoint: Any = None, **training: Any) -> tuple[str, str] | None:
    spec: dict[str, Any] = {"training": {"script": "train.py", **training}}
    if checkpoint is not None:
        spec["checkpoint"] = checkpoint
    found = checkpoint_path(DeepSpeedJobSpec.model_validate(spec))
    return (found.path, found.field) if found is not None else None


def test_the_job_itself_comes_first() -> None:
    args = ["--output_dir", "/out"]
    assert named({"path": "/data"}, args=args) == ("/data", "spec.checkpoint.path")
    assert named({"repairLatest": False}, args=args) == ("/out", "spec.training.args[0]")


@pytest.mark.parametrize(
    ("args", "path"),
    [
        (["--output_dir", "/out"], "/out"),
        (["--output-dir=/out"], "/out"),
        (["--lr", "1", "--save", "/ck", "--load", "/base"], "/ck"),
        (["--output_dir", "/out", "--checkpoint-dir", "/ck"], "/ck"),
        (["--save_dir", "$(DATA)/ck"], "$(DATA)/ck"),
        (["--output_dir", "s3://bucket/ck"], "s3://bucket/ck"),
        (["--output_dir"], None),
        (["--save", "--load"], None),
        (["--save_dir", "$DATA/ck"], None),
        (["output_dir", "/out"], None),
        (["--output_dir", ""], None),
        ([], None),
    ],
)
def test_arguments_name_it(args: list[str], path: str | None) -> None:
    found = named(args=args)
    assert (found and found[0]) == path


def test_a_shells_script_is_read_as_the_shell_would() -> None:
    command = ["bash", "-c", "pip install x && python train.py --output_dir '/my out' --lr 1"]
    assert named(script=None, command=command) == ("/my out", "spec.training.command[2]")
    assert named(script=None, command=["bash", "-c", "echo 'no end --output_dir /out"]) is None
