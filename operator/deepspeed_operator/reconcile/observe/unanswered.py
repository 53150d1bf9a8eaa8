"""A decision that needs an answer stops where it needs it; what was decided until then is not lost."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.reconcile.actions import Outcome, Question


class Unanswered(Exception):  # noqa: N818 -- it is no error: reconcile() catches it once, and asks
    """These questions are to be answered first.

    `meanwhile` is what is said and done all the same, None if nothing is.
    """

    def __init__(self, *questions: Question[object], meanwhile: Outcome | None = None) -> None:
        super().__init__(*questions)
        self.questions = questions
        self.meanwhile = meanwhile

    def outcome(self, status: DeepSpeedJobStatus) -> Outcome:
        """Return the outcome that asks; `status` is the job's, which stays where nothing else is said meanwhile."""
        return replace(self.meanwhile or Outcome(status), questions=self.questions)


@contextmanager
def meanwhile(outcome: Outcome) -> Generator[None, None, None]:
    """Say and do this where a question must be answered first that is asked inside."""
    try:
        yield
    except Unanswered as unanswered:
        raise Unanswered(*unanswered.questions, meanwhile=outcome) from None


@contextmanager
def together_with(other: Callable[[], object]) -> Generator[None, None, None]:
    """Where a question is asked inside, ask those of `other` as well, which does not need its answer."""
    try:
        yield
    except Unanswered as unanswered:
        try:
            other()
        except Unanswered as others:
            besides = (each for each in others.questions if each not in unanswered.questions)
            raise Unanswered(*unanswered.questions, *besides, meanwhile=unanswered.meanwhile) from None
        raise
