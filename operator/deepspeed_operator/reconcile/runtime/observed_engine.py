"""What the hook in the ranks tells of world, engine and loads: in status, findings and an event where they differ."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from deepspeed_operator.api.engine_report import Engine
from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Batch, Finding, World
from deepspeed_operator.api.untyped import list_at, object_at
from deepspeed_operator.lint.engine_differences import engine_findings
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.admission.configuration import Configuration, run_configuration
from deepspeed_operator.reconcile.admission.plan_forecast import config_path
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed, WorldReport
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.runtime.observed_transport import last_words

_LAUNCHER: Final = "spec.training.launcher"
# What an attempt's ranks tell.
WORLD: Final = frozenset({Code.WORLD_MISMATCH, Code.WORLD_UNSEEN, Code.RESUME_MISMATCH})
ENGINE: Final = frozenset({Code.ENGINE_DIFFERS, Code.SECTION_REPLACED})
_UNSEEN: Final = "world not asserted: "
_MOST_ENGINES: Final = 4


def world_of_agent(said: Any) -> WorldReport:
    """Return what rank 0's agent tells of the ranks' world and engines, as far as it could be meant so."""
    told, engines = object_at(said), list[Engine]()
    for each in list_at(told, "engines")[:_MOST_ENGINES]:
        try:
            engines.append(Engine.model_validate(each))
        except ValidationError:
            continue
    note, starts = (each if isinstance(each, str) else None for each in (told.get("note"), told.get("starts")))
    return WorldReport(note, tuple(engines), starts)


def report_engine(observed: Observed, gang: Gang, draft: StatusDraft) -> None:
    """Write which world an attempt's ranks formed, and which engine trains.

    Unanswered is raised to read the run's configuration, against which an engine that is news is held.
    """
    report = _report(observed, gang)
    if report is None:
        return
    world = [world_finding(report.note)] if report.note is not None else []
    starts = [starts_finding(report.starts)] if report.starts is not None else []
    draft.findings.replace(WORLD, *world, *starts)
    for each in world:
        if not (draft.findings.knew(each) or each.code == Code.WORLD_UNSEEN):
            draft.events.append(JobEvent("Warning", Reason.WORLD_MISMATCH, f"{each}"))
    for each in starts:
        if not draft.findings.had(Code.RESUME_MISMATCH):  # more ranks may have told of theirs since
            draft.events.append(JobEvent("Warning", Reason.RESUME_MISMATCH, f"{each}"))
    if _is_news(observed, gang):
        found = _of_run(observed, report)
        draft.findings.replace(ENGINE, *found)
        draft.engine = training_engine(report.engines)
        if not all(map(draft.findings.knew, found)):
            draft.events.append(JobEvent("Warning", Reason.ENGINE_DIFFERS, " ".join(f"{each}" for each in found)))


def world_finding(note: str) -> Finding:
    """Return the warning about a world that is another one, or that nobody saw."""
    if note.startswith(_UNSEEN):
        return warning(_LAUNCHER, Code.WORLD_UNSEEN, note, "Compare the world in the job's log with status.run.world.")
    fix = (
        "Start the ranks with NNODES, NODE_RANK, NPROC_PER_NODE, MASTER_ADDR and MASTER_PORT, or by launcher Ranks; "
        "a run that ends so has failed with reason WorldMismatch."
    )
    return warning(_LAUNCHER, Code.WORLD_MISMATCH, note, fix)


def starts_finding(words: str) -> Finding:
    """Return the warning about ranks that did not begin from one checkpoint."""
    fix = (
        "Let all ranks load one tag from one directory on a volume that all pods share, such as $(RESUME_FROM); where "
        "the program gives ranks their parameters in another way, nothing is wrong."
    )
    return warning("spec.training", Code.RESUME_MISMATCH, words, fix)


def training_engine(engines: Sequence[Engine]) -> Engine | None:
    """Return the first one with an optimizer: those without, such as a reference model's, train nothing."""
    return next((each for each in engines if each.optimizer is not None), next(iter(engines), None))


def differences(
    report: WorldReport, config: Mapping[str, Any] | None, batch: Batch | None, world: World, path: str
) -> list[Finding]:
    """Return what no engine that trains does as it was accepted; `path` is where the job has its configuration."""
    training = [each for each in report.engines if each.optimizer is not None]
    judged = [engine_findings(each, config, batch, world, path) for each in training]
    return judged[0] if judged and all(judged) else []


def _of_run(observed: Observed, report: WorldReport) -> list[Finding]:
    run, config = observed.run, run_configuration(observed)
    values = config.values if isinstance(config, Configuration) else None
    return differences(report, values, run.batch, run.world, config_path(observed.job.spec))


def _is_news(observed: Observed, gang: Gang) -> bool:
    report = _report(observed, gang)
    return report is not None and training_engine(report.engines) not in (None, observed.job.status.engine)


def _report(observed: Observed, gang: Gang) -> WorldReport | None:
    words = last_words(gang)
    if words:  # what they do not repeat was so for a while, such as a preparation's world
        return world_of_agent(words.get("world"))
    return observed.agent.world if observed.agent is not None else None
