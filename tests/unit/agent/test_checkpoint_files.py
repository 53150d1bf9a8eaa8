"""Which checkpoints are complete, by their files alone."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.saved import RANKS, archive, cut, files, tag, trainers

Tear = Callable[[Path], object]
MODEL, OPTIMIZER = "mp_rank_00_model_states.pt", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"


def missing(directory: Path) -> str:
    return files.checkpoint_at(str(directory), RANKS).missing


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_tag_with_every_file_of_its_stage_is_complete(tmp_path: Path, stage: int) -> None:
    directory = tag(tmp_path, 20, stage=stage)
    found = files.checkpoint_at(str(directory), RANKS)
    assert (found.missing, found.tag, found.step, found.own) == ("", "global_step20", 20, True)
    assert found.size == sum(path.stat().st_size for path in directory.iterdir())


TORN_TAGS: list[tuple[int, Tear, str]] = [
    (1, lambda at: (at / OPTIMIZER).unlink(), "the optimizer states of zero_pp_rank_1_mp_rank_00 are missing"),
    (1, lambda at: (at / MODEL).unlink(), "the model states of rank 0 are missing"),
    (2, lambda at: cut(at / OPTIMIZER), f"{OPTIMIZER} is not written to its end"),
    (2, lambda at: (at / OPTIMIZER).write_bytes(b""), f"{OPTIMIZER} is not written to its end"),
    (0, lambda at: cut(at / MODEL), f"{MODEL} is not written to its end"),
    (
        1,
        lambda at: [path.unlink() for path in at.glob("*optim*")],
        "optimizer states of zero_pp_rank_0_mp_rank_00 an",
    ),
    (3, lambda at: (at / f"zero_pp_rank_1_{MODEL}").unlink(), "the model states of zero_pp_rank_1_mp_rank_00"),
]


@pytest.mark.parametrize(("stage", "tear", "words"), TORN_TAGS)
def test_a_torn_tag_says_what_it_lacks(tmp_path: Path, stage: int, tear: Tear, words: str) -> None:
    directory = tag(tmp_path, 20, stage=stage)
    tear(directory)
    assert words in missing(directory)


def test_the_ranks_that_saved_it_count_and_not_those_of_today(tmp_path: Path) -> None:
    assert files.checkpoint_at(str(tag(tmp_path, 20)), 8).missing == ""


@pytest.mark.parametrize(("shard", "whole"), [(RANKS, True), (-1, False)])
def test_of_mics_only_the_first_group_of_ranks_saves(tmp_path: Path, shard: int, whole: bool) -> None:
    directory = tag(tmp_path, 20, stage=3)
    zero = {"stage": 3, "mics_shard_size": shard}
    state: dict[str, Any] = {"module": {}, "optimizer": None, "dp_world_size": 2 * RANKS, "mp_world_size": 1}
    archive(directory / f"zero_pp_rank_0_{MODEL}", **state, ds_config={"zero_optimization": zero})
    assert (missing(directory) == "") == whole


def test_a_file_in_the_old_format_is_known_by_its_size_and_the_ranks_by_the_job(tmp_path: Path) -> None:
    directory = tag(tmp_path, 20)
    (directory / MODEL).write_bytes(b"\x80\x02 a pickle, and no archive")
    assert missing(directory) == ""
    (directory / OPTIMIZER).unlink()
    assert missing(directory) == "the optimizer states of 1 of 2 ranks are missing"


def test_the_step_is_that_of_the_engine_where_the_tag_has_another_name(tmp_path: Path) -> None:
    assert files.checkpoint_at(str(tag(tmp_path, 300, name="epoch3")), RANKS).step == 300


def test_an_empty_tag_and_one_of_another_kind_are_none(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    universal = tag(tmp_path, 20, name="global_step20_universal")
    (universal / "zero").mkdir()
    assert list(files.checkpoints(str(tmp_path), RANKS)) == []


def test_the_newest_complete_one_is_found_behind_a_torn_one(tmp_path: Path) -> None:
    tag(tmp_path, 1000, age=9000)  # of an earlier run
    tag(tmp_path, 10, age=20)
    cut(tag(tmp_path, 20, age=10) / OPTIMIZER)
    assert files.newest_complete(str(tmp_path), RANKS).tag == "global_step10"
    (tmp_path / "latest").write_text("global_step1000")
    assert files.newest_complete(str(tmp_path), RANKS).tag == "global_step1000", "whoever wrote it chose it"
    (tmp_path / "latest").write_text("global_step999")  # which is not there any more
    assert files.newest_complete(str(tmp_path), RANKS).tag == "global_step10"


TORN_OF_TRAINER: list[tuple[Tear, str]] = [
    (lambda at: (at / "trainer_state.json").unlink(), "trainer_state.json is missing, or not written to its end"),
    (
        lambda at: (at / "trainer_state.json").write_text('{"global_'),
        "trainer_state.json is missing, or not written to its end",
    ),
    (lambda at: cut(at / "model.safetensors"), "model.safetensors is not written to its end"),
    (lambda at: cut(at / "global_step20" / OPTIMIZER), f"in global_step20 {OPTIMIZER} is not written to its end"),
    (lambda at: shutil.rmtree(at / "global_step20"), "global_step20, which its file latest names, is missing"),
    (lambda at: (at / "latest").unlink(), "the states of the optimizer are missing"),
    (
        lambda at: (at / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model-00002.safetensors"}}'),
        "model-00002.safetensors is missing",
    ),
]


@pytest.mark.parametrize(("tear", "words"), TORN_OF_TRAINER)
def test_a_checkpoint_of_the_trainer_is_complete_with_all_that_it_goes_on_from(
    tmp_path: Path, tear: Tear, words: str
) -> None:
    directory = trainers(tmp_path, 20)
    found = files.checkpoint_at(str(directory), RANKS)
    assert (found.missing, found.tag, found.step, found.own) == ("", "checkpoint-20", 20, False)
    tear(directory)
    assert missing(directory) == words


def test_a_checkpoint_of_the_trainer_without_deepspeed_is_complete_with_its_optimizer(tmp_path: Path) -> None:
    directory = trainers(tmp_path, 20)
    shutil.rmtree(directory / "global_step20")
    (directory / "latest").unlink()
    archive(directory / "optimizer.pt", state={})
    assert missing(directory) == ""


@pytest.mark.parametrize(
    ("name", "inner", "step"),
    [("step_40", "pytorch_model", 40), ("epoch=1-step=60.ckpt", "checkpoint", 60), ("last.ckpt", "checkpoint", 80)],
)
def test_those_of_accelerate_and_lightning_are_directories_with_a_tag_within(
    tmp_path: Path, name: str, inner: str, step: int
) -> None:
    tag(tmp_path / name, 80, name=inner)
    (found,) = files.checkpoints(str(tmp_path), RANKS)
    assert (found.path, found.tag, found.step, found.missing) == (str(tmp_path / name), name, step, "")
    (tmp_path / name / inner / MODEL).unlink()
    assert missing(tmp_path / name) == f"in {inner} the model states of rank 0 are missing"
