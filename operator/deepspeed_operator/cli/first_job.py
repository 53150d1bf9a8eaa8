"""The choice of `dsjob init`: of all stages, micro batches and scripts that surely fit, the fastest."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Any, Final

from deepspeed_operator.api.facts import AttentionKernel, ModelFacts
from deepspeed_operator.api.status import World
from deepspeed_operator.cli.circumstances import circumstances
from deepspeed_operator.cli.jobs import WORKER_DEEPSPEED
from deepspeed_operator.cli.planned import Job, Planned
from deepspeed_operator.cli.ranks import Ranks
from deepspeed_operator.dsconfig.advice import loses_gradients
from deepspeed_operator.dsconfig.batch import ACCUMULATION, MICRO
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.setup import ZERO, ZeroStage
from deepspeed_operator.dsconfig.versions import judge_of
from deepspeed_operator.job.precision import Precision
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.case import Case, plan_memory
from deepspeed_operator.plan.memory.fit import Fit, MemoryFit
from deepspeed_operator.plan.model.architecture import Model
from deepspeed_operator.plan.model.declared import model_of

_USUAL_SAMPLES: Final = 128
_USUAL_SEQUENCE: Final = 4096
_MOST_MICRO: Final = 64
_MOST_NODES: Final = 10_000
# Within this share of the fastest, the plainest is better: predictions are no more precise.
_AS_FAST: Final = 1.03


class Framework(StrEnum):
    """Who runs the steps."""

    DEEPSPEED = "deepspeed"
    TRAINER = "trainer"
    ACCELERATE = "accelerate"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a first job is for. `samples`: of a step over all ranks, None for what is usual; `version`: of DeepSpeed."""

    facts: ModelFacts
    framework: Framework
    nodes: int
    slots: int
    samples: int | None
    version: str


@dataclass(frozen=True, slots=True)
class Choice:
    """`facts`: all of them declared, so that nothing is left to be assumed; `planned.now` is what it comes to."""

    facts: ModelFacts
    planned: Planned

    @property
    def is_plain(self) -> tuple[bool, int, int]:
        plan = self.planned.now.plan
        return bool(self.facts.activation_checkpointing), int(plan.setup.stage), -plan.micro

    @property
    def seconds(self) -> float:
        time = self.planned.now.plan.time
        return time.seconds if time is not None else 0.0


def choice_of(wish: Wish, arguments: argparse.Namespace, ranks: Ranks) -> Choice | None:
    """Return the fastest choice that fits, for sure where one does; None where nothing is predicted to fit.

    `arguments` say what the machine's links are, as circumstances() reads them.
    """
    candidates = list(_candidates(wish, ranks, offloads=False))
    sure = [each for each in candidates if each.fits is Fit.YES]
    # Only an optimizer that DeepSpeed makes from the configuration steps on the host.
    if not sure and wish.framework is not Framework.ACCELERATE:
        candidates += _candidates(wish, ranks, offloads=True)
        sure = [each for each in candidates if each.fits is Fit.YES]
    # Each micro step costs something whatever its samples, so that the last of a stage, the largest, is the fastest.
    largest = {(each.facts.activation_checkpointing, each.case.setup.stage): each for each in sure or candidates}
    choices = [_choice(each, wish, arguments, ranks) for each in largest.values()]
    return _fastest(choices if sure else [each for each in choices if not each.planned.is_too_large])


def nodes_that_fit(wish: Wish, arguments: argparse.Namespace, ranks: Ranks) -> int | None:
    """Return how many nodes, doubled until it fits, are enough; None where no number is."""
    nodes = wish.nodes * 2
    while nodes <= _MOST_NODES:
        if choice_of(replace(wish, nodes=nodes, samples=None), arguments, ranks) is not None:
            return nodes
        nodes *= 2
    return None


def _fastest(choices: Sequence[Choice]) -> Choice | None:
    least = min((each.seconds for each in choices), default=0.0)
    as_fast = [each for each in choices if each.seconds <= least * _AS_FAST]
    return min(as_fast, key=lambda each: each.is_plain, default=None)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What may be chosen, whose memory alone is known: its time takes longer to compute."""

    facts: ModelFacts
    case: Case
    fits: Fit


def _candidates(wish: Wish, ranks: Ranks, *, offloads: bool) -> Iterator[_Candidate]:
    """Yield what fits, or may fit."""
    size = wish.nodes * wish.slots
    half = ranks.device.half if ranks.device is not None else Precision.BF16
    judge = judge_of(wish.version)
    version = judge.version if judge is not None else WORKER_DEEPSPEED
    steps = (wish.samples or max(1, round(_USUAL_SAMPLES / size)) * size) // size
    for facts, stage in product(_programs(wish.facts), _OFFLOADING if offloads else ZeroStage):
        model = model_of(facts)
        for micro in _micro_batches(steps):
            config = _configuration(wish, half, stage, micro, steps // micro, offloads=offloads)
            if loses_gradients(setup_of(config, size, version), steps // micro):
                config["data_types"] = {"grad_accum_dtype": "fp32"}
            framework = wish.framework is not Framework.DEEPSPEED
            case = Case(config, model, micro, steps // micro, size, version, ParallelDegrees(), framework=framework)
            fit = plan_memory(case, ranks.gpus)
            fits = fit.fit if isinstance(fit, MemoryFit) else Fit.UNKNOWN
            if fits is Fit.NO:
                break  # so is each larger micro batch
            yield _Candidate(facts, case, fits)


def _choice(candidate: _Candidate, wish: Wish, arguments: argparse.Namespace, ranks: Ranks) -> Choice:
    case = candidate.case
    world = World(nodes=wish.nodes, slots_per_node=wish.slots, size=case.world, data_parallel=case.world)
    around = circumstances(
        arguments, case.model, world, case.setup, micro=case.micro, ranks=ranks, framework=case.framework
    )
    job = Job(
        index=0,
        name="",
        config=case.config,
        micro=case.micro,
        accumulation=case.accumulation,
        world=world,
        around=around,
        facts=(*case.model.facts, *around.facts),
        version=wish.version,
        gpus=ranks.gpus,
        device=ranks.name,
        peak=ranks.device.flops if ranks.device is not None else None,
    )
    return Choice(candidate.facts, Planned(job))


def _micro_batches(steps: int) -> Iterator[int]:
    """Yield the powers of two that divide a rank's samples of a step."""
    micro = 1
    while micro <= _MOST_MICRO and steps % micro == 0:
        yield micro
        micro *= 2


def _configuration(
    wish: Wish, half: Precision, stage: ZeroStage, micro: int, accumulation: int, *, offloads: bool
) -> dict[str, Any]:
    """Return the configuration in numbers, so that it can be judged; of the Trainer's arguments it repeats them."""
    found: dict[str, Any] = {
        MICRO: micro,
        ACCUMULATION: accumulation,
        "gradient_clipping": 1.0,
        half.value: {"enabled": True},
    }
    match wish.framework:
        case Framework.TRAINER:
            found["optimizer"] = {"type": "AdamW", "params": dict.fromkeys(_TRAINERS, "auto")}
        case Framework.DEEPSPEED:
            rate = _FULL_RATE if wish.facts.lora is None else _ADAPTERS_RATE
            found["optimizer"] = {"type": "AdamW", "params": {"lr": rate}}
        case Framework.ACCELERATE:
            found["zero_allow_untested_optimizer"] = True
    moved = {"offload_optimizer": {"device": "cpu"}} if offloads else {}
    return {**found, ZERO: {"stage": int(stage), **moved}} if stage else found


_TRAINERS: Final = ("lr", "betas", "eps", "weight_decay")
_FULL_RATE: Final = 2e-5
_ADAPTERS_RATE: Final = 2e-4
_OFFLOADING: Final = (ZeroStage.GRADIENTS, ZeroStage.PARAMETERS)


def _programs(facts: ModelFacts) -> Iterator[ModelFacts]:
    """Yield what the program may do: without activation checkpointing, and with it, where nothing is said of it."""
    model = model_of(facts)
    said = facts.model_copy(update=_declared(facts, model))
    checkpointing = facts.activation_checkpointing
    for each in (False, True) if checkpointing is None else (checkpointing,):
        yield said.model_copy(update={"activation_checkpointing": each})


def _declared(facts: ModelFacts, model: Model) -> Mapping[str, Any]:
    """Return what would be assumed of a program, as it is assumed."""
    found: dict[str, Any] = {
        "sequence_length": facts.sequence_length or model.usage.sequence or _USUAL_SEQUENCE,
        "attention": facts.attention or AttentionKernel(model.usage.attention.value),
    }
    if facts.lora is None and facts.trainable is None and facts.trainable_parameters is None:
        found["trainable_parameters"] = model.parameters
    return found
