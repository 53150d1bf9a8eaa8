"""Ranks that make no steps any more, and those that make all others wait: findings while they do, and events."""

from deepspeed_operator.api.finding import Code, advice, warning
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import Finding
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.told_hang import ToldHang, ToldStraggler
from deepspeed_operator.reconcile.report.draft import StatusDraft


def report_hang(observed: Observed, draft: StatusDraft, *, at_the_end: bool = False) -> None:
    """Write that ranks hang, or are slower than the others, as long as rank 0's agent tells it.

    One that does not answer tells nothing new.
    """
    report = observed.agent
    if not at_the_end and (report is None or report.silent):
        return
    told = report if report is not None and not at_the_end else None
    hangs = [_finding(told.hang, observed.job.metadata.name)] if told is not None and told.hang is not None else []
    _write(draft, Code.HANG, Reason.HANG, hangs)
    slow = [_slow(each) for each in told.stragglers] if told is not None else []
    _write(draft, Code.STRAGGLER, Reason.STRAGGLER, slow)


def _write(draft: StatusDraft, code: Code, reason: Reason, found: list[Finding]) -> None:
    draft.findings.replace({code}, *found)
    new = [each for each in found if not draft.findings.knew(each)]
    if new:
        draft.events.append(JobEvent("Warning", reason, " ".join(f"{each}" for each in new)))


def _slow(straggler: ToldStraggler) -> Finding:
    node = f" on node {straggler.node}" if straggler.node else ""
    fix = (
        "Compare clocks, temperature and errors of that node's GPUs with another one's (nvidia-smi -q), and what else "
        "runs there; docs/hangs.md."
    )
    words = f"pod {straggler.pod}{node} makes the others wait: {straggler.words}."
    return advice("spec.nodes", Code.STRAGGLER, words, fix)


def _finding(hang: ToldHang, job: str) -> Finding:
    node = f" on node {hang.node}" if hang.node else ""
    where = f" (pod {hang.pod}{node})" if hang.pod else ""
    fix = (
        f"The stacks of all ranks are in the pods' logs, and `dsjob debug {job} --stacks` asks for them again. Write "
        "spec.lifecycle.hang: Restart to have the ranks start again, or spec.lifecycle.progressDeadlineSeconds where "
        "they work and need longer; docs/hangs.md."
    )
    return warning("spec.lifecycle.hang", Code.HANG, f"the ranks hang: {hang.words}{where}", fix)
