"""One arithmetic for ranks, data shards and batch sizes."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, VersionVerdict, validate
from deepspeed_operator.dsconfig.notes import written
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees

VERSION = "0.19.8"
factors = st.integers(1, 4)


def verdict_on(config: dict[str, Any], world: int, parallelism: ParallelDegrees | None = None) -> VersionVerdict:
    return validate(config, JudgementContext(world, VERSION, parallelism=parallelism or ParallelDegrees()))


def errors(verdict: VersionVerdict) -> list[str]:
    return [written(note.path) for note in verdict.notes if note.level is Level.ERROR]


@given(st.tuples(factors, factors, factors), st.integers(1, 16), st.integers(1, 8), st.integers(1, 8))
def test_ranks_are_shards_times_what_the_script_splits(
    split: tuple[int, int, int], shards: int, micro: int, accumulation: int
) -> None:
    tensor, pipeline, sequence = split
    world = tensor * pipeline * sequence * shards
    config = {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": accumulation}
    verdict = verdict_on(config, world, ParallelDegrees(tensor, pipeline, sequence))
    assert verdict.division.divisor == verdict.division.shards == shards
    assert verdict.batch is not None
    assert verdict.batch.train is not None
    assert verdict.batch.train == verdict.samples_per_step == micro * accumulation * shards
    # What it derives, it accepts when it is written down; and nothing else.
    whole = {**config, "train_batch_size": verdict.batch.train}
    assert not verdict_on(whole, world, ParallelDegrees(tensor, pipeline, sequence)).refused
    other = {**config, "train_batch_size": verdict.batch.train + 1}
    assert errors(verdict_on(other, world, ParallelDegrees(tensor, pipeline, sequence))) == ["train_batch_size"]


@given(st.integers(2, 8), st.integers(1, 8), st.integers(1, 8))
def test_auto_tensor_parallel_ranks_count_as_data_parallel_ones(size: int, shards: int, micro: int) -> None:
    config = {"train_micro_batch_size_per_gpu": micro, "tensor_parallel": {"autotp_size": size}}
    verdict = verdict_on(config, size * shards)
    assert (verdict.division.divisor, verdict.division.shards) == (size * shards, shards)
    assert verdict.batch is not None
    assert verdict.batch.train == micro * size * shards
    assert verdict.samples_per_step == micro * shards
    (note,) = [note for note in verdict.notes if note.code == "samples-per-step"]
    assert f"= {micro * shards} samples" in note.message


@pytest.mark.parametrize("written", ["2", 2.0])
def test_a_size_that_deepspeed_reads_as_a_number_counts_as_one(written: object) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": written}}
    assert verdict_on(config, 8).division.shards == 4


def test_sequences_that_nobody_shares_are_no_reason_for_a_warning() -> None:
    assert verdict_on({"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 1}, 8).notes == ()


def test_tensor_parallelism_of_the_script_divides_the_ranks() -> None:
    config = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}
    assert verdict_on(config, 8, ParallelDegrees(tensor=2)).division.divisor == 4


def test_sequence_parallelism_in_the_configuration_alone_leaves_the_data_loader_at_all_ranks() -> None:
    config = {"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 2}
    verdict = verdict_on(config, 2)
    assert verdict.batch is not None
    assert (verdict.batch.train, verdict.samples_per_step) == (4, 8)
    assert {note.code for note in verdict.notes} >= {"sequence-size-alone", "samples-per-step"}
    declared = verdict_on(config, 2, ParallelDegrees(sequence=2))
    assert declared.samples_per_step == 4
    assert not declared.notes


def test_versions_that_do_not_read_it_ignore_sequence_parallelism() -> None:
    config = {"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 2}
    verdict = validate(config, JudgementContext(2, "0.15.4"))
    assert verdict.division.divisor == 2
    assert "sequence_parallel_size" in [written(note.path) for note in verdict.notes]


@pytest.mark.parametrize(
    ("config", "declared", "place"),
    [
        ({"tensor_parallel": {"autotp_size": 2}}, ParallelDegrees(tensor=4), "tensor_parallel.autotp_size"),
        ({"sequence_parallel_size": 2}, ParallelDegrees(sequence=4), "sequence_parallel_size"),
        (
            {"expert_parallel": {"enabled": True, "autoep_size": 2}},
            ParallelDegrees(expert=4),
            "expert_parallel.autoep_size",
        ),
    ],
)
def test_a_declaration_that_contradicts_the_configuration_is_an_error(
    config: dict[str, Any], declared: ParallelDegrees, place: str
) -> None:
    verdict = verdict_on({"train_micro_batch_size_per_gpu": 1, **config}, 8, declared)
    assert place in errors(verdict)
    assert "contradicts spec.parallelism" in " ".join(note.message for note in verdict.notes)


@given(st.integers(1, 64), factors, factors, factors)
def test_ranks_that_cannot_be_divided_so_are_an_error(world: int, tensor: int, pipeline: int, sequence: int) -> None:
    assume(world % (tensor * pipeline * sequence))
    verdict = verdict_on({"train_micro_batch_size_per_gpu": 1}, world, ParallelDegrees(tensor, pipeline, sequence))
    assert verdict.refused
    assert verdict.division.divisor is None
    assert verdict.batch is None


def test_a_mesh_that_does_not_multiply_is_an_error() -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2, "data_parallel_size": 2}
    assert errors(verdict_on(config, 8)) == ["data_parallel_size"]
    assert not errors(verdict_on({**config, "data_parallel_size": 4}, 8))


def test_experts_must_fit_the_ranks() -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "expert_parallel": {"enabled": True, "autoep_size": 3}}
    assert errors(verdict_on(config, 8)) == ["expert_parallel.autoep_size"]
    assert not errors(verdict_on(config, 6))
