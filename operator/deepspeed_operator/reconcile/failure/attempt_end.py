"""How an attempt has ended: classified once, over all of its pods."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import FailedRanks, Failure
from deepspeed_operator.job.failure_rules import FailureCause
from deepspeed_operator.reconcile.failure.first_failure import failed_since, first_failure, gone_pods, of_a_stuck_pod
from deepspeed_operator.reconcile.observe.gang import Gang, last_messages
from deepspeed_operator.reconcile.observe.messages import AgentMessage, agent_message, how
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView

# After the first pod fails its peers end within 5 s and may turn out to have failed first.
SETTLE: Final = timedelta(seconds=12)
_ENDED_BY_SUSPENSION: Final = frozenset({Reason.TERMINATED, Reason.PEER_LOST})


@dataclass(frozen=True, slots=True)
class Succeeded:
    """Every rank that counts ended with 0, the last one at `at` by the clock of its node; None if no node says so."""

    at: datetime | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt has failed by this cause, the first of all.

    `signature`: the words of the rank that failed first, as far as its agent tells them. `held_up_by`: as in
    FailureCause.
    """

    failure: Failure
    signature: str = ""
    held_up_by: str | None = None

    @property
    def cause(self) -> FailureCause:
        """What rules look at."""
        failed = self.failure
        return FailureCause(failed.reason, failed.exit_code, failed.signal, self.signature, self.held_up_by)


AttemptEnd = Succeeded | Failed


def attempt_end(observed: Observed, gang: Gang) -> AttemptEnd | None:
    """Return how the attempt has ended; None while it goes on, or is about to end and `settles_at` is to come."""
    if gang.all_succeeded:
        return _succeeded(gang)
    known_at = settles_at(gang)
    if known_at is not None:
        if not gang.all_finished and observed.now < known_at:
            return None
        # What a pod comes to after its gang's success, such as a node's end, is no failure.
        return _succeeded(gang) if gang.completed else _failed(gang, first_failure(gang))
    report = observed.agent
    if report is not None and report.stuck is not None and 0 in gang.pods:
        return Failed(of_a_stuck_pod(gang, report.stuck), report.stuck.signature)
    return None


def end_by_loss(gang: Gang) -> Failed:
    """Return the end of an attempt of which a pod that ran is gone."""
    return _failed(gang, gone_pods(gang))


def settles_at(gang: Gang) -> datetime | None:
    """Return when it is known how the attempt has ended of which a pod has; None if none has failed, or completed it.

    With success the others end by themselves until then, and their logs stay.
    """
    if gang.completed:
        return min(pod.since for pod in gang.completed) + SETTLE
    return failed_since(gang) + SETTLE if gang.failed else None


def end_before_suspension(gang: Gang) -> AttemptEnd | None:
    """Return the end that an attempt had when it was told to end; None if it had none, and its pods end by that."""
    if gang.all_succeeded or gang.completed:
        return _succeeded(gang)
    own = {index: pod for index, pod in gang.pods.items() if not _ended_by_suspension(pod)}
    before = replace(gang, pods=own, lost={})
    return _failed(gang, first_failure(before)) if before.failed else None


def _failed(gang: Gang, failure: Failure) -> Failed:
    """Add the words of the rank that failed, which are in the messages of all pods that tell of it."""
    said = [each for each in last_messages(gang) if (each.reason, each.rank) == (failure.reason, failure.rank)]
    failure = failure.model_copy(update={"ranks": _failed_ranks(gang, said)})
    return Failed(failure, max((each.signature for each in said), key=len, default=""))  # one may have been cut


def _failed_ranks(gang: Gang, said: Sequence[AgentMessage]) -> FailedRanks | None:
    """Return how all ranks ended, in the words of the agent that knows."""
    told = next((each.ranks for each in said if each.ranks is not None), None)
    if told is None:
        return None
    words: list[str] = []
    for rank, index, exit_code, signal, after in told.first:
        who = "the program" if rank is None else f"rank {rank}"
        later = f", {after:.1f} s later" if words else ""
        words.append(f"{who} in pod {gang.name_of(index)} {how(exit_code, signal)}{later}")
    return FailedRanks(failed=told.failed, stopped=told.stopped, exited=told.left, first=words)


def _succeeded(gang: Gang) -> Succeeded:
    succeeded = gang.completed or tuple(gang.pods.values())
    ended = [pod.termination.finished_at for pod in succeeded if pod.termination is not None]
    return Succeeded(max((at for at in ended if at is not None), default=None))


def _ended_by_suspension(pod: PodView) -> bool:
    """Whether the pod's failure is the work of our own deletion, of it or of a peer."""
    message = agent_message(pod.termination.message) if pod.termination is not None else None
    return pod.deleted_at is not None or (message is not None and message.reason in _ENDED_BY_SUSPENSION)
