"""What status says of progress that nobody tells any more."""

from typing import Final

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.progress import Progress

_STALE: Final = "stale"


def as_stale(progress: Progress, stale: bool) -> Progress:
    """Return it with the words for whether it is stale. What is stale has no time at which it will be done."""
    percent = f"{progress.percent}%" if progress.percent is not None else ""
    words = ", ".join(filter(None, [percent, _STALE if stale else ""]))
    kept = {} if not stale else {"eta": None}
    return progress.model_copy(update={"summary": words or None, "stale": stale or None, **kept})


def at_rest(progress: Progress, phase: Phase, *, failed: bool) -> Progress:
    """Return it as it is told of an attempt in this phase: ranks that do not run make no steps.

    `failed`: the run has. What is known of one that is complete is how it ended.
    """
    known = phase is Phase.RUNNING or (phase is Phase.ENDED and not failed)
    return progress if known else as_stale(progress, stale=True)
