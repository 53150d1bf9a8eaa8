"""Whether a piece of work comes to an end: each pass must ask something that has not just been answered in vain.

It may take as many passes as there are things to ask.
"""

from collections.abc import Sequence

from deepspeed_operator.controller.clock import steady
from deepspeed_operator.reconcile.actions import DryRunPod, JudgeRun, Question

# No answer is outdated sooner: a question that is asked again within this time was answered in vain.
LASTS_SECONDS = 1.0


class UnsettledError(Exception):
    """The reconciler asks what it was just told, though nothing has changed: a defect, made visible on the job."""


class Settling:
    """The answered questions of one piece of work."""

    def __init__(self) -> None:
        self._generation: int | None = None
        self._answered: list[tuple[object, float]] = []  # and when

    def check(self, questions: Sequence[Question[object]], generation: int | None) -> None:
        """Raise UnsettledError if none of the questions is news; `generation` is that of the job's spec.

        Another spec begins anew: where it is changed and changed back, the same is asked again.
        """
        if generation != self._generation:
            self._generation, self._answered = generation, []
        since = steady() - LASTS_SECONDS
        known = [each for each, at in self._answered if at > since]
        if all(_identity(each) in known for each in questions):
            kinds = ", ".join(sorted({type(each).__name__ for each in questions}))
            raise UnsettledError(f"{kinds} is asked again right after it was answered")

    def answered(self, questions: Sequence[Question[object]]) -> None:
        self._answered += [(_identity(each), steady()) for each in questions]


def _identity(question: Question[object]) -> object:
    """Return by what a question is known to be the same: what it carries along may be large, or differ by a clock."""
    match question:
        case JudgeRun():
            return JudgeRun, question.digest
        case DryRunPod():
            return DryRunPod, question.pod_digest
        case _:
            return question
