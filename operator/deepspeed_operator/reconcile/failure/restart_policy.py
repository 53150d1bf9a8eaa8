"""What follows the end of an attempt. One policy decides it, and nothing else completes or fails a run."""

from dataclasses import dataclass
from datetime import datetime

from deepspeed_operator.api.status import Failure
from deepspeed_operator.reconcile.failure.attempt_end import AttemptEnd, Succeeded


@dataclass(frozen=True, slots=True)
class Complete:
    """The run is complete, since `at` by the clock of a node; None if no node says when."""

    at: datetime | None


@dataclass(frozen=True, slots=True)
class FailRun:
    """The run has failed by this cause."""

    failure: Failure


Decision = Complete | FailRun


def decide(end: AttemptEnd) -> Decision:
    """Return what follows the end of an attempt: so far it is always the end of its run."""
    return Complete(end.at) if isinstance(end, Succeeded) else FailRun(end.failure)
