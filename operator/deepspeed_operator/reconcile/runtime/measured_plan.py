"""The plan beside what the ranks measured: in status, and as an advice and an event where another choice is faster."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic import ValidationError

from deepspeed_operator.api.plan_status import MAX_MESSAGE, PlanStatus
from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.units import gib
from deepspeed_operator.plan.advice.forecast import Foreseen
from deepspeed_operator.plan.advice.recalibration import Corrected, as_run
from deepspeed_operator.plan.memory.case import Case, Missing, case_of
from deepspeed_operator.plan.time.measured import Measured
from deepspeed_operator.reconcile.actions import CorrectPlan, ForeseePlan, JobEvent, Question, ReadConfigMap
from deepspeed_operator.reconcile.admission.configuration import run_configuration
from deepspeed_operator.reconcile.admission.plan_forecast import (
    FORESEES,
    ask_foreseen,
    config_path,
    faster_finding,
    foreseen_advice,
    foreseen_status,
    is_never_measured,
    short,
)
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.conditions import Verdict
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run
from deepspeed_operator.reconcile.runtime.observed_transport import News, last_words, reported

_SAYS: Final = "Measured: "


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
    if status.world is None or done:
        return ()
    rate = _preflight(observed)
    if measured is None and not (rate and is_never_measured(observed.job.spec)):
        return ()
    config = run_configuration(observed)
    if isinstance(config, ReadConfigMap):
        return (config,)
    if config is None or isinstance(config, Verdict):
        case: Case | Missing = Missing("spec.dsConfig", "the configuration of the run is not known")
    elif is_of_another_run(observed):
        case = Missing("spec.runId", "spec is that of another run")
    else:
        report = observed.facts.agent
        version = (report.deepspeed_version if report is not None else None) or status.deepspeed_version
        values, batch = as_run(config.values, status.batch, measured) if measured else (config.values, status.batch)
        case = case_of(observed.job.spec, values, status.world, batch, version)
    if measured is None:
        question = ask_foreseen(observed, case, status.world, rate)
        return (question,) if isinstance(question, ForeseePlan) else ()
    return (CorrectPlan(gang.attempt, case, status.world.nodes, measured, rate),)


def with_plan(observed: Observed, gang: Gang, told: News) -> News:
    """Add to what is told of an attempt how its first steps compare with its plan, once it is known."""
    if observed.job.status.plan is not None:
        return told
    known, path = observed.facts.corrected, config_path(observed.job.spec)
    if known is not None and known.attempt == gang.attempt:
        plan, found = plan_status(known.corrected), advice(known.corrected, path)
        events = () if found is None else (JobEvent("Normal", "FasterConfiguration", f"{found}"),)
    elif (foreseen := _foreseen_by_preflight(observed)) is not None:
        plan, found, events = foreseen_status(foreseen, _preflight(observed)), foreseen_advice(foreseen, path), ()
    else:
        return told
    if plan is None:
        return told
    findings: Sequence[Finding] = told.changes.get("findings", observed.job.status.findings)
    others = without_advice(findings, _SAYS, FORESEES)
    changes = {**told.changes, "plan": plan, "findings": others if found is None else [*others, found]}
    return News(changes, (*told.events, *events))


def _foreseen_by_preflight(observed: Observed) -> Foreseen | None:
    """Return what takes the place of a measured plan, once the network is known, where nothing measures the steps."""
    known, rate = observed.facts.foreseen, _preflight(observed)
    if not rate or not is_never_measured(observed.job.spec) or known is None or known.asked.preflight != rate:
        return None
    return known.foreseen


def _preflight(observed: Observed) -> int | None:
    """Return the bus bandwidth that was measured before the ranks of this attempt started."""
    transport = reported(observed)
    return transport.bus_bandwidth if transport is not None else None


def without_advice(findings: Iterable[Finding], *says: str) -> list[Finding]:
    """Return the findings but for what an attempt has measured, or for those that begin so."""
    return [each for each in findings if not each.message.startswith(says or (_SAYS,))]


def plan_status(found: Corrected) -> PlanStatus:
    """Return what status says of it."""
    measured = found.measured
    seconds, network = measured.step_seconds, found.network
    return PlanStatus(
        measured_step_seconds=short(seconds),
        predicted_step_seconds=short(found.predicted) if found.predicted else None,
        network_percent=min(100, round(100 * network / seconds)) if network is not None else None,
        bus_bandwidth=round(found.bus_bandwidth) if found.bus_bandwidth is not None else None,
        measured_peak_memory=measured.peak_memory,
        predicted_peak_memory=found.peak,
        message="; ".join(found.remarks)[:MAX_MESSAGE] or None,
    )


def advice(found: Corrected, path: str) -> Finding | None:
    """Return the change that is worth another run, if there is one."""
    best, measured = found.best, found.measured
    if best is None:
        return None
    network = f", of which its traffic takes {plan_status(found).network_percent} %" if found.network else ""
    if found.needed is not None and measured.device_memory is not None:
        memory = f"in {gib(found.needed)} of the GPU's {gib(measured.device_memory)}"
    else:
        memory = "its memory was not predicted"
    seconds = measured.step_seconds
    return faster_finding(f"{_SAYS}{short(seconds)} s a step{network}", seconds, best, memory, path)


def _measured(observed: Observed, gang: Gang) -> Measured | None:
    report = observed.facts.agent
    if report is not None and report.attempt == gang.attempt and report.measured is not None:
        return report.measured
    return measured_of(last_words(gang).get("measured"))
