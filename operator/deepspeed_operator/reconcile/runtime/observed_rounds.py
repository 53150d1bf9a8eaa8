"""What the agents tell of restarts in place: counted in status, and announced once each time that is learned."""

from deepspeed_operator.api.reason_catalogue import CATALOGUE
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.job.failure_rules import points_at_node
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.gang import Gang, last_messages
from deepspeed_operator.reconcile.observe.messages import end_of
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.rounds import LastRestart, Rounds
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.verdict import sentence
from deepspeed_operator.reconcile.runtime.observed_wall_time import latest_wall_time


def latest_rounds(observed: Observed, gang: Gang) -> Rounds | None:
    """Return the latest that an agent tells of the attempt's rounds; None if none does."""
    report = observed.agent
    told = [message.rounds for message in last_messages(gang)]
    told += [report.rounds] if report is not None else []
    known = [each for each in told if each is not None]
    # The termination message of rank 0's pod, which is the first, has no words: who has them tells more.
    return max(known, key=lambda each: (each.number, each.last is not None and bool(each.last.signature)), default=None)


def report_rounds(observed: Observed, gang: Gang, draft: StatusDraft) -> None:
    """Count restarts in place, and announce them if there are more than status knew; note where the time went."""
    draft.wall_time = latest_wall_time(observed, gang)
    rounds = latest_rounds(observed, gang)
    if rounds is None or not draft.count_rounds(rounds, observed.now) or draft.attempt is None:
        return
    if rounds.last is not None and points_at_node(rounds.last.reason):
        node = next((pod.node for pod in gang.pods.values() if pod.name == rounds.last.pod), None)
        if node is not None:
            draft.blame(node, observed.now)
    restarts = draft.attempt.restarts
    assert restarts is not None, "they were counted just now"
    number = draft.attempt.round
    why = _words(rounds.last) if rounds.last is not None else "the agents do not say why"
    reason = rounds.last.reason if rounds.last is not None else Reason.RANK_FAILED
    words = (
        f"The ranks started again in their pods, round {number} of attempt {gang.attempt}: {sentence(why)} Restarts in "
        f"these pods: {restarts.user} after failures of the program, {restarts.infrastructure} of the infrastructure, "
        f"{restarts.uncounted} that do not count. Nothing is to be done unless it comes again."
    )
    draft.events.append(JobEvent("Warning", reason if reason in CATALOGUE else Reason.RANK_FAILED, words))


def _words(last: LastRestart) -> str:
    who = f"rank {last.rank} in pod {last.pod}" if last.rank is not None else f"pod {last.pod}"
    where = f" on node {last.node}" if last.node else ""
    said = f": {last.signature}" if last.signature else ""
    return f"{who}{where} {end_of(last.reason, last.exit_code, last.signal)}{said}"
