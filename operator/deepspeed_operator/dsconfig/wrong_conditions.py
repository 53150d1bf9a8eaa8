"""When a row of the table of wrong results concerns a configuration. Each condition is read from DeepSpeed's source."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import ACCUMULATION
from deepspeed_operator.dsconfig.offload import ADAMS, deepspeed_optimizer, sums_bf16_in_fp32, uses_cpu_optimizer
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage

_FUSED: Final = ADAMS | {"onebitadam", "zerooneadam"}  # what DeepSpeed wraps in its fused half-precision optimizer
_LAMBS: Final = frozenset({"lamb", "onebitlamb"})
_DEFAULT_WARMUP: Final = 1000
_TWO: Final = 2


@dataclass(frozen=True, slots=True)
class RunCase:
    """`derived_accumulation`: micro batches in a step; None: not known. `filled_in`: "auto" is in the configuration."""

    setup: Setup
    derived_accumulation: int | None
    filled_in: bool

    @property
    def accumulation(self) -> int:
        """Micro batches in a step; what is written where the batch sizes contradict each other, else 1."""
        written = self.setup.config.get(ACCUMULATION)
        return self.derived_accumulation or (written if type(written) is int else 1)

    @property
    def optimizer(self) -> str:
        """The configuration's optimizer in lower case, "" where it names none."""
        return self._text("optimizer", "type").lower()

    @property
    def optimizer_params(self) -> dict[str, Any]:
        return object_at(self.setup.section("optimizer"), "params")

    @property
    def scheduler(self) -> str:
        """The configuration's scheduler as written, "" where it names none."""
        return self._text("scheduler", "type")

    @property
    def scheduler_params(self) -> dict[str, Any]:
        return object_at(self.setup.section("scheduler"), "params")

    @property
    def accumulates(self) -> bool:
        return self.accumulation > 1

    @property
    def several_ranks(self) -> bool:
        return self.setup.data_ranks > 1

    @property
    def pipeline(self) -> bool:
        return self.setup.division.pipeline > 1

    @property
    def zenflow(self) -> bool:
        return self.setup.zero.get("zenflow") is not None

    @property
    def fused(self) -> bool:
        """Whether DeepSpeed makes one of its fused optimizers for the device."""
        return deepspeed_optimizer(self.setup) in _FUSED and not uses_cpu_optimizer(self.setup)

    def _text(self, section: str, key: str) -> str:
        """Return a text of a section; "" where something else is written, which may be anything."""
        value = self.setup.section(section).get(key)
        return value if isinstance(value, str) else ""


Condition = Callable[[RunCase], bool]


def middle_gradients_lost(case: RunCase) -> bool:
    """Stage 1 copies gradients to the host once a step only, and loses none."""
    offloaded = case.setup.stage == ZeroStage.GRADIENTS and uses_cpu_optimizer(case.setup)
    return case.accumulation > _TWO and offloaded and not case.zenflow


def gradients_overwritten(case: RunCase) -> bool:
    on_device = case.setup.stage == ZeroStage.GRADIENTS and not uses_cpu_optimizer(case.setup)
    return case.accumulates and on_device and not case.zenflow


def divided_twice(case: RunCase) -> bool:
    of_trainer = case.setup.integration is Integration.ACCELERATE
    assumed = case.filled_in and case.setup.integration is not Integration.LIGHTNING
    return case.accumulates and (of_trainer or assumed) and not case.pipeline


def divided_at_each_stage(case: RunCase) -> bool:
    return case.accumulates and case.pipeline


def last_gradient_not_reduced(case: RunCase) -> bool:
    late = not case.setup.on("bf16", "immediate_grad_update")
    return sums_bf16_in_fp32(case.setup) and late and case.several_ranks and not case.pipeline


def bf16_gradients_pile_up(case: RunCase) -> bool:
    named = case.optimizer not in {"", *_LAMBS} and not case.fused
    return case.setup.bf16 and case.setup.stage == ZeroStage.DISABLED and named and not case.pipeline


def never_steps(case: RunCase) -> bool:
    legacy = bool(case.setup.section("optimizer").get("legacy_fusion"))
    return case.setup.fp16 and case.setup.stage == ZeroStage.DISABLED and case.fused and not legacy


def overflow_seen_alone(case: RunCase) -> bool:
    return case.setup.fp16 and case.setup.stage == ZeroStage.OPTIMIZER_STATES and case.several_ranks


def autocast_unscaled(case: RunCase) -> bool:
    return case.setup.autocasts_to_fp16 and case.setup.stage == ZeroStage.DISABLED


def secondary_copy_stale(case: RunCase) -> bool:
    size = case.setup.value(ZERO, "zero_hpz_partition_size") or 1
    return case.setup.stage == ZeroStage.PARAMETERS and size > 1 and case.several_ranks


def fetched_by_all_reduce(case: RunCase) -> bool:
    wanted = case.setup.on(ZERO, "use_all_reduce_for_fetch_params")
    return wanted and case.setup.stage == ZeroStage.PARAMETERS and case.several_ranks


def muon_without_zero(case: RunCase) -> bool:
    return case.optimizer == "muon" and case.setup.stage == ZeroStage.DISABLED


def muon_in_bf16_optimizer(case: RunCase) -> bool:
    return case.optimizer == "muon" and sums_bf16_in_fp32(case.setup)


def _muon_below_stage_3(case: RunCase) -> bool:
    return case.optimizer == "muon" and case.setup.stage in {ZeroStage.OPTIMIZER_STATES, ZeroStage.GRADIENTS}


def muon_offloaded(case: RunCase) -> bool:
    return _muon_below_stage_3(case) and uses_cpu_optimizer(case.setup)


def muon_offloaded_without_scatter(case: RunCase) -> bool:
    return muon_offloaded(case) and not case.setup.on(ZERO, "reduce_scatter")


def muon_scattered(case: RunCase) -> bool:
    never_orthogonal = sums_bf16_in_fp32(case.setup) or uses_cpu_optimizer(case.setup)
    scattered = case.setup.on(ZERO, "reduce_scatter") and case.several_ranks
    return _muon_below_stage_3(case) and scattered and not never_orthogonal


def muon_per_micro_batch(case: RunCase) -> bool:
    return case.optimizer == "muon" and case.setup.stage == ZeroStage.PARAMETERS and case.accumulates


def muon_with_cosine(case: RunCase) -> bool:
    return case.optimizer == "muon" and case.scheduler == "WarmupCosineLR"


def rates_ignored(case: RunCase) -> bool:
    parameters = case.optimizer_params
    others = [parameters[key] for key in ("muon_lr", "adam_lr") if parameters.get(key) is not None]
    return case.optimizer == "muon" and any(rate != parameters.get("lr") for rate in others)


def _two_rates(case: RunCase) -> bool:
    parameters = case.optimizer_params
    common = parameters.get("lr")
    muon, adam = (parameters.get(key, common) for key in ("muon_lr", "adam_lr"))
    return case.optimizer == "muon" and muon != adam


def rates_of_one_group(case: RunCase) -> bool:
    warm_up = case.scheduler == "WarmupLR"
    return warm_up and _two_rates(case) and case.scheduler_params.get("warmup_max_lr") is None


def rates_overwritten(case: RunCase) -> bool:
    name, highest = case.scheduler, case.scheduler_params.get("warmup_max_lr")
    one = name == "WarmupDecayLR" and "warmup_max_lr" not in case.scheduler_params
    return _two_rates(case) and (one or (name in {"WarmupLR", "WarmupDecayLR"} and isinstance(highest, int | float)))


def _warms_up_throughout(case: RunCase, name: str) -> bool:
    if case.scheduler != name:
        return False
    total = case.scheduler_params.get("total_num_steps")
    warm_up = case.scheduler_params.get("warmup_num_steps", _DEFAULT_WARMUP)
    return isinstance(total, int | float) and isinstance(warm_up, int | float) and 0 < total <= warm_up


def cosine_warms_up_throughout(case: RunCase) -> bool:
    return _warms_up_throughout(case, "WarmupCosineLR")


def decay_warms_up_throughout(case: RunCase) -> bool:
    return _warms_up_throughout(case, "WarmupDecayLR")


def stairs_ignored(case: RunCase) -> bool:
    stairs = (case.scheduler_params.get(f"cycle_{half}_stair_count") for half in ("first", "second"))
    one_cycle = case.scheduler == "OneCycle"
    return one_cycle and any(isinstance(count, int) and count > 0 for count in stairs)


def starts_at_full_rate(case: RunCase) -> bool:
    return case.scheduler in {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}
