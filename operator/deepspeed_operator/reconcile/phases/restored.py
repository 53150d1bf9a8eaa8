"""A run that has ended does not begin again where its job was restored without its status.

An annotation of the job says which run has ended: it is written once the status says so, and again where it is missing.
"""

from dataclasses import replace

from deepspeed_operator.api.ended_run import EndedRun
from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN, SHORT_NAME
from deepspeed_operator.api.reason_catalogue import CATALOGUE
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.actions import MarkEndedRun, Outcome
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.outcome import report
from deepspeed_operator.reconcile.report.verdict import Verdict


def restored_run(observed: Observed) -> EndedRun | None:
    """Return the run that spec asks for, if it ended before the job, which has no run in its status, was restored."""
    job, ended = observed.job, observed.job.ended_run
    found = job.status.run is None and ended is not None and ended.is_of(job.metadata.name, job.spec.run_id)
    return ended if found else None


def keep_restored(observed: Observed, ended: EndedRun) -> Outcome:
    """Say what came of the run, as far as its annotation tells, and create nothing."""
    state = State.COMPLETE if ended.outcome == "Complete" else State.FAILED
    name, mark = observed.job.metadata.name, f"{ANNOTATION_ENDED_RUN}-"
    why = f" ({ended.reason})" if ended.reason in CATALOGUE else ""
    words = (
        f"The job was restored without its status, and its annotation {ANNOTATION_ENDED_RUN} says that run "
        f"{ended.run_id!r} was {ended.outcome} at {ended.time}{why}: it does not run a second time. Set a new "
        f"spec.runId to run it again, or remove the annotation: kubectl annotate {SHORT_NAME} {name} {mark}"
    )
    draft = StatusDraft.of(observed.job.status)
    draft.findings.replace_all(())  # they would be of a run that was refused, for which spec asks no more
    acceptance = Verdict(state, Reason.RESTORED, "The run was accepted before the job was restored.")
    return report(observed, draft, verdict=Verdict(state, Reason.RESTORED, words), acceptance=acceptance)


def with_end_marked(observed: Observed, outcome: Outcome) -> Outcome:
    """Return the outcome with what lets the job's annotation say what its status says.

    The end of a run is written last: GPUs of pods that still run are freed before.
    """
    name, run, known = observed.job.metadata.name, observed.run, observed.job.ended_run
    if run.completion_time is None:
        # Its id is that of an earlier run, which has ended; restored, this one must begin again. It goes first: pods
        # may be refused for as long as a quota is used up.
        stale = known is not None and known.is_of(name, run.id)
        return replace(outcome, actions=(MarkEndedRun(None), *outcome.actions)) if stale else outcome
    failure = observed.job.status.failure
    ended = EndedRun(
        job=name,
        run_id=run.id,
        outcome="Complete" if failure is None else "Failed",
        time=run.completion_time,
        reason=failure.reason if failure is not None else None,
    )
    return outcome if known == ended else replace(outcome, actions=(*outcome.actions, MarkEndedRun(ended.text)))
