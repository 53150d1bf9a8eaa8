"""What versions of DeepSpeed accept and train wrongly: a table of what their own later changes mend.

Read from the sources of DeepSpeed 0.15.0 to 0.19.8.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig import wrong_conditions as conditions
from deepspeed_operator.dsconfig.notes import CheckPhase, Note, Path
from deepspeed_operator.dsconfig.setup import ZERO
from deepspeed_operator.dsconfig.versions import SUPPORTED, Numbers, numbers_of
from deepspeed_operator.dsconfig.wrong_conditions import Condition, RunCase


@dataclass(frozen=True, slots=True)
class Reference:
    """A pull request of DeepSpeed, as the commit that it became: the one that mends, or else the one that brings."""

    pull: int
    commit: str
    date: str
    mends: bool = True


@dataclass(frozen=True, slots=True)
class WrongResult:
    """A configuration that some versions train wrongly.

    `since` is the first of them and `until` the first version after them, which is right, or refuses it. None: the
    newest version known here is wrong, too. `condition` says `holds` in words. Nothing is trained unless `trains`.
    """

    code: Code
    since: str
    until: str | None
    path: Path
    condition: str
    holds: Condition
    effect: str
    fix: str
    source: Reference
    trains: bool = True

    def in_version(self, version: Numbers) -> bool:
        """Whether the row is about that version."""
        begun = (numbers_of(self.since) or version) <= version
        if self.until is None:
            return begun and version <= (numbers_of(SUPPORTED[-1]) or version)
        return begun and version < (numbers_of(self.until) or version)


_ACCUMULATION: Final[Path] = ("gradient_accumulation_steps",)
_OPTIMIZER: Final[Path] = ("optimizer", "type")
_SCHEDULER: Final[Path] = ("scheduler", "type")
_WARM_UP: Final[Path] = ("scheduler", "params", "warmup_num_steps")
_HIGHEST: Final[Path] = ("scheduler", "params", "warmup_max_lr")
_BF16_SUMS: Final = "bf16 with grad_accum_dtype fp32 at stage 1, nothing offloaded"
_RATES: Final = Reference(7658, "df59f203f", "2025-11-11")
_MUON: Final = Reference(7509, "66ad27804", "2025-08-26", mends=False)

WRONG_RESULTS: Final[tuple[WrongResult, ...]] = (
    WrongResult(
        Code.FIRST_LEARNING_RATE, "0.15.0", "0.15.3", _SCHEDULER,
        "scheduler WarmupLR, WarmupDecayLR or WarmupCosineLR",
        conditions.starts_at_full_rate,
        "the first step is made at the optimizer's own learning rate: the scheduler sets it after that step only.",
        "Use DeepSpeed 0.15.3 or newer.",
        Reference(6597, "85b7469ea", "2024-10-14"),
    ),
    WrongResult(
        Code.STALE_PARAMETERS, "0.15.0", "0.18.3", (ZERO, "zero_hpz_partition_size"),
        "hpZ at stage 3",
        conditions.secondary_copy_stale,
        "after a checkpoint is loaded, or weights into a model made under zero.Init, the first backward passes compute "
        "with the copies of the parameters from before.",
        "Use DeepSpeed 0.18.3 or newer, or remove it.",
        Reference(7707, "c069ceb30", "2025-12-04"),
    ),
    WrongResult(
        Code.STAIRS_IGNORED, "0.15.0", "0.19.4", ("scheduler", "params"),
        "scheduler OneCycle with a stair count",
        conditions.stairs_ignored,
        "stair counts change nothing: the learning rate moves at every step.",
        "Use DeepSpeed 0.19.4 or newer, or remove cycle_first_stair_count and cycle_second_stair_count.",
        Reference(8179, "3169c2dcf", "2026-07-29"),
    ),
    WrongResult(
        Code.ALL_REDUCE_FETCH, "0.15.0", "0.19.4", (ZERO, "stage3_use_all_reduce_for_fetch_params"),
        "stage3_use_all_reduce_for_fetch_params at stage 3, several ranks",
        conditions.fetched_by_all_reduce,
        "where the ranks do not divide a parameter's size, the first elements of the one behind it are computed with "
        "uninitialized memory added to them.",
        "Use DeepSpeed 0.19.4 or newer, or remove it.",
        Reference(8158, "4e3acb1e3", "2026-08-05"),
    ),
    WrongResult(
        Code.DECAY_NEVER_BEGINS, "0.15.0", None, _WARM_UP,
        "scheduler WarmupDecayLR, whose warm-up is as long as total_num_steps or longer",
        conditions.decay_warms_up_throughout,
        "the warm-up takes all of total_num_steps: the learning rate only rises, and is 0 from then on.",
        "Write a warmup_num_steps well below total_num_steps (it is 1000 by default).",
        Reference(414, "0e942df00", "2020-09-16", mends=False),
    ),
    WrongResult(
        Code.COSINE_NEVER_BEGINS, "0.15.0", "0.19.3", _WARM_UP,
        "scheduler WarmupCosineLR, whose warm-up is as long as total_num_steps or longer",
        conditions.cosine_warms_up_throughout,
        "the warm-up takes all of total_num_steps: the learning rate only rises. Beyond it, it swings, or where both "
        "are equal the run ends in a ZeroDivisionError.",
        "Write a warmup_num_steps well below total_num_steps (it is 1000 by default).",
        Reference(8142, "2163a0130", "2026-07-14"),
    ),
    WrongResult(
        Code.GRADIENTS_LOST, "0.15.2", "0.19.0", _ACCUMULATION,
        "stage 2 with the optimizer offloaded, more than 2 accumulation steps",
        conditions.middle_gradients_lost,
        "the gradients of all micro steps but the first and the last are lost.",
        "Use DeepSpeed 0.19.0 or newer, write 2 or less and a larger micro batch, or do not offload the optimizer.",
        Reference(7967, "9d632f103", "2026-04-11"),
    ),
    WrongResult(
        Code.OVERFLOW_NOT_SHARED, "0.17.1", "0.18.0", ("fp16", "enabled"),
        "fp16 at stage 1, several ranks",
        conditions.overflow_seen_alone,
        "ranks do not tell each other of an overflow: one whose part of the gradients overflows skips the step alone, "
        "and then differs from the others, or hangs.",
        f"Use DeepSpeed 0.18.0 or newer, or write bf16, or {ZERO}.stage: 2.",
        Reference(7580, "bc9ed477e", "2025-09-23"),
    ),
    WrongResult(
        Code.UNSCALED_AUTOCAST, "0.17.2", "0.18.0", ("torch_autocast", "dtype"),
        "torch_autocast to fp16 at stage 0",
        conditions.autocast_unscaled,
        "the loss is not scaled at stage 0: small gradients become 0 in fp16.",
        f'Use DeepSpeed 0.18.0 or newer, or write "bfloat16", or {ZERO}.stage: 1.',
        Reference(7619, "71d077da7", "2025-10-04"),
    ),
    WrongResult(
        Code.GRADIENTS_OVERWRITTEN, "0.17.6", "0.18.3", _ACCUMULATION,
        "stage 2 with nothing offloaded, gradient accumulation",
        conditions.gradients_overwritten,
        "each micro step overwrites the gradients of the one before: only the last one's count.",
        f"Use DeepSpeed 0.18.3 or newer, or write {ZERO}.stage: 1, or 1 and a larger micro batch.",
        Reference(7665, "53e91a098", "2025-11-19"),
    ),
    WrongResult(
        Code.NEVER_STEPS, "0.17.6", "0.18.2", ("fp16", "enabled"),
        "fp16 at stage 0 with DeepSpeed's own Adam or a 1-bit one",
        conditions.never_steps,
        "at stage 0 no step is ever made: the weights stay as they are.",
        f"Use DeepSpeed 0.18.2 or newer, or write {ZERO}.stage: 1, or bf16.",
        Reference(7645, "d56e847ba", "2025-10-30"),
        trains=False,
    ),
    WrongResult(
        Code.GRADIENTS_NOT_CLEARED, "0.17.6", "0.18.6", ("bf16", "enabled"),
        "bf16 at stage 0 with another optimizer than DeepSpeed's own Adam or a Lamb",
        conditions.bf16_gradients_pile_up,
        "gradients are not cleared after a step at stage 0: each step adds to those of all steps before it.",
        f"Use DeepSpeed 0.18.6 or newer, or write {ZERO}.stage: 1.",
        Reference(7839, "1752c2ab6", "2026-02-12"),
    ),
    WrongResult(
        Code.MUON_RATES_IGNORED, "0.17.6", "0.18.3", ("optimizer", "params"),
        "optimizer Muon with a muon_lr or adam_lr other than lr",
        conditions.rates_ignored,
        "muon_lr and adam_lr are ignored: every parameter trains at lr.",
        "Use DeepSpeed 0.18.3 or newer, or write lr alone.",
        _RATES,
    ),
    WrongResult(
        Code.MUON_IS_SGD, "0.17.6", "0.19.7", _OPTIMIZER,
        "optimizer Muon at stage 0",
        conditions.muon_without_zero,
        "at stage 0 Muon's matrices are trained by plain SGD, without momentum.",
        f"Use DeepSpeed 0.19.7 or newer, or write {ZERO}.stage: 1.",
        _MUON,
    ),
    WrongResult(
        Code.MUON_IS_SGD, "0.17.6", "0.19.7", _OPTIMIZER,
        f"optimizer Muon, {_BF16_SUMS}",
        conditions.muon_in_bf16_optimizer,
        "with gradients added up in fp32 at stage 1, Muon's matrices are trained by plain SGD, without momentum.",
        "Remove data_types.grad_accum_dtype (DeepSpeed 0.19.7 and newer refuse it), or write stage: 2.",
        _MUON,
    ),
    WrongResult(
        Code.MUON_IS_SGD, "0.17.6", "0.19.3", _OPTIMIZER,
        "optimizer Muon, offloaded, at stage 1 or 2",
        conditions.muon_offloaded,
        "with its state on the host, Muon's matrices are trained by plain SGD, without momentum.",
        "Use DeepSpeed 0.19.8 or newer, or do not offload the optimizer.",
        _MUON,
    ),
    WrongResult(
        Code.MUON_SCATTERED, "0.17.6", "0.19.3", (ZERO, "reduce_scatter"),
        "optimizer Muon at stage 1 or 2 with reduce_scatter (the default), several ranks",
        conditions.muon_scattered,
        "a matrix that lies in the partitions of two ranks gets a wrong update from Muon, another one on each rank.",
        "Use DeepSpeed 0.19.3 or newer, or write reduce_scatter: false.",
        Reference(8141, "de1846cf6", "2026-07-17"),
    ),
    WrongResult(
        Code.MUON_FIRST_LEARNING_RATE, "0.17.6", "0.19.0", _SCHEDULER,
        "optimizer Muon, scheduler WarmupCosineLR",
        conditions.muon_with_cosine,
        "the first step's learning rate is set for Muon's parameters only: Adam's make it at their full rate.",
        "Use DeepSpeed 0.19.0 or newer, or WarmupLR.",
        Reference(7969, "3fd762cf0", "2026-04-12"),
    ),
    WrongResult(
        Code.ONE_LEARNING_RATE, "0.18.3", "0.19.4", _HIGHEST,
        "optimizer Muon with a muon_lr other than adam_lr, scheduler WarmupLR without warmup_max_lr",
        conditions.rates_of_one_group,
        "every group of parameters warms up to the learning rate of the first one.",
        "Use DeepSpeed 0.19.4 or newer, or write a list with a rate for each group.",
        Reference(8171, "6c58fb75f", "2026-07-29"),
    ),
    WrongResult(
        Code.LEARNING_RATES_OVERWRITTEN, "0.18.3", None, _HIGHEST,
        "optimizer Muon with a muon_lr other than adam_lr, scheduler WarmupLR or WarmupDecayLR with one rate for all",
        conditions.rates_overwritten,
        "one highest rate for all groups of parameters overwrites muon_lr and adam_lr.",
        "Write a list with a rate for each group, Muon's first.",
        replace(_RATES, mends=False),
    ),
    WrongResult(
        Code.GRADIENTS_DIVIDED_TWICE, "0.18.3", "0.18.4", _ACCUMULATION,
        "gradient accumulation under the Hugging Face Trainer",
        conditions.divided_twice,
        "where the Trainer divides the loss by the accumulation steps, as recent ones do, the gradients are divided "
        "again.",
        "Use DeepSpeed 0.18.4 or newer.",
        Reference(7724, "d568375e5", "2025-12-12"),
    ),
    WrongResult(
        Code.GRADIENTS_DIVIDED_BY_STAGES, "0.18.3", "0.19.3", _ACCUMULATION,
        "gradient accumulation in a pipeline",
        conditions.divided_at_each_stage,
        "each pipeline stage divides the gradients by the accumulation steps again: those of the first are the "
        "smallest.",
        "Use DeepSpeed 0.19.3 or newer.",
        Reference(8154, "d99a6429e", "2026-07-21"),
    ),
    WrongResult(
        Code.LAST_GRADIENT_NOT_REDUCED, "0.18.3", "0.19.0", ("data_types", "grad_accum_dtype"),
        f"{_BF16_SUMS}, without bf16.immediate_grad_update, several ranks",
        conditions.last_gradient_not_reduced,
        "the gradients of the last micro step are added after the others are averaged over the ranks, and never are.",
        "Use DeepSpeed 0.19.0 or newer, write bf16.immediate_grad_update: true, or remove it.",
        Reference(7985, "5999fb069", "2026-04-28"),
    ),
    WrongResult(
        Code.MUON_EACH_MICRO_STEP, "0.18.9", "0.19.8", _ACCUMULATION,
        "optimizer Muon at stage 3, gradient accumulation",
        conditions.muon_per_micro_batch,
        "at stage 3 Muon makes its update from each micro batch, and the updates are added up, not the gradients.",
        "Use DeepSpeed 0.19.8 or newer, or write 1, or stage: 2.",
        Reference(7919, "956ec6fb1", "2026-03-25", mends=False),
    ),
    WrongResult(
        Code.COSINE_NEVER_BEGINS, "0.19.3", None, _WARM_UP,
        "scheduler WarmupCosineLR, whose warm-up is as long as total_num_steps or longer",
        conditions.cosine_warms_up_throughout,
        "the warm-up takes all of total_num_steps: the learning rate only rises, and falls to cos_min_ratio at once "
        "where the run goes on.",
        "Write a warmup_num_steps well below total_num_steps (it is 1000 by default).",
        Reference(8142, "2163a0130", "2026-07-14", mends=False),
    ),
    WrongResult(
        Code.MUON_IS_SGD, "0.19.3", "0.19.8", _OPTIMIZER,
        "optimizer Muon, offloaded, at stage 1 or 2 with reduce_scatter: false",
        conditions.muon_offloaded_without_scatter,
        "with its state on the host, Muon's matrices are trained by plain SGD, without momentum.",
        "Use DeepSpeed 0.19.8 or newer, or do not offload the optimizer.",
        _MUON,
    ),
)  # fmt: skip


def wrong_result_notes(case: RunCase) -> Iterator[Note]:
    """Say what the version of the case trains wrongly: an error only where nothing is trained."""
    for row in _rows(case.setup.version):
        if row.holds(case):
            level = Level.WARNING if row.trains else Level.ERROR
            yield Note(level, row.path, row.code, row.effect, row.fix, CheckPhase.SILENT)


@lru_cache(maxsize=64)
def _rows(version: Numbers) -> tuple[WrongResult, ...]:
    return tuple(row for row in WRONG_RESULTS if row.in_version(version))
