"""Which numbers of nodes a job may have, and what of its configuration is another with each."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspeed_operator.api.elastic import MAX_SIZES
from deepspeed_operator.api.spec import Integration
from deepspeed_operator.dsconfig.batch import ACCUMULATION, MICRO, TRAIN
from deepspeed_operator.dsconfig.elastic_sizes import ElasticSizes, elastic_sizes, with_accumulation
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.versions import SUPPORTED

STAGES = (0, 1, 2, 3)


def sizes_of(
    config: dict[str, Any] | None, *, slots: int = 1, fewest: int = 1, most: int = 4, **context: Any
) -> ElasticSizes:
    given: dict[str, Any] = {"world": most * slots, "version": SUPPORTED[-1], "accelerator": "cuda", **context}
    return elastic_sizes(config, JudgementContext(**given), slots, fewest, most)


def numbers(found: ElasticSizes) -> list[tuple[int, int | None]]:
    return [(each.nodes, each.accumulation) for each in found.sizes]


@pytest.mark.parametrize("stage", STAGES)
def test_the_batch_stays_and_deepspeed_derives_the_accumulation_where_it_is_not_written(stage: int) -> None:
    found = sizes_of({TRAIN: 24, MICRO: 2, "zero_optimization": {"stage": stage}})
    assert numbers(found) == [(1, None), (2, None), (3, None), (4, None)]
    batches = [each.batch for each in found.sizes if each.batch is not None]
    assert [(each.train, each.micro_per_gpu, each.accumulation) for each in batches] == [
        (24, 2, 12), (24, 2, 6), (24, 2, 4), (24, 2, 3)
    ]  # fmt: skip
    assert [each.data_parallel for each in found.sizes] == [1, 2, 3, 4]
    assert (found.why, found.batch_is_kept) == (None, True)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "written",
    [
        {MICRO: 2},
        {MICRO: 2, ACCUMULATION: 1},
        {TRAIN: 8},
        {TRAIN: 8, ACCUMULATION: 1},
        {TRAIN: 8, MICRO: 2, ACCUMULATION: 1},
    ],
)
def test_the_accumulation_is_written_where_deepspeed_would_derive_another_batch(
    stage: int, written: dict[str, int]
) -> None:
    found = sizes_of({**written, "zero_optimization": {"stage": stage}})
    assert numbers(found) == [(1, 4), (2, 2), (4, None)]
    assert {(each.batch.train, each.batch.micro_per_gpu) for each in found.sizes if each.batch} == {(8, 2)}
    assert found.why is not None
    assert found.why.startswith("with 3 nodes: train_batch_size 8 is no multiple of micro batch 2 × 3")


def test_parallel_degrees_leave_the_numbers_that_they_divide() -> None:
    found = sizes_of({MICRO: 1}, slots=2, most=8, parallelism=ParallelDegrees(tensor=4))
    assert numbers(found) == [(2, 4), (4, 2), (8, None)]
    experts = sizes_of({MICRO: 1}, slots=2, most=8, parallelism=ParallelDegrees(expert=4))
    assert [nodes for nodes, _ in numbers(experts)] == [2, 4, 8]
    pipeline = sizes_of({MICRO: 1, ACCUMULATION: 4}, most=8, parallelism=ParallelDegrees(pipeline=2, sequence=2))
    assert numbers(pipeline) == [(4, 8), (8, None)]


def test_degrees_alone_decide_where_the_program_makes_the_configuration() -> None:
    found = sizes_of(None, most=6, parallelism=ParallelDegrees(tensor=3))
    assert numbers(found) == [(3, None), (6, None)]
    assert (found.why or "").startswith("with 5 nodes: the world's 5 ranks cannot be divided by tensor 3")


def test_what_a_framework_fills_in_stays_and_the_batch_is_its_own() -> None:
    automatic: dict[str, Any] = {TRAIN: "auto", MICRO: "auto", ACCUMULATION: "auto"}
    found = sizes_of(automatic, most=3)
    assert (numbers(found), found.batch_is_kept) == ([(1, None), (2, None), (3, None)], False)
    lightning = sizes_of({MICRO: 2}, most=3, integration=Integration.LIGHTNING)
    assert (numbers(lightning), lightning.batch_is_kept) == ([(1, None), (2, None), (3, None)], False)


def test_a_size_that_deepspeed_refuses_for_another_reason_is_none() -> None:
    mesh = {"data_parallel_size": 4, "sequence_parallel_size": 1, MICRO: 1}
    found = sizes_of(mesh)
    assert numbers(found) == [(4, None)]
    assert "data_parallel_size 4" in (found.why or "")


def test_of_many_sizes_as_many_are_kept_as_status_holds_with_the_fewest_and_the_most() -> None:
    found = sizes_of({MICRO: "auto"}, fewest=10, most=500)
    nodes = [each.nodes for each in found.sizes]
    assert (len(nodes), nodes[0], nodes[-2:], nodes == sorted(set(nodes))) == (MAX_SIZES, 10, [499, 500], True)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 12), st.integers(1, 4), st.sampled_from(STAGES))
def test_deepspeed_accepts_every_size_with_the_same_global_and_micro_batch(
    micro: int, accumulation: int, most: int, slots: int, stage: int
) -> None:
    config = {MICRO: micro, ACCUMULATION: accumulation, "zero_optimization": {"stage": stage}}
    for size in sizes_of(config, slots=slots, most=most).sizes:
        there = JudgementContext(size.nodes * slots, SUPPORTED[-1], "cuda")
        verdict = validate(with_accumulation(config, size.accumulation), there)
        assert not verdict.refused
        assert verdict.batch is not None
        assert (verdict.batch.train, verdict.batch.micro_per_gpu) == (micro * accumulation * most * slots, micro)
