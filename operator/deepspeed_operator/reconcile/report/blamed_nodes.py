"""Nodes that were at fault: twice within 24 hours, and a run keeps off them for as long."""

from datetime import datetime, timedelta
from typing import Final

from deepspeed_operator.api.restarts import MAX_NODES, BlamedNode
from deepspeed_operator.api.status import Run
from deepspeed_operator.reconcile.observe.pods import moment, timestamp

REMEMBERED_FOR: Final = timedelta(hours=24)
_TWICE: Final = 2


def blamed(run: Run, node: str, now: datetime) -> list[BlamedNode]:
    """Return the run's nodes with one fault more, the latest last."""
    known = _remembered(run, now)
    before = [at for each in known if each.name == node for at in each.times]
    others = [each for each in known if each.name != node]
    return [*others, BlamedNode(name=node, times=[*before, timestamp(now)][-_TWICE:])][-MAX_NODES:]


def excluded(run: Run, now: datetime) -> list[str]:
    """Return the names of the nodes that the run keeps off now."""
    return sorted(each.name for each in _remembered(run, now) if len(each.times) == _TWICE)


def _remembered(run: Run, now: datetime) -> list[BlamedNode]:
    """Return the nodes with their faults that count: none is older than the newest of its node by 24 hours."""
    known = [each for each in run.blamed_nodes or () if moment(each.times[-1]) + REMEMBERED_FOR > now]
    return [each.model_copy(update={"times": [at for at in each.times if _near(at, each.times[-1])]}) for each in known]


def _near(at: str, newest: str) -> bool:
    return moment(newest) - moment(at) < REMEMBERED_FOR
