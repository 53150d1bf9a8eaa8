"""What a job is foreseen to be like: an advice as it is accepted, and a plan where nothing measures its steps."""

import json
from dataclasses import replace
from typing import Final

from deepspeed_operator.api.finding import Code, advice
from deepspeed_operator.api.plan_status import MAX_MESSAGE, PlanStatus
from deepspeed_operator.api.spec import DeepSpeedJobSpec, Launcher
from deepspeed_operator.api.status import MAX_FINDINGS, Finding, World
from deepspeed_operator.job.accelerators import default_resource
from deepspeed_operator.job.image import declared_version
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.units import gib
from deepspeed_operator.plan.advice.alternatives import Alternative
from deepspeed_operator.plan.advice.forecast import Foreseen, can_foresee
from deepspeed_operator.plan.memory.case import Case, Missing, case_of
from deepspeed_operator.reconcile.actions import ForeseePlan
from deepspeed_operator.reconcile.admission.gpu_lookup import known_gpus
from deepspeed_operator.reconcile.admission.judge import Judgement
from deepspeed_operator.reconcile.observe.observed import Observed

_DIGITS: Final = 3


def plan_question(observed: Observed, judged: Judgement, installation: Installation) -> ForeseePlan | None:
    """Return what is to be foreseen before an accepted job is told how it could be faster; None if nothing can be."""
    spec, source = observed.job.spec, judged.configuration
    if spec.model is None or source is None or len(judged.findings) >= MAX_FINDINGS:
        return None
    case = case_of(spec, source.values, judged.world, judged.batch, declared_version(spec, installation))
    return foreseeable(observed, case, judged.world)


def with_foresight(judged: Judgement, found: Foreseen, spec: DeepSpeedJobSpec) -> Judgement:
    """Add at most one advice to what an accepted job is told."""
    advice = foreseen_advice(found, config_path(spec))
    return replace(judged, findings=(*judged.findings, advice)) if advice is not None else judged


def foreseeable(
    observed: Observed, case: Case | Missing, world: World, preflight: int | None = None
) -> ForeseePlan | None:
    """Return the question what a job will be like; None where GPU, model or network are not known.

    `preflight`: bytes a second of bus bandwidth among its ranks, None if that was not measured.
    """
    gpus, nodes = known_gpus(observed, default_resource(world)), world.nodes
    device = gpus.device if gpus is not None else None
    if device is None or isinstance(case, Missing) or not can_foresee(case, nodes, preflight):
        return None
    return ForeseePlan(case, nodes, device, preflight)


def is_never_measured(spec: DeepSpeedJobSpec) -> bool:
    """Whether another launcher starts the ranks: then no hook of the agent's is in them."""
    return spec.model is not None and spec.training.launcher is not Launcher.RANKS


def foreseen_status(found: Foreseen, preflight: int | None) -> PlanStatus | None:
    """Return what status says of a plan that nothing will be measured of."""
    if found.time is None:
        return None
    words = f"nothing measures the steps of this launcher: predicted by the data sheet of {found.device.name}"
    if preflight is not None:
        words += " and the preflight's bus bandwidth"
    if found.time.caveat:
        words += f"; {found.time.caveat}"
    return PlanStatus(
        predicted_step_seconds=short(found.time.seconds),
        network_percent=round(100 * found.time.share),
        bus_bandwidth=preflight,
        message=words[:MAX_MESSAGE],
    )


def foreseen_advice(found: Foreseen, path: str) -> Finding | None:
    """Return the change that is foreseen to be much faster, if there is one."""
    if found.best is None or found.time is None:
        return None
    seconds = found.time.seconds
    bound = {"≥": "at least ", "≤": "at most ", "≈": "about "}.get(found.time.sign, "")
    network = f", of which its traffic takes {round(100 * found.time.share)} %" if found.time.communication else ""
    begin = f"Predicted: {bound}{short(seconds)} s a step by the data sheet of {found.device.name}{network}"
    memory = f"in {gib(found.best.plan.memory.needed)} of the GPU's {gib(found.device.memory)}"
    return faster_finding(Code.FASTER_PREDICTED, begin, seconds, found.best, memory=memory, path=path)


def faster_finding(
    code: Code, begin: str, seconds: float, best: Alternative, *, memory: str, path: str
) -> Finding | None:
    """Return the advice to take an alternative to steps of so many seconds; `begin` and `memory` are said of both."""
    if best.gain is None:
        return None
    written = ", ".join(f"{key}: {json.dumps(value)}" for key, value in best.change.values.items())
    caveat = f" ({best.change.caveat})" if best.change.caveat else ""
    message = (
        f"{begin}. {written}{caveat} is predicted to be {best.gain:.1f} times as fast at the same global batch: "
        f"{short(seconds / best.gain)} s a step; {memory}."
    )
    fix = f"Write {written}, and run again with another spec.runId."
    return advice(path, code, message, fix)


def config_path(spec: DeepSpeedJobSpec) -> str:
    return "spec.dsConfig" if spec.ds_config is not None else "spec.dsConfigFrom"


def short(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
