"""The agents' last words, as a pod's termination message carries them."""

from functools import lru_cache
from signal import Signals
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from deepspeed_operator.api.attempt_status import MAX_SAVED
from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.reconcile.observe.checkpoints import ToldCheckpoint
from deepspeed_operator.reconcile.observe.clocks import ToldClocks
from deepspeed_operator.reconcile.observe.endings import ToldEndings
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.observe.rounds import ToldRounds
from deepspeed_operator.reconcile.observe.told_progress import LeftProgress
from deepspeed_operator.reconcile.observe.told_wall_time import LeftWallTime

_ENDS: Final[dict[str, str]] = {
    Reason.RANK_LEFT: "left with exit code 0 while the others trained",
    Reason.HANG: "hung",
}
_NAMED: Final = frozenset(Signals)
# That of this version's agents, and that of attempts which the version before has started.
AgentProtocol = Literal[2, 3]
_Number = Annotated[int, Field(ge=0, le=2**31 - 1)]


class AgentMessage(ApiModel):
    """The agent's last words: the first line of a termination message, and the log tail after it.

    Whoever writes to the container's termination log can say anything here: what status would not hold is no message.
    """

    protocol: AgentProtocol
    reason: str = Field(pattern=r"^[A-Za-z]+$", max_length=64)
    index: _Number | None = None
    rank: _Number | None = None
    exit_code: _Number | None = None
    signal: _Number | None = None
    pod: str | None = Field(default=None, max_length=253)
    node: str | None = Field(default=None, max_length=253)
    signature: str = Field(default="", max_length=1000)
    killed_after_seconds: _Number | None = None  # the pod's ranks had so much grace, and needed more
    # Other reasons that it may have, where the words alone are not certain.
    candidates: list[Annotated[str, Field(pattern=r"^[A-Za-z]+$", max_length=64)]] = Field(default=[], max_length=2)
    stuck: str = Field(default="", max_length=1000)  # what keeps the pod from ending
    rounds: ToldRounds = None
    checkpoint: ToldCheckpoint = None
    wall_time: LeftWallTime = None
    progress: LeftProgress = None  # of the last round
    saved_at_end: str = Field(default="", max_length=MAX_SAVED)  # whether its ranks saved once they were told to end
    ranks: ToldEndings = None
    clocks: ToldClocks = Field(default={})
    stepped: bool | None = None  # whether a rank took an optimizer step in the round that ended
    tail: str = ""


@lru_cache(maxsize=512)  # the same words are read in every pass, and by several who decide
def agent_message(text: str) -> AgentMessage | None:
    """Parse a termination message, or return None where the agent wrote none (kubelet may put log lines there)."""
    first, _, tail = text.partition("\n")
    try:
        return AgentMessage.model_validate_json(first).model_copy(update={"tail": tail})
    except ValidationError:
        return None


def says_completed(pod: PodView) -> bool:
    """Whether the pod's agent ended with success. Agents do so only once the gang has succeeded."""
    said = agent_message(pod.termination.message) if pod.termination is not None and pod.succeeded else None
    return said is not None and said.reason == Reason.COMPLETED


def ending(said: AgentMessage) -> str:
    """Return how a rank, a program or a pod ended, and what it said of it."""
    end = end_of(said.reason, said.exit_code, said.signal)
    words = f"{end}: {said.signature}" if said.signature else end
    return f"{words} (not certain: perhaps {' or '.join(said.candidates)})" if said.candidates else words


def end_of(reason: str, exit_code: int | None, signal: int | None) -> str:
    """Return how the ranks of a failure for this reason ended, in words."""
    return _ENDS.get(reason) or how(exit_code, signal)


def how(exit_code: int | None, signal: int | None) -> str:
    """Return how a process ended, in words."""
    if signal is not None:
        name = f" ({Signals(signal).name})" if signal in _NAMED else ""
        return f"was killed by signal {signal}{name}"
    return f"exited with code {exit_code}" if exit_code is not None else "failed"
