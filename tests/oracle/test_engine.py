"""Engines that are started beside our verdicts: what we say they refuse, they refuse, and the rest they start with.

Cases that only some versions refuse; every rule of ours; public files and configurations drawn from them. tests/matrix
shows more of the newest version, on the cluster.
"""

import random
from functools import cache
from typing import Any, Final

import pytest

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate_for
from deepspeed_operator.dsconfig.notes import CheckPhase
from deepspeed_operator.dsconfig.schema import schema_of
from deepspeed_operator.dsconfig.versions import SUPPORTED
from tests.matrix.refusals import REFUSALS
from tests.oracle import corpus
from tests.oracle.engine_draws import Question, drawn, question_of, real
from tests.oracle.engine_verdicts import Record, started, unexplained
from tests.oracle.engines import VERSIONS, WORLDS, answered, context_of, refusal, with_errors
from tests.oracle.oracle import Config
from tests.oracle.refusals import Answer, codes_that_refuse, judged, questions, rules

pytestmark = pytest.mark.timeout(1800)

ADAM: dict[str, Any] = {"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
BF16: dict[str, Any] = {**ADAM, "bf16": {"enabled": True}}
AUTOCAST: dict[str, Any] = {**BF16, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}


def zero(stage: int, *, optimizer: str = "AdamW", **more: Any) -> dict[str, Any]:
    return {**ADAM, "optimizer": {"type": optimizer, "params": {}}, "zero_optimization": {"stage": stage, **more}}


MUON = zero(3, optimizer="Muon", reduce_scatter=False)
ZENFLOW = zero(2, zenflow={}, offload_optimizer={"device": "cpu"})
MASTER: dict[str, Any] = {**zero(2), "fp16": {"enabled": True, "fp16_master_weights_and_grads": True}}
CURRICULUM: dict[str, Any] = {**ADAM, "curriculum_learning": {"enabled": True, "curriculum_type": "x"}}


def scheduled(name: str, *, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**ADAM, "scheduler": {"type": name, "params": params}, **more}


# Versions before 0.19.6 do not read the operation.
SUMMED = {**zero(2), "gradient_allreduce_op": "sum", "gradient_predivide_factor": 2.0}
STEPS = scheduled("StepLR", params={"step_size": 3})
WRAPPED = [{"zero_optimization": {"stage": stage}} for stage in (1, 2, 3)] + [
    {half: {"enabled": True}} for half in ("fp16", "bf16")
]
# A version, a configuration, and words of its refusal; nothing where the engine starts.
CASES: list[tuple[str, Config, str]] = [
    ("0.16.9", {**BF16, "data_types": {"grad_accum_dtype": "bf16"}}, "must use a gradient accumulation type of fp32"),
    ("0.17.6", {**BF16, "data_types": {"grad_accum_dtype": "bf16"}}, ""),
    ("0.17.6", {**BF16, "data_types": {"grad_accum_dtype": "fp32"}}, ""),
    ("0.18.9", {**BF16, "data_types": {"grad_accum_dtype": "fp32"}}, "unsupported mix"),
    ("0.17.6", AUTOCAST, "Cannot enable both torch autocast and bfloat16"),
    ("0.18.9", AUTOCAST, ""),
    ("0.17.6", MUON, "Muon optimizer is not yet compatible with ZeRO Stage 3"),
    ("0.18.9", MUON, ""),
    ("0.19.2", ZENFLOW, "You are using an untested ZeRO Optimizer"),
    ("0.19.5", ZENFLOW, ""),
    ("0.16.9", MASTER, "fp16_master_and_gradients requires optimizer"),
    ("0.19.2", {**zero(3), "tensor_parallel": {"autotp_size": 2}}, "has not been validated"),
    ("0.19.6", zero(3, mics_shard_size=3), "not dividable"),
    ("0.19.7", {**zero(1), "amp": {"enabled": True}}, "Amp and ZeRO are not currently compatible"),
    ("0.19.7", {**BF16, "amp": {"enabled": True}}, "Cannot enable both amp"),
    ("0.19.7", CURRICULUM, "Curriculum learning requires the config 'min_difficulty'"),
    ("0.19.8", {**zero(3), "managed_gradient_accumulation": False}, ""),
    ("0.18.9", SUMMED, "gradient_predivide_factor != 1.0 is not yet supported"),
    ("0.19.8", SUMMED, ""),
    ("0.15.4", STEPS, ""),
    ("0.19.8", STEPS, ""),
    *((version, {**STEPS, **WRAPPED[0]}, "is not an Optimizer") for version in SUPPORTED),
    *(("0.15.4", {**STEPS, **wrapped}, "is not an Optimizer") for wrapped in WRAPPED[1:]),
    *(("0.19.8", {**STEPS, **wrapped}, "is not an Optimizer") for wrapped in WRAPPED[1:]),
    ("0.19.8", scheduled("StepLR", params={}), "missing 1 required positional argument: 'step_size'"),
    ("0.19.8", scheduled("StepLR", params={"step_sise": 3, "step_size": 3}), "unexpected keyword argument"),
    ("0.19.8", scheduled("LambdaLR", params={"lr_lambda": "x"}), "'str' object is not callable"),
    ("0.19.8", scheduled("SequentialLR", params={"schedulers": [], "milestones": []}), "at least one scheduler"),
    ("0.19.8", scheduled("ReduceLROnPlateau", params={"patience": 3}), ""),
    ("0.19.8", scheduled("CosineAnnealingLR", params={"T_max": 5, "eta_min": 0.1, "last_epoch": -1}), ""),
]


TEXT: Config = {**ADAM, "optimizer": {"type": "AdamW", "params": {"lr": "1e-4"}}}
# Schedulers, and whether they put rates of their own in place of the optimizer's.
RATES: list[tuple[Config, bool]] = [
    ({}, False),
    ({"type": "WarmupCosineLR", "params": {"total_num_steps": 9}}, False),
    ({"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}, True),
    ({"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_max_lr": 1e-3}}, True),
    ({"type": "LRRangeTest", "params": {}}, True),
    ({"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}}, True),
]
RATED = [{**TEXT, **({"scheduler": scheduler} if scheduler else {})} for scheduler, _ in RATES]
REAL: Final = 15
DRAWN: Final = 60
# The same are drawn in each run; `make oracle-full` draws more of them.
SEED: Final = 1
# The share of misses: each is a warning too few.
MISSES: Final = 0.05
# What takes several ranks, which tests/matrix shows; and Lamb, whose op CPUs lack.
NOT_HERE = {"mesh-size", "indivisible-ranks", "not-with-pipeline", "contradictory-sizes", "needs-dynamic-loss-scale"}


@cache
def told(version: str) -> list[Record]:
    """Return what a version's engines did with all that is asked of them: it is imported once."""
    asked: list[Record] = [
        {"case": at, "config": config, "optimizer": "configuration", "steps": 0}
        for at, (case, config, _) in enumerate(CASES)
        if case == version
    ]
    if version in VERSIONS:
        asked += [{"rate": at, "config": config, "optimizer": "configuration"} for at, config in enumerate(RATED)]
        asked += [*questions(), *(each.asked() for each in unforeseen(version))]
    return list(answered(version, asked))


def unforeseen(version: str) -> list[Question]:
    names = sorted(corpus.public())
    some = random.Random(SEED).sample(names, min(REAL, len(names)))
    return [*real(some, WORLDS), *drawn(DRAWN, SEED, context_of(version), WORLDS)]


def by_rule(version: str) -> list[Answer]:
    return judged(version, (each for each in told(version) if "rule" in each))


@pytest.mark.parametrize("case", range(len(CASES)), ids=[version for version, *_ in CASES])
def test_an_engine_starts_where_we_have_no_error(case: int) -> None:
    version, config, words = CASES[case]
    (theirs,) = (refusal(each) for each in told(version) if each.get("case") == case)
    assert words in (theirs or "")
    assert bool(words) == (theirs is not None)
    verdict = validate_for(schema_of(version), config, JudgementContext(1))
    # Where nothing is trained, the engine starts all the same.
    notes = [note for note in verdict.notes if note.phase is not CheckPhase.SILENT]
    errors = [note.message for note in notes if note.level is Level.ERROR]
    assert bool(errors) == bool(words), errors


@pytest.mark.parametrize("version", ["0.15.4", "0.19.8"])
def test_text_trains_as_a_rate_where_a_scheduler_replaces_it(version: str) -> None:
    trains = {each["rate"]: refusal(each) is None for each in told(version) if "rate" in each}
    assert [trains[at] for at in range(len(RATES))] == [replaces for _, replaces in RATES]
    verdicts = [validate_for(schema_of(version), each, JudgementContext(1)) for each in RATED]
    assert [not verdict.refused for verdict in verdicts] == [replaces for _, replaces in RATES]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_rule_refuses_what_an_engine_starts_with_nor_passes_over_what_it_refuses(version: str) -> None:
    assert [
        (rule, [note.message for note in answer.ours], answer.theirs)
        for rule, answer in zip(rules(), by_rule(version), strict=True)
        if not answer.agree
    ] == []


def test_each_code_that_refuses_is_shown() -> None:
    shown = {note.code.value for version in VERSIONS for answer in by_rule(version) for note in answer.ours}
    assert codes_that_refuse() - shown <= NOT_HERE
    assert {row.path for row in REFUSALS if row.ranks > 1 and row.refused_by_us}


@pytest.mark.parametrize("version", VERSIONS)
def test_files_and_configurations_drawn_from_them_are_judged_as_engines_do(version: str) -> None:
    records = list(with_errors(version, (each for each in told(version) if "digest" in each)))
    assert len(records) >= DRAWN
    assert 0.2 * len(records) < sum(map(started, records)) < 0.9 * len(records)
    differing = [(each, question_of(each).config) for each in unexplained(records)]
    print(*differing, sep="\n")
    assert [each for each in differing if started(each[0])] == [], "refused by us alone"
    assert len(differing) <= MISSES * len(records), differing
