"""Judging runs: once for equal ones, and not again at once where it costs too much."""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from weakref import WeakValueDictionary

from deepspeed_operator.controller.clock import now
from deepspeed_operator.controller.judges import ExceededError, Judges
from deepspeed_operator.dsconfig.judgement import JudgementContext, judge
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.plan.advice.forecast import Foreseen, foresee
from deepspeed_operator.reconcile.actions import ForeseePlan, JudgeRun
from deepspeed_operator.reconcile.admission.question import judge_run
from deepspeed_operator.reconcile.observe.observed import JudgedRun, SetAside

# A sweep's jobs are judged once; a job that was refused is judged as often as it is looked at.
REMEMBERED = 256
FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(hours=1)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Remembered:
    answer: JudgedRun
    failures: int = 0


class Verdicts:
    """What was said of the last runs that were judged."""

    def __init__(self, judges: Judges, installation: Installation) -> None:
        self._judges = judges
        self._installation = installation
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._known: OrderedDict[str, _Remembered] = OrderedDict()

    async def of(self, namespace: str, question: JudgeRun) -> JudgedRun:
        """Answer, as before if that was the same question."""
        async with self._asking.setdefault(question.digest, asyncio.Lock()):
            known = self._known.pop(question.digest, None)
            answer = known.answer.answer if known is not None else None
            if known is None or (isinstance(answer, SetAside) and now() >= answer.until):
                known = await self._judge(namespace, question, known.failures if known is not None else 0)
            self._known[question.digest] = known
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return known.answer

    async def _judge(self, namespace: str, question: JudgeRun, failures: int) -> _Remembered:
        try:
            found = await self._judges.call(namespace, judge_run, question.observed, self._installation, foreseen_plan)
        except ExceededError as error:
            pause = min(FIRST_PAUSE * 2 ** min(failures, 16), LONGEST_PAUSE)
            aside = SetAside(str(error), now() + pause)
            _log.warning("%s/%s is set aside: %s", namespace, question.observed.job.metadata.name, error)
            return _Remembered(JudgedRun(question.digest, aside), failures + 1)
        return _Remembered(JudgedRun(question.digest, found))


def prepare() -> None:
    """Load what judging needs, so that no job's budget pays for it: the schema of each DeepSpeed version."""
    judge({"train_micro_batch_size_per_gpu": 1}, JudgementContext(1))


def foreseen_plan(question: ForeseePlan) -> Foreseen | None:
    """Return what a job will be like; None if the planner failed: a job begins without its word."""
    try:
        return foresee(question.case, question.nodes, question.device, question.preflight)
    except MemoryError:
        raise
    except Exception:
        _log.exception("A job's plan could not be made")
        return None
