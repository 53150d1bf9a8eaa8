"""Batch sizes are what DeepSpeed 0.19.8 computes from the same configuration and world."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspeed_operator.api.status import Batch, Level
from deepspeed_operator.dsconfig.batch import ACCUMULATION, KEYS, MICRO, TRAIN, Derived, derive_batch, nearest_choices
from deepspeed_operator.dsconfig.judgement import JudgementContext, judge
from deepspeed_operator.dsconfig.notes import Note

sizes = st.integers(1, 200)
ranks = st.integers(1, 64)


def config_of(train: object = None, micro: object = None, accumulation: object = None) -> dict[str, Any]:
    return {TRAIN: train, MICRO: micro, ACCUMULATION: accumulation}


def deepspeed_computes(train: int | None, micro: int | None, accumulation: int | None, world: int) -> Batch | None:
    """`_set_batch_related_parameters` and `_batch_assertion` of deepspeed/runtime/config.py, line by line."""
    if train is not None and micro is not None and accumulation is not None:
        pass
    elif train is not None and micro is not None:
        accumulation = train // micro
        accumulation //= world
    elif train is not None and accumulation is not None:
        micro = train // world
        micro //= accumulation
    elif micro is not None and accumulation is not None:
        train = micro * accumulation
        train *= world
    elif train is not None:
        accumulation = 1
        micro = train // world
    elif micro is not None:
        train = micro * world
        accumulation = 1
    else:
        return None
    assert train is not None
    assert micro is not None
    assert accumulation is not None
    right = train > 0 and micro > 0 and accumulation > 0 and train == micro * accumulation * world
    return Batch(train=train, micro_per_gpu=micro, accumulation=accumulation) if right else None


def errors(verdict: Derived) -> list[Note]:
    assert verdict.batch is None
    return verdict.notes


@given(st.none() | sizes, st.none() | sizes, st.none() | sizes, ranks)
def test_it_accepts_and_derives_what_deepspeed_does(
    train: int | None, micro: int | None, accumulation: int | None, world: int
) -> None:
    verdict = derive_batch(config_of(train, micro, accumulation), world)
    computed = deepspeed_computes(train, micro, accumulation, world)
    if computed is None:
        assert all(note.level is Level.ERROR for note in errors(verdict))
    else:
        assert verdict == Derived(computed)


@given(st.none() | sizes, st.none() | sizes, st.none() | sizes, ranks)
def test_what_it_accepts_multiplies(train: int | None, micro: int | None, accumulation: int | None, world: int) -> None:
    batch = derive_batch(config_of(train, micro, accumulation), world).batch
    if batch is not None:
        assert batch.micro_per_gpu is not None
        assert batch.accumulation is not None
        assert batch.train == batch.micro_per_gpu * batch.accumulation * world


@given(sizes, st.none() | sizes, st.none() | sizes, ranks)
def test_every_suggested_change_is_itself_accepted(
    train: int, micro: int | None, accumulation: int | None, world: int
) -> None:
    config = config_of(train, micro, accumulation)
    verdict = derive_batch(config, world)
    if verdict.batch is not None:
        return
    choices = nearest_choices({key: value for key, value in config.items() if value is not None}, world)
    assert choices
    for key, value in choices:
        assert derive_batch({**config, key: value}, world).batch is not None, (key, value)
        assert f"{key} {value}" in verdict.notes[0].fix


def test_the_article_on_two_ranks_is_explained() -> None:
    (finding,) = errors(derive_batch(config_of(32, 4, 8), 2))
    assert finding.path == (TRAIN,)
    assert finding.message.startswith("32 ≠ 4 × 8 × 2: ")
    assert finding.fix == (
        "Write train_batch_size 64, or gradient_accumulation_steps 4, or train_micro_batch_size_per_gpu 2."
    )


def test_the_article_on_one_rank_is_right() -> None:
    assert derive_batch(config_of(32, 4, 8), 1).batch == Batch(train=32, micro_per_gpu=4, accumulation=8)


@pytest.mark.parametrize(
    ("given_sizes", "world", "arithmetic", "fix"),
    [
        (
            (10, 4, None),
            2,
            "10 ≠ 4 × 1 × 2",
            "train_batch_size 8, or train_batch_size 16, or train_micro_batch_size_per_gpu 5",
        ),
        ((10, None, None), 4, "10 ≠ 2 × 1 × 4", "train_batch_size 8, or train_batch_size 12"),
        ((1, None, None), 4, "1 ≠ 0 × 1 × 4", "train_batch_size 4"),
        ((9, None, 2), 2, "9 ≠ 2 × 2 × 2", "train_batch_size 8, or train_batch_size 12"),
        ((10, 4, 1), 2, "10 ≠ 4 × 1 × 2", "train_batch_size 8, or train_micro_batch_size_per_gpu 5"),
    ],
)
def test_a_contradiction_shows_the_numbers_and_the_nearest_choices(
    given_sizes: tuple[int | None, int | None, int | None], world: int, arithmetic: str, fix: str
) -> None:
    (finding,) = errors(derive_batch(config_of(*given_sizes), world))
    assert finding.message.startswith(arithmetic)
    assert finding.fix == f"Write {fix}."


def test_accumulation_alone_does_not_determine_the_batch() -> None:
    (finding,) = errors(derive_batch({ACCUMULATION: 2}, 2))
    assert finding.path == ()
    assert "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided" in finding.message


@pytest.mark.parametrize("value", ["8", [8], {"a": 1}, 4.5, float("inf"), float("nan"), 2**63, 1e300, "AUTO"])
def test_what_is_no_whole_number_is_refused_at_its_key(value: object) -> None:
    (finding,) = errors(derive_batch({MICRO: value}, 2))
    assert finding.path == (MICRO,)
    assert "whole number" in finding.message


def test_all_wrong_keys_are_reported_at_once() -> None:
    assert [finding.path for finding in errors(derive_batch(config_of("x", 0, -1), 2))] == [(key,) for key in KEYS]


@pytest.mark.parametrize(("value", "taken_for"), [(True, 1), (4.0, 4)])
def test_what_deepspeed_takes_for_a_number_is_taken_and_pointed_out(value: object, taken_for: int) -> None:
    judgement = judge({MICRO: value}, JudgementContext(2))
    assert judgement.batch == Batch(
        train=2 * taken_for,
        micro_per_gpu=taken_for,
        accumulation=1,
        data_parallel_ranks=2,
        samples_per_step=2 * taken_for,
    )
    assert [finding.level for finding in judgement.findings] == [Level.WARNING]
    assert not judgement.errors


def test_a_product_beyond_64_bits_is_refused() -> None:
    (finding,) = errors(derive_batch(config_of(None, 2**62, 2), 2))
    assert "beyond 64 bits" in finding.message


WORLD = JudgementContext(8)


def test_auto_stays_open_and_is_listed() -> None:
    judgement = judge(config_of("auto", 4, "auto"), WORLD)
    assert judgement.batch == Batch(train=None, micro_per_gpu=4, accumulation=None, data_parallel_ranks=8)
    (finding,) = judgement.findings
    assert finding.level is Level.ADVICE
    assert "train_batch_size: " in finding.message
    assert "gradient_accumulation_steps: gradient_accumulation_steps" in finding.message


def test_auto_does_not_excuse_a_wrong_number_beside_it() -> None:
    judgement = judge(config_of("auto", 0, "auto"), WORLD)
    assert judgement.batch is None
    assert [finding.path for finding in judgement.errors] == [f"spec.dsConfig.{MICRO}"]


def test_null_is_absent() -> None:
    assert judge(config_of(None, 2, None), WORLD).batch == Batch(
        train=16, micro_per_gpu=2, accumulation=1, data_parallel_ranks=8, samples_per_step=16
    )


def test_without_a_configuration_nothing_is_judged() -> None:
    assert judge(None, WORLD).findings == ()


def test_with_a_pipeline_in_the_configuration_a_mismatch_says_to_declare_it() -> None:
    (finding,) = judge({**config_of(16, 4, 1), "pipeline": {"stages": 2}}, WORLD).errors
    assert finding.message.startswith("16 ≠ 4 × 1 × 8")
    assert finding.fix.endswith("If the script runs a pipeline, declare spec.parallelism.pipeline.")
