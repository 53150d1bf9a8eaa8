"""The pods of a job, sorted once into those of the current attempt and all others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deepspeed_operator.api.names import pod_name
from deepspeed_operator.api.status import Workers
from deepspeed_operator.reconcile.observe.messages import AgentMessage, agent_message, says_completed
from deepspeed_operator.reconcile.observe.pods import PodView


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods of one attempt by index, and every other pod that carries the job's name."""

    job: str
    attempt: int
    nodes: int
    pods: dict[int, PodView]
    stale: tuple[PodView, ...]  # ours, of another attempt or index, or replaced: to be deleted on sight
    kept: tuple[PodView, ...]  # ended, replaced or of the attempt before, which has failed: their logs say why
    lost: dict[int, PodView]  # of the attempt, gone without success: how they were last seen
    foreign: tuple[PodView, ...]  # of an earlier job of the same name, or copies that somebody made, such as to debug
    replacements: Mapping[int, int] = field(default_factory=dict[int, int])  # by index, the number of its pod

    @classmethod
    def of(
        cls,
        pods: tuple[PodView, ...],
        *,
        job: str,
        uid: str,
        attempt: int,
        nodes: int,
        keeps: int | None = None,
        replacements: Mapping[int, int] | None = None,
    ) -> "Gang":
        """Sort the pods by what they are to the current attempt.

        `keeps` is the number of an attempt whose pods stay, ended; None keeps none. `replacements`: by index, the
        number of the pod that has taken the place of a lost one; None where none has.
        """
        numbers = replacements or {}
        current: dict[int, PodView] = {}
        lost: dict[int, PodView] = {}
        stale: list[PodView] = []
        kept: list[PodView] = []
        foreign: list[PodView] = []
        for pod in pods:
            if pod.job_uid != uid or pod.name != pod_name(job, pod.attempt, pod.index, pod.replacement):
                foreign.append(pod)
            elif pod.attempt != attempt or pod.index >= nodes or pod.replacement != numbers.get(pod.index, 0):
                (kept if pod.attempt in {keeps, attempt} and pod.released else stale).append(pod)
            elif pod.gone and not pod.succeeded:
                lost[pod.index] = pod
            else:
                current[pod.index] = pod
        return cls(job, attempt, nodes, current, tuple(stale), tuple(kept), lost, tuple(foreign), numbers)

    @property
    def old_pods_that_may_write(self) -> tuple[PodView, ...]:
        """Pods of earlier attempts or jobs that are neither ended nor gone."""
        return tuple(pod for pod in (*self.stale, *self.foreign) if not pod.released)

    @property
    def gates(self) -> tuple[str, ...]:
        """What keeps the scheduler from pods of the attempt."""
        return tuple(sorted({gate for pod in self.pods.values() if pod.deleted_at is None for gate in pod.gates}))

    @property
    def none_left(self) -> bool:
        """Whether no pod of the attempt exists any more."""
        return all(pod.gone for pod in self.pods.values())

    @property
    def missing(self) -> tuple[int, ...]:
        """Pods that should exist; none once an agent tells of the gang's success: those gone had part in it."""
        if len(self.pods) == self.nodes or self.completed:
            return ()
        return tuple(index for index in range(self.nodes) if index not in self.pods)

    @property
    def missing_names(self) -> tuple[str, ...]:
        return tuple(map(self.name_of, self.missing))

    def name_of(self, index: int) -> str:
        """Return the name of the pod with this index, whether it is there or not."""
        return pod_name(self.job, self.attempt, index, self.replacements.get(index, 0))

    @property
    def completed(self) -> tuple[PodView, ...]:
        """Pods whose agents tell that the gang has succeeded."""
        return tuple(pod for pod in self.pods.values() if says_completed(pod))

    @property
    def all_succeeded(self) -> bool:
        return not self.missing and all(pod.succeeded for pod in self.pods.values())

    @property
    def all_ranks_running(self) -> bool:
        """Whether every pod's ranks run, or have run with success."""
        return len(self.pods) == self.nodes and all(
            pod.succeeded or (pod.ready and not pod.finished) for pod in self.pods.values()
        )

    @property
    def all_containers_running(self) -> bool:
        """Whether every pod's containers run, or have run: what its ranks wait for is their peers."""
        return not self.missing and all(pod.phase == "Running" or pod.finished for pod in self.pods.values())

    @property
    def all_finished(self) -> bool:
        return all(pod.finished for pod in self.pods.values())

    @property
    def failed(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods.values() if pod.failed)

    @property
    def workers(self) -> Workers:
        pods = self.pods.values()
        return Workers(
            ready=sum(pod.ready and not pod.finished for pod in pods),
            active=sum(not pod.finished for pod in pods),
            succeeded=sum(pod.succeeded for pod in pods),
            failed=sum(pod.failed for pod in pods),
        )

    @property
    def all_addressed(self) -> bool:
        return len(self.pods) == self.nodes and all(pod.address for pod in self.pods.values())

    @property
    def addresses(self) -> dict[int, str]:
        """Addresses to publish: rank 0's as soon as it is known, for its peers to find; all once all are known."""
        known = {index: pod.address for index, pod in self.pods.items() if pod.address}
        return known if len(known) == self.nodes else {0: known[0]} if 0 in known else {}


def last_messages(gang: Gang) -> Iterator[AgentMessage]:
    """Yield what the agents of the attempt's pods have left, the first pod's first."""
    for _, pod in sorted({**gang.lost, **gang.pods}.items()):
        message = agent_message(pod.termination.message) if pod.termination is not None else None
        if message is not None:
            yield message
