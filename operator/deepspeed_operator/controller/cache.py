"""What the watches have told: jobs by namespace and name, pods by the job whose name they carry.

Versions are compared as numbers (as Kubernetes guarantees since 1.35 and etcd always did), so that an answer to our own
write is not undone by an older event that arrives later.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.controller.figures import JobFigures, figures_of
from deepspeed_operator.controller.queue import Key
from deepspeed_operator.controller.resources import Json
from deepspeed_operator.reconcile.observe.pods import PodView
from deepspeed_operator.reconcile.observe.workload_view import WorkloadView
from deepspeed_operator.reconcile.report.conditions import condition

# More than go while a request waits for its answer.
REMEMBERED = 10_000
# Pods that are gone: how they ended, or who ended them, matters for the seconds until their peers have ended.
KEPT_PODS = 1_000
WHOLE_JOBS = 64 << 20  # bytes of memory; a usual job takes some ten thousand
# Nothing of such a job goes on: it is looked at when somebody changes something, and now and then.
_AT_REST: Final = frozenset({State.INVALID, State.SUSPENDED, State.COMPLETE, State.FAILED})


class Ends:
    """The versions at which objects went, by uid: an answer of before may arrive after the watch has told of it."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}  # the oldest first

    def add(self, uid: str, version: int) -> None:
        self._versions[uid] = version
        if len(self._versions) > REMEMBERED:
            del self._versions[next(iter(self._versions))]

    def after(self, uid: str, version: int) -> bool:
        """Whether the object went after this version of it."""
        return self._versions.get(uid, 0) > version


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the watch tells of a job, and its state as it was last read."""

    uid: str
    version: int
    leaving: bool  # it is being deleted
    created: str  # as Kubernetes writes it
    state: State | None = None
    read: bool = False
    at_run: bool = False  # it has a run that has not ended
    reason: str = ""  # of condition Ready
    figures: JobFigures | None = None  # None for a job at rest


class JobCache:
    """Jobs as last seen: a record of each, and those whole that are at work, as many as fit.

    The others are read when they are looked at. So a job that waits, or has ended, costs next to nothing.
    """

    def __init__(self, changed: Callable[[Key], None], *, capacity: int = WHOLE_JOBS) -> None:
        self._records: dict[Key, JobRecord] = {}
        self._whole: OrderedDict[Key, tuple[DeepSpeedJob, int]] = OrderedDict()  # with its weight; the oldest first
        self._room = capacity
        self._ends = Ends()
        self._changed = changed

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> JobRecord | None:
        return self._records.get(key)

    def values(self) -> Iterable[JobRecord]:
        return self._records.values()

    def items(self) -> Iterable[tuple[Key, JobRecord]]:
        return self._records.items()

    def whole(self, key: Key) -> DeepSpeedJob | None:
        """Return the job as it is known to be now; None if it is to be read for that."""
        record, known = self._records.get(key), self._whole.get(key)
        if record is None or known is None or job_version(known[0]) < record.version:
            return None
        self._whole.move_to_end(key)
        return known[0]

    def forget_computed(self, key: Key) -> None:
        """Drop what was computed of a job that is kept: it may take more memory than was counted for the job."""
        if key in self._whole:
            self._whole[key][0].spec.memo.clear()

    def tell(self, item: Json) -> None:
        """Note what the metadata of a job says, unless its end or a newer version is known."""
        metadata: Json = item["metadata"]
        key, uid, version = (metadata["namespace"], metadata["name"]), metadata["uid"], int(metadata["resourceVersion"])
        known = self._records.get(key)
        if (known is not None and known.version >= version) or self._ends.after(uid, version):
            return
        same = known if known is not None and known.uid == uid else None
        leaving = metadata.get("deletionTimestamp") is not None
        created = metadata.get("creationTimestamp", "")
        known_as = same or JobRecord(uid, version, leaving, created)
        self._records[key] = replace(known_as, version=version, leaving=leaving, created=created)
        self._changed(key)

    def put(self, job: DeepSpeedJob, weight: int, *, keep: bool = True) -> None:
        """Note a job that was read, unless its end or a newer version is known; with `keep`, for the next look, too."""
        key, version = job_key(job), job_version(job)
        known = self._records.get(key)
        if (known is not None and known.version > version) or self._ends.after(job.metadata.uid, version):
            return
        leaving = job.metadata.deletion_timestamp is not None
        created = job.metadata.creation_timestamp or ""
        status, told = job.status, condition(job.status, ConditionType.READY)
        self._records[key] = JobRecord(
            job.metadata.uid,
            version,
            leaving,
            created,
            status.state,
            read=True,
            at_run=status.run is not None and status.run.completion_time is None,
            reason=told.reason if told is not None else "",
            figures=figures_of(status) if status.state not in _AT_REST else None,
        )
        self._drop(key)
        if keep and job.status.state not in _AT_REST:
            self._keep(key, job, weight)
        if known is None or known.version < version:
            self._changed(key)

    def ended(self, key: Key, uid: str, version: int) -> None:
        """Forget the job for good."""
        self._ends.add(uid, version)
        self.remove(key, uid)

    def remove(self, key: Key, uid: str) -> None:
        """Forget the job, unless another one of its name has come meanwhile."""
        known = self._records.get(key)
        if known is not None and known.uid == uid:
            del self._records[key]
            self._drop(key)
            self._changed(key)

    def retain(self, namespace: str | None, present: dict[Key, str], version: int) -> None:
        """Forget jobs of the namespace (none: of all) that a list of this version did not show."""
        for key, record in list(self._records.items()):
            listed = namespace in {None, key[0]} and record.version <= version
            if listed and present.get(key) != record.uid:
                self.remove(key, record.uid)

    def _keep(self, key: Key, job: DeepSpeedJob, weight: int) -> None:
        self._whole[key] = job, weight
        self._room -= weight
        while self._room < 0:
            self._drop(next(iter(self._whole)))

    def _drop(self, key: Key) -> None:
        _, weight = self._whole.pop(key, (None, 0))
        self._room += weight


class PodCache:
    """Pods as last seen."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._pods: dict[Key, dict[str, PodView]] = {}
        self._ends = Ends()
        self._gone: dict[Key, dict[str, PodView]] = {}  # the job first whose pods began to go first
        self._gone_count = 0
        self._changed = changed

    def of_job(self, key: Key) -> tuple[PodView, ...]:
        """Pods that carry the job's name, of any uid and attempt, by attempt and index.

        Those that are gone are among them, as they were last seen, as far as they are kept.
        """
        pods = [*self._pods.get(key, {}).values(), *self._gone.get(key, {}).values()]
        return tuple(sorted(pods, key=lambda pod: (pod.attempt, pod.index)))

    def jobs(self) -> Iterable[Key]:
        """The jobs with pods that are not gone."""
        return tuple(self._pods)

    def put(self, pod: PodView) -> None:
        """Keep the pod, unless its end or a newer version is known; tell if anything but its version has changed."""
        if self._ends.after(pod.uid, int(pod.resource_version)):
            return
        key = pod.namespace, pod.job_name
        siblings = self._pods.setdefault(key, {})
        known = siblings.get(pod.name)
        if known is not None and int(known.resource_version) >= int(pod.resource_version):
            return
        siblings[pod.name] = pod = pod.after(known)
        self._drop_gone(key, pod.name)
        if known is None or replace(known, resource_version=pod.resource_version) != pod:
            self._changed(key)

    def ended(self, pod: PodView) -> None:
        """Forget the pod for good; it was last seen so."""
        self.put(pod)
        self._ends.add(pod.uid, int(pod.resource_version))
        self.remove((pod.namespace, pod.job_name), pod.name, pod.uid)

    def remove(self, key: Key, name: str, uid: str) -> None:
        """Forget the pod, unless another one of its name has come meanwhile."""
        siblings = self._pods.get(key, {})
        known = siblings.get(name)
        if known is None or known.uid != uid:
            return
        del siblings[name]
        if not siblings:
            del self._pods[key]
        self._keep_gone(key, known.last_view())
        self._changed(key)

    def retain(self, namespace: str | None, uids: set[str], version: int) -> None:
        """Forget pods of the namespace (none: of all) that a list of this version did not show."""
        gone = [
            (key, pod)
            for key, siblings in self._pods.items()
            if namespace in {None, key[0]}
            for pod in siblings.values()
            if pod.uid not in uids and int(pod.resource_version) <= version
        ]
        for key, pod in gone:
            self.remove(key, pod.name, pod.uid)

    def _keep_gone(self, key: Key, pod: PodView) -> None:
        self._gone.setdefault(key, {})[pod.name] = pod
        self._gone_count += 1
        if self._gone_count > KEPT_PODS:
            oldest, pods = next(iter(self._gone.items()))
            self._drop_gone(oldest, next(iter(pods)))

    def _drop_gone(self, key: Key, name: str) -> None:
        pods = self._gone.get(key, {})
        if pods.pop(name, None) is not None:
            self._gone_count -= 1
            if not pods:
                del self._gone[key]


class WorkloadCache:
    """Workloads of jobs as last seen. A job may have two: one that was made for it, and one of a run before."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._views: dict[tuple[Key, str], WorkloadView] = {}
        self._ends = Ends()
        self._changed = changed

    def get(self, key: Key, name: str) -> WorkloadView | None:
        """Return the job's Workload, if it has this name."""
        return self._views.get((key, name))

    def put(self, view: WorkloadView) -> None:
        """Keep it, unless its end or a newer version is known; tell if anything but its version has changed."""
        key = _of_its_job(view)
        if key is None or self._ends.after(view.uid, int(view.resource_version)):
            return
        known = self._views.get((key, view.name))
        if known is not None and int(known.resource_version) >= int(view.resource_version):
            return
        self._views[key, view.name] = view
        if known is None or replace(known, resource_version=view.resource_version) != view:
            self._changed(key)

    def ended(self, view: WorkloadView) -> None:
        """Forget it for good."""
        self._ends.add(view.uid, int(view.resource_version))
        self._remove(view)

    def retain(self, namespace: str | None, uids: set[str], version: int) -> None:
        """Forget those of the namespace (none: of all) that a list of this version did not show."""
        for view in list(self._views.values()):
            if namespace in {None, view.namespace} and view.uid not in uids and int(view.resource_version) <= version:
                self._remove(view)

    def _remove(self, view: WorkloadView) -> None:
        key = _of_its_job(view)
        known = self._views.get((key, view.name)) if key is not None else None
        if key is not None and known is not None and known.uid == view.uid:
            del self._views[key, view.name]
            self._changed(key)


def _of_its_job(view: WorkloadView) -> Key | None:
    return (view.namespace, view.job) if view.job is not None else None


def job_key(job: DeepSpeedJob) -> Key:
    return job.metadata.namespace, job.metadata.name


def job_version(job: DeepSpeedJob) -> int:
    return int(job.metadata.resource_version or 0)
