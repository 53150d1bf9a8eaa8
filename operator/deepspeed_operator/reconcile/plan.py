"""The plan beside what the ranks measured: in status, and as an advice and an event where another choice is faster."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from deepspeed_operator.api.plan import MAX_MESSAGE, PlanStatus
from deepspeed_operator.api.status import Finding, Level
from deepspeed_operator.plan.jobs import Missing, case_of
from deepspeed_operator.plan.measured import Measured
from deepspeed_operator.plan.recalibration import Corrected, as_run
from deepspeed_operator.plan.units import gib
from deepspeed_operator.reconcile.actions import CorrectPlan, JobEvent, Question, ReadConfigMap
from deepspeed_operator.reconcile.conditions import Verdict
from deepspeed_operator.reconcile.configuration import run_configuration
from deepspeed_operator.reconcile.gang import Gang
from deepspeed_operator.reconcile.observed import Observed
from deepspeed_operator.reconcile.transport import News, last_words

_SAYS: Final = "Measured: "
_DIGITS: Final = 3


def measured_of(said: Any) -> Measured | None:
    """Return what an agent says of its ranks' first steps; None if it says nothing that could be meant so."""
    try:
        return Measured.model_validate(said)
    except ValidationError:
        return None


def ask_plan(observed: Observed, gang: Gang) -> tuple[Question, ...]:
    """Return what is to be answered before the attempt's first steps can be told beside its plan, once."""
    status, known, measured = observed.job.status, observed.facts.corrected, _measured(observed, gang)
    done = status.plan is not None or (known is not None and known.attempt == gang.attempt)
    if measured is None or status.world is None or done:
        return ()
    config = run_configuration(observed)
    if isinstance(config, ReadConfigMap):
        return (config,)
    if config is None or isinstance(config, Verdict):
        case = Missing("spec.dsConfig", "the configuration of the run is not known")
    else:
        report = observed.facts.agent
        version = (report.deepspeed_version if report is not None else None) or status.deepspeed_version
        values, batch = as_run(config.values, status.batch, measured)
        case = case_of(observed.job.spec, values, status.world, batch, version)
    return (CorrectPlan(gang.attempt, case, status.world.nodes, measured),)


def with_plan(observed: Observed, gang: Gang, told: News) -> News:
    """Add to what is told of an attempt how its first steps compare with its plan, once it is known."""
    known = observed.facts.corrected
    if observed.job.status.plan is not None or known is None or known.attempt != gang.attempt:
        return told
    path = "spec.dsConfig" if observed.job.spec.ds_config is not None else "spec.dsConfigFrom"
    found = advice(known.corrected, path)
    changes: dict[str, Any] = {**told.changes, "plan": plan_status(known.corrected)}
    if found is None:
        return replace(told, changes=changes)
    findings: Sequence[Finding] = changes.get("findings", observed.job.status.findings)
    changes["findings"] = [*without_advice(findings), found]
    return News(changes, (*told.events, JobEvent("Normal", "FasterConfiguration", f"{found}")))


def without_advice(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings but for what an attempt has measured."""
    return [each for each in findings if not each.message.startswith(_SAYS)]


def plan_status(found: Corrected) -> PlanStatus:
    """Return what status says of it."""
    measured = found.measured
    seconds, network = measured.step_seconds, found.network
    return PlanStatus(
        measured_step_seconds=_short(seconds),
        predicted_step_seconds=_short(found.predicted) if found.predicted else None,
        network_percent=min(100, round(100 * network / seconds)) if network is not None else None,
        bus_bandwidth=round(measured.all_reduce.bus_bandwidth) if measured.all_reduce is not None else None,
        measured_peak_memory=measured.peak_memory,
        predicted_peak_memory=found.peak,
        message="; ".join(found.remarks)[:MAX_MESSAGE] or None,
    )


def advice(found: Corrected, path: str) -> Finding | None:
    """Return the change that is worth another run, if there is one."""
    best, measured = found.best, found.measured
    if best is None or best.gain is None:
        return None
    written = ", ".join(f"{key}: {json.dumps(value)}" for key, value in best.change.values.items())
    step, then = _short(measured.step_seconds), _short(measured.step_seconds / best.gain)
    network = f", of which its traffic takes {plan_status(found).network_percent} %" if found.network else ""
    if found.needed is not None and measured.device_memory is not None:
        memory = f"in {gib(found.needed)} of the GPU's {gib(measured.device_memory)}"
    else:
        memory = "its memory was not predicted"
    caveat = f" ({best.change.caveat})" if best.change.caveat else ""
    message = (
        f"{_SAYS}{step} s a step{network}. {written}{caveat} is predicted to be {best.gain:.1f} times as fast at the "
        f"same global batch: {then} s a step; {memory}."
    )
    fix = f"Write {written}, and run again with another spec.runId."
    return Finding(level=Level.ADVICE, path=path, message=message, fix=fix)


def _measured(observed: Observed, gang: Gang) -> Measured | None:
    report = observed.facts.agent
    if report is not None and report.attempt == gang.attempt and report.measured is not None:
        return report.measured
    return measured_of(last_words(gang).get("measured"))


def _short(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
