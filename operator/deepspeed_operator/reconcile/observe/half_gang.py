"""Gangs of which the scheduler has placed a part: what that part holds may be what another gang waits for."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from deepspeed_operator.reconcile.observe.pods import PodView

# A scheduler places a large gang within seconds, and until then each gang is one of which a part is placed.
PATIENCE: Final = timedelta(seconds=10)
_INSUFFICIENT: Final = re.compile(r"Insufficient ([-\w./]+)")
_COUNT: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class HalfGang:
    """A gang with pods that have a node, and pods for which there is none.

    `created`: when its job was, as Kubernetes writes it. `since`: when the first of the others was found to have no
    node. `held`: how much the placed pods hold of each extended resource.
    """

    namespace: str
    job: str
    created: str
    placed: int
    size: int
    since: datetime
    holds: frozenset[str]
    held: tuple[tuple[str, int], ...]
    waits_for: frozenset[str]
    node_selector: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pods: Iterable[PodView], created: str) -> Self | None:
        """Return the half gang that the pods of one job's latest attempt are; None if they are none."""
        alive = [pod for pod in pods if not (pod.finished or pod.gone or pod.deleted_at)]
        attempt = max((pod.attempt for pod in alive), default=0)
        latest = [pod for pod in alive if pod.attempt == attempt]
        placed = [pod for pod in latest if pod.node is not None]
        homeless = [pod for pod in latest if pod.node is None and pod.unschedulable_since is not None]
        if not placed or not homeless:
            return None
        first, words = placed[0], " ".join(pod.unschedulable or "" for pod in homeless)
        counts = {name: int(number) for name, number in first.requests if "/" in name and _COUNT.fullmatch(number)}
        return cls(
            namespace=first.namespace,
            job=first.job_name,
            created=created,
            placed=len(placed),
            size=len(latest),
            since=min(pod.unschedulable_since for pod in homeless if pod.unschedulable_since is not None),
            holds=frozenset(name for name, _ in first.requests),
            held=tuple((name, count * len(placed)) for name, count in counts.items()),
            # A resource's name ends no sentence.
            waits_for=frozenset(name.rstrip(".") for name in _INSUFFICIENT.findall(words)),
            node_selector=first.node_selector,
        )

    def older_rival(self, others: Iterable["HalfGang"], now: datetime) -> "HalfGang | None":
        """Return an older gang that waits for what this one holds while it holds what this one waits for, if any."""
        rivals = (each for each in others if self._age > each._age and self._blocks(each) and each._blocks(self))
        return next((each for each in rivals if max(each.since, self.since) + PATIENCE <= now), None)

    @property
    def _age(self) -> tuple[str, str, str]:
        return self.created, self.namespace, self.job

    def _blocks(self, other: "HalfGang") -> bool:
        mine, theirs = dict(self.node_selector), dict(other.node_selector)
        apart = any(theirs.get(label, value) != value for label, value in mine.items())
        return not apart and bool(self.holds & other.waits_for)
