"""The plan beside what the ranks measured: in status, and as an advice and an event where another choice is faster."""

from typing import Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.plan_status import MAX_MESSAGE, PlanStatus
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.units import gib
from deepspeed_operator.plan.advice.forecast import Foreseen
from deepspeed_operator.plan.advice.recalibration import Corrected, as_run
from deepspeed_operator.plan.memory.case import Case, Missing, case_of
from deepspeed_operator.plan.time.measured import Measured
from deepspeed_operator.reconcile.actions import CorrectPlan, JobEvent
from deepspeed_operator.reconcile.admission.configuration import Configuration, run_configuration
from deepspeed_operator.reconcile.admission.plan_forecast import (
    config_path,
    faster_finding,
    foreseeable,
    foreseen_advice,
    foreseen_status,
    is_never_measured,
    short,
)
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.read_as import read_as
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run
from deepspeed_operator.reconcile.runtime.observed_transport import last_words, reported

_ADVICE: Final = frozenset({Code.FASTER_MEASURED, Code.FASTER_PREDICTED})


def report_plan(observed: Observed, gang: Gang, draft: StatusDraft) -> None:
    """Write how an attempt's first steps compare with its plan, once they are known.

    Unanswered is raised while the plan is being corrected by them, or foreseen where nothing measures them.
    """
    path = config_path(observed.job.spec)
    if observed.job.status.plan is not None:
        return
    corrected = _corrected(observed, gang)
    if corrected is not None:
        plan, found = plan_status(corrected), advice(corrected, path)
        if found is not None:
            draft.events.append(JobEvent("Normal", Reason.FASTER_CONFIGURATION, f"{found}"))
    elif (foreseen := _foreseen_by_preflight(observed)) is not None:
        plan, found = foreseen_status(foreseen, _preflight(observed)), foreseen_advice(foreseen, path)
    else:
        return
    if plan is not None:
        draft.plan = plan
        draft.findings.replace(_ADVICE, *filter(None, [found]), last=True)


def _corrected(observed: Observed, gang: Gang) -> Corrected | None:
    """Return the plan by what was measured; None if nothing was."""
    known, measured = observed.facts.corrected, _measured(observed, gang)
    if known is not None and known.attempt == gang.attempt:
        return known.corrected
    if measured is None:
        return None
    case, nodes = _case(observed, measured), observed.run.world.nodes
    return observed.facts.get(CorrectPlan(gang.attempt, case, nodes, measured, _preflight(observed))).corrected


def _foreseen_by_preflight(observed: Observed) -> Foreseen | None:
    """Return what takes the place of a measured plan, once the network is known, where nothing measures the steps."""
    rate = _preflight(observed)
    if not rate or not is_never_measured(observed.job.spec):
        return None
    question = foreseeable(observed, _case(observed, None), observed.run.world, rate)
    return observed.facts.get(question).foreseen if question is not None else None


def _case(observed: Observed, measured: Measured | None) -> Case | Missing:
    """Return what was planned of the run; `measured` says what the framework has chosen, None where nothing does."""
    config, run = run_configuration(observed), observed.run
    if not isinstance(config, Configuration):
        return Missing("spec.dsConfig", "the configuration of the run is not known")
    if is_of_another_run(observed):
        return Missing("spec.runId", "spec is that of another run")
    report = observed.facts.agent
    version = (report.deepspeed_version if report is not None else None) or run.deepspeed_version
    values, batch = as_run(config.values, run.batch, measured) if measured else (config.values, run.batch)
    return case_of(observed.job.spec, values, run.world, batch, version)


def _preflight(observed: Observed) -> int | None:
    """Return the bus bandwidth that was measured before the ranks of this attempt started."""
    transport = reported(observed)
    return transport.bus_bandwidth if transport is not None else None


def plan_status(found: Corrected) -> PlanStatus:
    """Return what status says of it."""
    measured = found.measured
    seconds, network = measured.step_seconds, found.network
    return PlanStatus(
        measured_step_seconds=short(seconds),
        predicted_step_seconds=short(found.predicted) if found.predicted else None,
        network_percent=min(100, round(100 * network / seconds)) if network is not None else None,
        bus_bandwidth=round(found.bus_bandwidth) if found.bus_bandwidth is not None else None,
        mfu_percent=short(100 * found.mfu) if found.mfu is not None else None,
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
    begin = f"Measured: {short(seconds)} s a step{network}"
    return faster_finding(Code.FASTER_MEASURED, begin, seconds, best, memory=memory, path=path)


def _measured(observed: Observed, gang: Gang) -> Measured | None:
    report = observed.agent
    if report is not None and report.measured is not None:
        return report.measured
    return read_as(Measured, last_words(gang).get("measured"))
