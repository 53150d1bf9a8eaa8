"""The table of what versions train wrongly: each row hits a configuration, and neither a sound one nor another version.

That DeepSpeed trains so is read from its source, of which a row names the pull request, and shown by tests/oracle.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.status import Level
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.notes import CheckPhase, Note, written
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.versions import numbers_of
from deepspeed_operator.dsconfig.wrong_results import WRONG_RESULTS, WrongResult
from tests.consoles import ROOT
from tests.unit.dsconfig.test_bad_input import ODD
from tests.unit.dsconfig.verdicts import ADAM, CPU_OFFLOAD

Config = dict[str, Any]

CODES = {row.code for row in WRONG_RESULTS}
MICRO = {"train_micro_batch_size_per_gpu": 1}
FOUR = {"gradient_accumulation_steps": 4}
BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True}}
FP32_SUMS = {**BF16, "data_types": {"grad_accum_dtype": "fp32"}}
HPZ = {"stage": 3, "zero_hpz_partition_size": 2}
FETCH = {"stage": 3, "stage3_use_all_reduce_for_fetch_params": True}
AUTOCAST = {"enabled": True, "dtype": "float16"}


def muon(stage: int = 0, offload: Config | None = None, **params: Any) -> Config:
    zero = {"stage": stage, "reduce_scatter": False, **(offload or {})}
    return {"optimizer": {"type": "Muon", "params": {"lr": 0.02, **params}}, "zero_optimization": zero}


def zero(stage: int, **keys: Any) -> Config:
    return {"zero_optimization": {"stage": stage, **keys}}


def scheduled(name: str, **params: Any) -> Config:
    return {"scheduler": {"type": name, "params": params}}


SGD = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
TWO_RATES: Config = muon(1, muon_lr=0.02, adam_lr=3e-4)
SCATTERED: Config = {**muon(2), **zero(2)}
PIPELINE = {"parallelism": ParallelDegrees(pipeline=2)}
TRAINER: Config = {"integration": Integration.ACCELERATE}

# Code; the first version that has it, the last, and the next one; a configuration that it hits, and one like it that it
# does not; circumstances.
Versions = tuple[str, str, str | None]
ROWS: list[tuple[str, Versions, tuple[Config, Config], dict[str, Any]]] = [
    ("first-learning-rate", ("0.15.0", "0.15.2", "0.15.3"), (scheduled("WarmupLR"), scheduled("LRRangeTest")), {}),
    ("stale-parameters", ("0.15.0", "0.18.2", "0.18.3"), ({**ADAM, "zero_optimization": HPZ}, {**ADAM, **zero(3)}), {}),
    (
        "stairs-ignored",
        ("0.15.4", "0.19.3", "0.19.4"),
        (
            scheduled("OneCycle", cycle_min_lr=0.1, cycle_max_lr=1, cycle_first_stair_count=4),
            scheduled("OneCycle", cycle_min_lr=0.1, cycle_max_lr=1, cycle_first_stair_count=0),
        ),
        {},
    ),
    ("all-reduce-fetch", ("0.15.4", "0.19.3", "0.19.4"), ({"zero_optimization": FETCH}, zero(3)), {}),
    (
        "decay-never-begins",
        ("0.15.4", "0.19.8", None),
        (
            scheduled("WarmupDecayLR", total_num_steps=1000),
            scheduled("WarmupDecayLR", total_num_steps=1000, warmup_num_steps=100),
        ),
        {},
    ),
    (
        "cosine-never-begins",
        ("0.15.4", "0.19.8", None),
        (
            scheduled("WarmupCosineLR", total_num_steps=9, warmup_num_steps=9),
            scheduled("WarmupCosineLR", total_num_steps="auto", warmup_num_steps=9),
        ),
        {},
    ),
    (
        "gradients-lost",
        ("0.15.2", "0.18.9", "0.19.0"),
        (
            {**FOUR, **ADAM, **zero(2, **CPU_OFFLOAD)},
            {"gradient_accumulation_steps": 2, **ADAM, **zero(2, **CPU_OFFLOAD)},
        ),
        {},
    ),
    ("overflow-not-shared", ("0.17.1", "0.17.6", "0.18.0"), ({**FP16, **zero(1)}, {**FP16, **zero(2)}), {}),
    (
        "unscaled-autocast",
        ("0.17.6", "0.17.6", "0.18.0"),
        ({"torch_autocast": AUTOCAST}, {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}),
        {},
    ),
    (
        "one-learning-rate",
        ("0.18.9", "0.19.3", "0.19.4"),
        ({**TWO_RATES, **scheduled("WarmupLR")}, {**muon(1), **scheduled("WarmupLR")}),
        {},
    ),
    (
        "gradients-overwritten",
        ("0.17.6", "0.18.2", "0.18.3"),
        ({**FOUR, **ADAM, **zero(2)}, {**FOUR, **ADAM, **zero(1)}),
        {},
    ),
    (
        "never-steps",
        ("0.17.6", "0.18.1", "0.18.2"),
        ({**FP16, **ADAM}, {**FP16, "optimizer": {"type": "Adam", "params": {"torch_adam": True}}}),
        {},
    ),
    ("gradients-not-cleared", ("0.17.6", "0.18.5", "0.18.6"), ({**BF16, **SGD}, {**BF16, **ADAM}), {}),
    ("muon-rates-ignored", ("0.17.6", "0.18.2", "0.18.3"), (TWO_RATES, muon(1, muon_lr=0.02, adam_lr=0.02)), {}),
    ("muon-is-sgd", ("0.17.6", "0.19.6", "0.19.7"), (muon(), muon(1)), {}),
    ("muon-is-sgd", ("0.17.6", "0.19.6", "0.19.7"), ({**FP32_SUMS, **muon(1)}, {**BF16, **muon(1)}), {}),
    ("muon-is-sgd", ("0.17.6", "0.19.7", "0.19.8"), (muon(2, CPU_OFFLOAD), muon(2)), {}),
    ("muon-scattered", ("0.17.6", "0.19.2", "0.19.3"), (SCATTERED, muon(2)), {}),
    (
        "muon-first-learning-rate",
        ("0.17.6", "0.18.9", "0.19.0"),
        ({**muon(1), **scheduled("WarmupCosineLR", total_num_steps=9000)}, {**muon(1), **scheduled("WarmupLR")}),
        {},
    ),
    (
        "learning-rates-overwritten",
        ("0.18.3", "0.19.8", None),
        (
            {**TWO_RATES, **scheduled("WarmupLR", warmup_max_lr=0.02)},
            {**TWO_RATES, **scheduled("WarmupLR", warmup_max_lr=[0.02, 3e-4])},
        ),
        {},
    ),
    ("gradients-divided-twice", ("0.18.3", "0.18.3", "0.18.4"), (FOUR, {"gradient_accumulation_steps": 1}), TRAINER),
    ("gradients-divided-by-stages", ("0.18.3", "0.19.2", "0.19.3"), ({**FOUR, **zero(1)}, zero(1)), PIPELINE),
    (
        "last-gradient-not-reduced",
        ("0.18.3", "0.18.9", "0.19.0"),
        (
            {**FP32_SUMS, **ADAM, **zero(1)},
            {**FP32_SUMS, "bf16": {"enabled": True, "immediate_grad_update": True}, **ADAM, **zero(1)},
        ),
        {},
    ),
    ("muon-each-micro-step", ("0.18.9", "0.19.7", "0.19.8"), ({**FOUR, **muon(3)}, muon(3)), {}),
]


def wrong(config: Config, version: str | None, **circumstances: Any) -> list[Note]:
    """The notes of the table about a configuration on 8 ranks."""
    notes = validate({**MICRO, **config}, JudgementContext(8, version, **circumstances)).notes
    return [note for note in notes if note.code in CODES]


@pytest.mark.parametrize(("code", "versions", "configs", "circumstances"), ROWS)
def test_a_row_holds_for_its_condition_and_versions_only(
    code: str, versions: Versions, configs: tuple[Config, Config], circumstances: dict[str, Any]
) -> None:
    (first, last, after), (hit, other) = versions, configs
    for version in (first, last):
        notes = [note for note in wrong(hit, version, **circumstances) if note.code == code]
        assert len(notes) == 1, version
        assert notes[0].fix
        assert code not in {note.code for note in wrong(other, version, **circumstances)}
    if after is not None:
        assert code not in {note.code for note in wrong(hit, after, **circumstances)}


def test_each_row_has_a_configuration_that_it_hits() -> None:
    said = {
        note.message
        for _, (first, last, _), (hit, _), circumstances in ROWS
        for version in (first, last)
        for note in wrong(hit, version, **circumstances)
    }
    assert said >= {row.effect for row in WRONG_RESULTS}


def test_an_error_is_said_only_where_nothing_is_trained() -> None:
    assert [row.code for row in WRONG_RESULTS if not row.trains] == ["never-steps"]
    (note,) = wrong({**FP16, **ADAM}, "0.17.6")
    assert (note.level, note.phase) == (Level.ERROR, CheckPhase.SILENT)
    assert written(note.path) == "fp16.enabled"


def test_a_version_that_is_not_known_has_its_own_rows() -> None:
    lost: Config = {**FOUR, **ADAM, **zero(2, **CPU_OFFLOAD)}
    assert wrong(lost, "0.18.5")
    assert not wrong(lost, "0.19.1")  # judged as 0.18.9, which loses gradients
    assert not wrong(scheduled("WarmupDecayLR", total_num_steps=1), "0.20.0")  # nobody knows


def test_gradients_are_lost_whatever_else_is_wrong_with_the_batch() -> None:
    contradiction = {"train_batch_size": 32, **FOUR}
    assert wrong({**contradiction, **ADAM, **zero(2, **CPU_OFFLOAD)}, "0.18.9")


def oddly(config: Config) -> Iterator[Config]:
    """Yield the configuration with each value in turn replaced by something that nobody should write."""
    for key, value in config.items():
        yield from ({**config, key: odd} for odd in ODD)
        yield from ({**config, key: inner} for inner in oddly(object_at(value)))


@pytest.mark.parametrize(("code", "versions", "configs", "circumstances"), ROWS)
def test_odd_values_where_a_row_looks_are_judged(
    code: str, versions: Versions, configs: tuple[Config, Config], circumstances: dict[str, Any]
) -> None:
    for config in oddly(configs[0]):
        wrong(config, versions[0], **circumstances)


def test_without_a_version_the_note_names_those_that_are_wrong() -> None:
    (lost,) = wrong({**FOUR, **ADAM, **zero(2, **CPU_OFFLOAD)}, None)
    assert lost.message.startswith("With DeepSpeed 0.15.4–0.18.9: the gradients of all micro steps")
    never = next(note for note in wrong({**FP16, **ADAM}, None) if note.code == "never-steps")
    assert never.level is Level.WARNING


@pytest.mark.parametrize("row", WRONG_RESULTS, ids=lambda row: row.code)
def test_a_row_is_about_no_version_before_its_first(row: WrongResult) -> None:
    major, minor, patch = numbers_of(row.since) or (0, 0, 0)
    assert row.in_version((major, minor, patch))
    assert not row.in_version((major, minor, patch - 1))


def test_rows_are_sorted_and_end_after_they_begin() -> None:
    begins = [numbers_of(row.since) or (0, 0, 0) for row in WRONG_RESULTS]
    assert begins == sorted(begins)
    assert all((numbers_of(row.until) or ()) > (numbers_of(row.since) or ()) for row in WRONG_RESULTS if row.until)


def test_the_documents_table_is_that_of_the_rows(pytestconfig: pytest.Config) -> None:
    path = ROOT / "docs/validate.md"
    before, mark, rest = path.read_text().partition("<!-- wrong results -->\n")
    _, end, after = rest.partition("<!-- /wrong results -->\n")
    assert mark
    assert end
    head = "| versions | configuration | what it does | source |\n|---|---|---|---|\n"
    page = before + mark + head + "".join(map(_line, WRONG_RESULTS)) + end + after
    if pytestconfig.getoption("update_golden"):
        path.write_text(page)
    assert page == path.read_text(), "run `make generate`"


def _line(row: WrongResult) -> str:
    source = row.source
    link = f"[#{source.pull}](https://github.com/deepspeedai/DeepSpeed/pull/{source.pull})"
    versions = f"{row.since} – before {row.until}" if row.until else f"since {row.since}"
    effect = row.effect if row.trains else f"**error**: {row.effect}"
    how = "mended by" if source.mends else "since"
    return f"| {versions} | {row.condition} | {effect} | {how} {link} ({source.commit}, {source.date}) |\n"
