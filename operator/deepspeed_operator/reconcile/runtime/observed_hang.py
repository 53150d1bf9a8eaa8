"""Ranks that make no steps any more, and go on to hang: a finding while they do, and an event."""

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Finding
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.told_hang import ToldHang
from deepspeed_operator.reconcile.report.draft import StatusDraft


def report_hang(observed: Observed, draft: StatusDraft, *, at_the_end: bool = False) -> None:
    """Write that the ranks hang, as long as rank 0's agent tells it; one that does not answer tells nothing new."""
    report = observed.agent
    if not at_the_end and (report is None or report.silent):
        return
    hang = report.hang if report is not None and not at_the_end else None
    found = [_finding(hang, observed.job.metadata.name)] if hang is not None else []
    draft.findings.replace({Code.HANG}, *found)
    if not all(map(draft.findings.knew, found)):
        draft.events.append(JobEvent("Warning", Reason.HANG, " ".join(f"{each}" for each in found)))


def _finding(hang: ToldHang, job: str) -> Finding:
    node = f" on node {hang.node}" if hang.node else ""
    where = f" (pod {hang.pod}{node})" if hang.pod else ""
    fix = (
        f"The stacks of all ranks are in the pods' logs, and `dsjob debug {job} --stacks` asks for them again. Write "
        "spec.lifecycle.hang: Restart to have the ranks start again, or spec.lifecycle.progressDeadlineSeconds where "
        "they work and need longer; docs/hangs.md."
    )
    return warning("spec.lifecycle.hang", Code.HANG, f"the ranks hang: {hang.words}{where}", fix)
