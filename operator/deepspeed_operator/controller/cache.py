"""What the watches have told: jobs by namespace and name, pods by the job whose name they carry.

Versions are compared as numbers (as Kubernetes guarantees since 1.35 and etcd always did), so that an answer to our own
write is not undone by an older event that arrives later.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.queue import Key
from deepspeed_operator.reconcile.pods import PodView

# More than go while a request waits for its answer.
REMEMBERED = 10_000
# Pods that had succeeded when somebody deleted them: some matter for the seconds until their peers have ended.
KEPT_PODS = 1_000


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


class JobCache:
    """Jobs as last seen."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._jobs: dict[Key, DeepSpeedJob] = {}
        self._ends = Ends()
        self._changed = changed

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, key: Key) -> DeepSpeedJob | None:
        return self._jobs.get(key)

    def values(self) -> Iterable[DeepSpeedJob]:
        return self._jobs.values()

    def put(self, job: DeepSpeedJob, *, read_again: bool = False) -> None:
        """Keep the job, unless its end or a newer version is known, or this one, if it was not read again."""
        key = job_key(job)
        known = self._jobs.get(key)
        if known is not None and job_version(known) >= job_version(job) + read_again:
            return
        if self._ends.after(job.metadata.uid, job_version(job)):
            return
        self._jobs[key] = job
        self._changed(key)

    def ended(self, key: Key, uid: str, version: int) -> None:
        """Forget the job for good."""
        self._ends.add(uid, version)
        self.remove(key, uid)

    def remove(self, key: Key, uid: str) -> None:
        """Forget the job, unless another one of its name has come meanwhile."""
        known = self._jobs.get(key)
        if known is not None and known.metadata.uid == uid:
            del self._jobs[key]
            self._changed(key)

    def retain(self, namespace: str | None, present: dict[Key, str], version: int) -> None:
        """Forget jobs of the namespace (none: of all) that a list of this version did not show."""
        for key, job in list(self._jobs.items()):
            listed = namespace in {None, key[0]} and job_version(job) <= version
            if listed and present.get(key) != job.metadata.uid:
                self.remove(key, job.metadata.uid)


class PodCache:
    """Pods as last seen."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._pods: dict[Key, dict[str, PodView]] = {}
        self._ends = Ends()
        self._gone: dict[tuple[Key, str], PodView] = {}  # the oldest first
        self._changed = changed

    def of_job(self, key: Key) -> tuple[PodView, ...]:
        """Pods that carry the job's name, of any uid and attempt, by attempt and index.

        Of those that are gone, the ones that had succeeded.
        """
        pods = [*self._pods.get(key, {}).values(), *(pod for (of, _), pod in self._gone.items() if of == key)]
        return tuple(sorted(pods, key=lambda pod: (pod.attempt, pod.index)))

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
        self._gone.pop((key, pod.name), None)
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
        if known.succeeded:
            self._gone[key, name] = known.last_view()
            if len(self._gone) > KEPT_PODS:
                del self._gone[next(iter(self._gone))]
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


def job_key(job: DeepSpeedJob) -> Key:
    return job.metadata.namespace, job.metadata.name


def job_version(job: DeepSpeedJob) -> int:
    return int(job.metadata.resource_version or 0)
