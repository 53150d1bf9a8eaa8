"""What became of runs that were told to end or that hung, and what progress says beside the script's own clock."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import mean, median
from typing import Any, Final

from bench.gpu.cases import Case, named
from bench.gpu.expectations import VERSION, WORLD
from bench.gpu.trainer import GPU
from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.api.progress import Progress
from deepspeed_operator.api.spec import DeepSpeedJobSpec, Training
from deepspeed_operator.api.status import World
from deepspeed_operator.plan.advice.recalibration import as_run, correct_plan
from deepspeed_operator.plan.memory.case import case_of
from deepspeed_operator.plan.time.measured import Measured
from deepspeed_operator.reconcile.observe.told_progress import ToldProgress
from deepspeed_operator.reconcile.runtime.measured_plan import plan_status
from deepspeed_operator.reconcile.runtime.observed_progress import as_status, mfu_percent

Record = Mapping[str, Any]
TOLD: Final = ("stage", "grace s", "SIGTERM → saving", "→ saved", "→ ended", "checkpoint GB", "what the agents say")
HUNG: Final = ("case", "stage", "limit s", "reported after s", "what is said", "stacks of", "steps again after s")
PROGRESS: Final = ("stage", "who says it", "step s", "tokens/s", "MFU")
# What of the default grace the agent leaves the ranks.
_GRACE: Final = 25


def told(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each run that was told to end; seconds since then."""
    for record in (each for each in records if "savedAtEnd" in each):
        seconds = ("–" if record[name] is None else f"{record[name]:.1f}" for name in ("saving", "saved", "ended"))
        size: int = (record["checkpoint"] or {"sizeBytes": 0})["sizeBytes"] or 0
        stage = str(named(record["case"]).stage)
        yield (stage, str(_GRACE), *seconds, f"{size / 1e9:.1f}", f"`{record['savedAtEnd']}`")


def hung(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each run that hung; seconds since rank 1 did something else than another step."""
    for record in (each for each in records if "reported" in each):
        case = named(record["case"])
        stacks = [str(each["rank"]) for each in record["evidence"] if each["frames"]]
        yield (
            _words(case),
            str(case.stage),
            "learned" if case.deadline is None else str(case.deadline),
            f"{record['reported']:.1f}",
            f"`{record['words']}`",
            " ".join(sorted(set(stacks))) or "none",
            f"{record['stepping']:.1f}" if record.get("stepping") is not None else "–",
        )


def _words(case: Case) -> str:
    place = "an all-reduce of the script's" if case.meets else "its next step"
    return f"rank 1 {case.how}, rank 0 in {place}"


def progress(records: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield two rows for each run that was timed: what status would say, and what the script's own clock does.

    The script's FLOPs are those that PyTorch counts, the GPU's those of its data sheet.
    """
    for record in (each for each in records if each.get("progress")):
        case, said = named(record["case"]), _status(record)
        configuration, seconds = case.configuration(), record["timed"]["step_seconds"]
        tokens = WORLD * configuration.micro * configuration.sequence
        flops = record["timed"]["flops"]
        half = said.step_seconds.median if said.step_seconds is not None else 0.0
        own = (median(seconds), tokens / mean(seconds), 100 * flops / GPU.flops / median(seconds))
        yield (
            str(case.stage),
            "progress",
            f"{half:.3f}",
            f"{said.tokens_per_second or 0:.0f}",
            _share(said.mfu_percent),
        )
        yield (str(case.stage), "the script", f"{own[0]:.3f}", f"{own[1]:.0f}", _share(own[2]))


def _share(percent: float | None) -> str:
    return "–" if percent is None else f"{percent:.1f} %"


def _status(record: Record) -> Progress:
    """What the operator writes, by what rank 0's agent told it."""
    written = named(record["case"]).configuration().record()
    facts = {"fromConfig": written["model_config"], "sequenceLength": written["sequence"], "attention": "SDPA"}
    training = Training(module="bench.gpu.inside.survived")
    model = ModelFacts.model_validate({**facts, "activationCheckpointing": False})
    spec = DeepSpeedJobSpec(nodes=WORLD, slots_per_node=1, training=training, model=model)
    found = as_status(ToldProgress.model_validate(record["progress"]), datetime(2026, 1, 1, tzinfo=UTC), spec)
    if record["measured"] is None:
        return found
    measured = Measured.model_validate(record["measured"])
    values, batch = as_run(written["ds_config"], None, measured)
    world = World(nodes=WORLD, slots_per_node=1, size=WORLD, data_parallel=WORLD)
    plan = plan_status(correct_plan(case_of(spec, values, world, batch, VERSION), WORLD, measured))
    return found.model_copy(update={"mfu_percent": mfu_percent(found, plan)})
