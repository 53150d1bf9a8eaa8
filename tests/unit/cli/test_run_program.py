"""The program and the interpreter of `dsjob run`."""

import os
import sys
import venv
from pathlib import Path

import pytest

from tests.unit.cli.runs import Start, start

__all__ = ["start"]


def test_files_may_be_a_directory(start: Start, tmp_path: Path) -> None:
    (tmp_path / "code/package").mkdir(parents=True)
    (tmp_path / "code/train.py").write_text("from package.part import tell; tell()")
    (tmp_path / "code/package/part.py").write_text("def tell(): print('from the directory')")
    ended = start("raise SystemExit('from the ConfigMap')", "--files", "code").end()
    assert ended.code == 0
    assert "from the directory" in ended.output


@pytest.mark.parametrize("out", ["out", "package/out"])
def test_files_are_not_copied_with_what_the_run_keeps_among_them(
    start: Start, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, out: str
) -> None:
    elsewhere = {"TMPDIR": str(tmp_path_factory.mktemp("elsewhere"))}
    (tmp_path / "package").mkdir()
    (tmp_path / "package/part.py").write_text("def tell(): print('from the package')")
    (tmp_path / "train.py").write_text("from package.part import tell; tell()")
    for _ in range(2):  # the second run finds what the first has kept
        ended = start("", "--files", ".", "--dir", out, environment=elsewhere, nodes=2).end()
        assert (ended.code, ended.output.count("from the package")) == (0, 2), ended.output
    workspace = tmp_path / out / "node-1/workspace"
    assert {path.name for path in workspace.iterdir() if path.is_dir()} == {"package"}
    assert not (workspace / out).exists()


def test_files_and_what_is_kept_of_them_are_two_directories(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    ended = start("", "--files", ".", "--dir", ".").end()
    assert (ended.code, "name another directory" in ended.output) == (2, True)


def interpreter(directory: Path, version: str = "") -> str:
    """A virtual environment, with a DeepSpeed if there is a version; its interpreter."""
    venv.create(directory)
    if version:
        (site,) = directory.glob("lib/python3*/site-packages")
        (site / f"deepspeed-{version}.dist-info").mkdir()
        (site / f"deepspeed-{version}.dist-info/METADATA").write_text(f"Name: deepspeed\nVersion: {version}\n")
    return str(directory / "bin/python3")


TELL_PREFIX = "import sys; print('prefix', sys.prefix, flush=True)"


def test_the_ranks_interpreter_is_the_paths_and_not_that_of_dsjob(start: Start, tmp_path: Path) -> None:
    interpreter(tmp_path / "users", "0.18.9")
    path = {"PATH": f"{tmp_path / 'users/bin'}:{os.environ['PATH']}"}
    ended = start(TELL_PREFIX, environment=path, dsConfig={"train_micro_batch_size_per_gpu": 4}).end()
    assert f"prefix {tmp_path / 'users'}\n" in ended.output
    assert "DeepSpeed 0.18.9, cpu" in ended.output
    assert "own interpreter" not in ended.output


def test_the_ranks_interpreter_may_be_named(start: Start, tmp_path: Path) -> None:
    named = interpreter(tmp_path / "named", "0.18.9")
    ended = start(TELL_PREFIX, "--python", named, training={"python": "/nowhere/python3"}).end()
    assert (ended.code, f"prefix {tmp_path / 'named'}\n" in ended.output) == (0, True), ended.output


def test_who_runs_the_ranks_in_the_environment_of_dsjob_is_told(start: Start) -> None:
    """As in an activated environment that has nothing but dsjob."""
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = start("", environment=own).end()
    assert f"dsjob's own interpreter, in {sys.prefix}, which has no DeepSpeed: name the ranks'" in ended.output
