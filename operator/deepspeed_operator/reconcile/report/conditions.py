"""The conditions that follow from a verdict.

Nothing is decided upon them. They are read again by this room alone: for the time of their last transition, for what
is news, and because what was judged once, of the run that spec asks for, is not judged anew in each pass.
"""

from dataclasses import dataclass
from typing import Final, Literal

from deepspeed_operator.api.status import MAX_MESSAGE, Condition, ConditionType, DeepSpeedJobStatus, State
from deepspeed_operator.reconcile.report.verdict import Verdict

_OF_THE_STATE: Final = tuple(kind for kind in ConditionType if kind is not ConditionType.MEMORY_FIT)
_WHAT_IT_SAYS: Final[dict[State, dict[ConditionType, bool]]] = {
    State.INVALID: {ConditionType.STALLED: True},
    # As with a running job, there is nothing to wait for but its turn: a GitOps sync does not.
    State.QUEUED: {ConditionType.ACCEPTED: True, ConditionType.READY: True},
    State.STARTING: {ConditionType.ACCEPTED: True, ConditionType.RECONCILING: True},
    State.RUNNING: {ConditionType.ACCEPTED: True, ConditionType.RUNNING: True, ConditionType.READY: True},
    State.RESTARTING: {ConditionType.ACCEPTED: True, ConditionType.RECONCILING: True},
    State.SUSPENDING: {ConditionType.ACCEPTED: True, ConditionType.RECONCILING: True},
    # As with a Kubernetes Job, suspended is what was asked for: a GitOps sync does not wait for more.
    State.SUSPENDED: {ConditionType.ACCEPTED: True, ConditionType.SUSPENDED: True, ConditionType.READY: True},
    State.COMPLETE: {ConditionType.ACCEPTED: True, ConditionType.COMPLETE: True, ConditionType.READY: True},
    State.FAILED: {ConditionType.ACCEPTED: True, ConditionType.FAILED: True, ConditionType.STALLED: True},
}
# Ready has the words for the whole job; beside it they stand only in the condition that they are about.
_ABOUT: Final = {
    State.INVALID: ConditionType.ACCEPTED,
    State.QUEUED: ConditionType.RUNNING,
    State.STARTING: ConditionType.RUNNING,
    State.RUNNING: ConditionType.RUNNING,
    State.RESTARTING: ConditionType.RUNNING,
    State.SUSPENDING: ConditionType.SUSPENDED,
    State.SUSPENDED: ConditionType.SUSPENDED,
    State.COMPLETE: ConditionType.COMPLETE,
    State.FAILED: ConditionType.FAILED,
}
_FOR_TOOLS: Final = frozenset({ConditionType.RECONCILING, ConditionType.STALLED})
# What is said of the run that spec asks for; the other conditions are about the run that was accepted last.
_OF_SPEC: Final = (ConditionType.ACCEPTED, ConditionType.READY, *_FOR_TOOLS)
_SEE_READY: Final = "See condition Ready."


@dataclass(frozen=True, slots=True)
class Statement:
    """What a condition says that does not follow from the state."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def condition(status: DeepSpeedJobStatus, kind: ConditionType) -> Condition | None:
    """Return the condition of this type, if it was ever set."""
    return next((each for each in status.conditions if each.type == kind), None)


def last_told(status: DeepSpeedJobStatus) -> Verdict | None:
    """Return what was told last of the accepted run, or of the first one, which was refused: what else is told is news.

    What Ready says may be about another run, which was refused.
    """
    running = condition(status, ConditionType.RUNNING)
    if running is None or status.state is None:
        return None
    about = condition(status, _ABOUT[status.state])
    return Verdict(status.state, running.reason, about.message if about is not None else "")


def conditions(
    verdict: Verdict,
    acceptance: Verdict | None,
    previous: DeepSpeedJobStatus,
    *,
    generation: int,
    now: str,
    memory: Statement | None = None,
    unrun: str = "",
    of_spec: bool = True,
) -> list[Condition]:
    """Return all conditions for a verdict on the accepted run; a transition time changes only when a status flips.

    `acceptance` gives the reason and message of Accepted, and `memory` those of MemoryFit; None leaves them as they
    were. `unrun` is what Ready says besides of changes that no run has taken. Without `of_spec` the verdict is not
    about the run that spec asks for: what was said of that one stays.
    """
    says = _WHAT_IT_SAYS[verdict.state]
    words = {kind: _SEE_READY for kind in _FOR_TOOLS if kind in says}
    words |= {_ABOUT[verdict.state]: verdict.message, ConditionType.READY: verdict.message + unrun}
    said = {
        kind: Statement(_status(says.get(kind, False)), verdict.reason, words.get(kind, "")) for kind in _OF_THE_STATE
    }
    befores = {each.type: each for each in previous.conditions}
    accepted = acceptance or befores.get(ConditionType.ACCEPTED)
    if ConditionType.ACCEPTED in says and accepted is not None:
        said[ConditionType.ACCEPTED] = Statement("True", accepted.reason, accepted.message)
    before = befores.get(ConditionType.MEMORY_FIT)
    if memory is not None:
        said[ConditionType.MEMORY_FIT] = memory
    elif before is not None:
        said[ConditionType.MEMORY_FIT] = Statement(before.status, before.reason, before.message)
    if not of_spec:
        said |= {kind: Statement(b.status, b.reason, b.message) for kind in _OF_SPEC if (b := befores.get(kind))}
    return [_stated(kind, each, befores.get(kind), generation=generation, now=now) for kind, each in said.items()]


def with_refusal(
    status: DeepSpeedJobStatus,
    refusal: Verdict,
    previous: DeepSpeedJobStatus,
    *,
    run_id: str,
    generation: int,
    now: str,
) -> list[Condition]:
    """Return the conditions of a status, which are about the accepted run, but for those about the run `run_id`.

    That one is refused, so that what spec asks for will not come by itself, whatever the accepted run does; or
    it waits, where the refusal's state is Starting.
    `previous` is the status as it was written last, from which a condition keeps its transition time.
    """
    assert status.run is not None, "another run is left as it is"
    waits = refusal.state is State.STARTING
    left = f"Run {run_id!r} {'waits' if waits else 'is refused'}, and run {status.run.id!r} is left as it is"
    told = last_told(status)
    goes_on = f" {told.message}" if told is not None and told.state is not State.INVALID else ""
    said = {
        ConditionType.ACCEPTED: Statement(_status(waits), refusal.reason, f"{left}: {refusal.message}"),
        ConditionType.READY: Statement("False", refusal.reason, f"{left}; condition Accepted says why.{goes_on}"),
        ConditionType.RECONCILING: Statement(_status(waits), refusal.reason, _SEE_READY if waits else ""),
        ConditionType.STALLED: Statement(_status(not waits), refusal.reason, "" if waits else _SEE_READY),
    }
    befores = {each.type: each for each in previous.conditions}
    return [
        _stated(kind, said[kind], befores.get(kind), generation=generation, now=now)
        if (kind := ConditionType(each.type)) in said
        else each.model_copy(update={"observed_generation": generation})
        for each in status.conditions
    ]


def _status(holds: bool) -> Literal["True", "False"]:
    return "True" if holds else "False"


def _stated(kind: ConditionType, said: Statement, before: Condition | None, *, generation: int, now: str) -> Condition:
    return Condition(
        type=kind,
        status=said.status,
        reason=said.reason,
        message=_bounded(said.message),
        last_transition_time=before.last_transition_time if before and before.status == said.status else now,
        observed_generation=generation,
    )


def _bounded(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
