"""Which pods a running attempt has lost, and whether it goes on with others in their places.

Rank 0's agent decides the same by its own rules. Where it does not, the agents of the other pods end, and with them
the attempt.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.attempt_status import MAX_REPLACEMENTS, Phase
from deepspeed_operator.api.failure_policy import RuleAction
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.restarts import Restarts
from deepspeed_operator.api.status import Failure
from deepspeed_operator.job.failure_rules import rule_for
from deepspeed_operator.reconcile.actions import ConfirmMissing
from deepspeed_operator.reconcile.failure.attempt_end import Failed, settles_at
from deepspeed_operator.reconcile.failure.first_failure import ended_by, loss_of
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.latest_checkpoint import has_saved
from deepspeed_operator.reconcile.observe.messages import AgentMessage, agent_message
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.phases.lost_nodes import Losses
from deepspeed_operator.render.policy_document import replacement_seconds

# With these a pod is lost, by its node, its devices or whoever ended it. After all others a new attempt finds the same
# pod as good, or the program is at fault.
_OF_ONE_POD: Final = frozenset[str](
    {
        *(Reason.TERMINATED, Reason.PEER_LOST, Reason.AGENT_ERROR, Reason.CONTAINER_KILLED, Reason.POD_FAILED),
        *(Reason.EVICTED, Reason.PREEMPTED, Reason.DRAINED, Reason.NODE_LOST, Reason.POD_DELETED),
        *(Reason.DEVICE_FAULT, Reason.HOST_OUT_OF_MEMORY, Reason.SHARED_MEMORY),
    }
)


@dataclass(frozen=True, slots=True)
class LostMember:
    """A pod that is lost, and why. `fenced`: it is known to have ended, so that no rank of it can write any more."""

    index: int
    node: str | None
    end: Failed
    fenced: bool

    @property
    def failure(self) -> Failure:
        return self.end.failure


def lost_members(observed: Observed, gang: Gang) -> tuple[LostMember, ...]:
    """Return the pods in whose places others are to be made; none where no pod is lost, or the attempt ends by it.

    Unanswered is raised to look for pods that nobody saw go.
    """
    phase, job = observed.attempt.phase, observed.job
    if phase not in {Phase.RUNNING, Phase.REPLACING} or job.spec.suspend or observed.asks_for_another_run:
        return ()
    if not replacement_seconds(job):
        return ()
    lost = tuple(_lost(observed, gang))
    return lost if lost and _goes_on(observed, gang, lost) else ()


def _lost(observed: Observed, gang: Gang) -> Iterator[LostMember]:
    replaces = observed.attempt.phase is Phase.REPLACING
    gone = [index for index in gang.missing if index in gang.lost or not (replaces and index in gang.replacements)]
    if gone:
        observed.facts.want(ConfirmMissing(tuple(map(gang.name_of, gone))))
    losses = Losses(observed)
    for index in gone:
        seen = gang.lost.get(index)
        yield _member(gang, index, seen, fenced=seen is not None and seen.termination is not None)
    for index, pod in sorted(gang.pods.items()):
        given_up_at = losses.given_up_at(pod)
        if pod.failed:
            yield _member(gang, index, pod, fenced=True)
        elif given_up_at is not None and given_up_at <= observed.now:
            yield LostMember(index, pod.node, Failed(ended_by(pod)), fenced=False)


def _member(gang: Gang, index: int, pod: PodView | None, *, fenced: bool) -> LostMember:
    said = _message(pod)
    signature = said.signature if said is not None else ""
    return LostMember(index, pod.node if pod is not None else None, Failed(loss_of(gang, index), signature), fenced)


def _goes_on(observed: Observed, gang: Gang, lost: tuple[LostMember, ...]) -> bool:
    """Whether the rest of the gang is well, and worth its wait: at least half of it."""
    indices = {each.index for each in lost}
    others = {index: pod for index, pod in gang.pods.items() if index not in indices}
    absent = indices | {index for index, pod in others.items() if pod.deleted_at is not None}
    if observed.attempt.phase is Phase.REPLACING:
        absent |= {index for index in gang.replacements if index not in others or not others[index].ready}
    if 2 * len(absent) > gang.nodes or any(pod.finished for pod in others.values()):
        return False
    return all(_is_a_loss(observed, gang, each) for each in lost) and _is_within_bounds(observed, lost)


def _is_a_loss(observed: Observed, gang: Gang, lost: LostMember) -> bool:
    """Whether the pod ended by itself and for its own sake, and not with its gang."""
    action = rule_for(lost.end.cause, observed.policy).action_after(has_saved(observed, gang))
    if lost.failure.reason not in _OF_ONE_POD or action is RuleAction.FAIL:
        return False
    said = _message(gang.pods.get(lost.index) or gang.lost.get(lost.index))
    if said is None or said.index in {None, lost.index}:
        return True
    # It has not reached rank 0's agent. If that one is lost, the others end as well, within moments.
    known_at = settles_at(gang)
    return said.reason == Reason.PEER_LOST and (known_at is None or known_at <= observed.now)


def _is_within_bounds(observed: Observed, lost: tuple[LostMember, ...]) -> bool:
    attempt = observed.attempt
    count = len(attempt.replacements or ()) + len(lost)
    if all(rule_for(each.end.cause, observed.policy).action is not RuleAction.RESTART for each in lost):
        return count <= MAX_REPLACEMENTS
    left = (attempt.restarts_left or Restarts()).infrastructure
    used = (attempt.restarts or Restarts()).infrastructure
    return count <= min(MAX_REPLACEMENTS, left) and used < left


def _message(pod: PodView | None) -> AgentMessage | None:
    ended = pod.termination if pod is not None else None
    return agent_message(ended.message) if ended is not None else None
