"""The writes of a job's life, at each of which the operator may be killed: before it, and once it is done.

A life is compared with the same one undisturbed: it must come to the same end state, with the same counts.
"""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.jobs import KINDS, Jobs, Json
from tests.faults.proxy import Answer, Forward, Interceptor, NoAnswer, Proxy, Request, honest
from tests.faults.replica import Replica

PATIENCE = 90  # seconds, for what takes two on a machine that has nothing else to do

Step = Callable[[Jobs, str], object]


@dataclass(frozen=True)
class Life:
    """A part of a job's life: where it begins, what sets it off, and when it is over."""

    before: tuple[tuple[Step, Callable[[Jobs, str], bool]], ...]  # what is done first, and when that is done
    begin: Step
    over: Callable[[Jobs, str], bool]
    away: bool = False  # whether the operator is away when it begins


def _apply(jobs: Jobs, name: str) -> None:
    jobs.apply(name, failurePolicy={"backoffSeconds": 1, "restartInPlace": False})


def _apply_replaceable(jobs: Jobs, name: str) -> None:
    jobs.apply(name, nodes=3)


def _delete_pod(jobs: Jobs, name: str) -> None:
    jobs.delete_pod(f"{name}-1-1")


def _restart_in_place(jobs: Jobs, name: str) -> None:
    jobs.agents[name].restart()


def _suspend(jobs: Jobs, name: str) -> None:
    jobs.change(name, suspend=True)


def _running(jobs: Jobs, name: str) -> bool:
    return jobs.runs_attempt(1, name)


def _runs_again(jobs: Jobs, name: str) -> bool:
    return jobs.runs_attempt(2, name)


def _replaced(jobs: Jobs, name: str) -> bool:
    status = jobs.status(name)
    return status["state"] == "Running" and bool(status["attempt"].get("replacements"))


def _restarted_in_place(jobs: Jobs, name: str) -> bool:
    status = jobs.status(name)
    return status["state"] == "Running" and status["attempt"].get("round", 1) == 2


def _suspended(jobs: Jobs, name: str) -> bool:
    return jobs.status(name).get("state") == "Suspended"


LIVES = {
    "start": Life((), _apply, _running),
    "new attempt": Life(((_apply, _running),), _delete_pod, _runs_again),
    "restart in place": Life(
        ((_apply_replaceable, _running), (Jobs.answer_as_agents, Jobs.publishes_agent)),
        _restart_in_place,
        _restarted_in_place,
        away=True,
    ),
    "replaced pod": Life(((_apply_replaceable, _running),), _delete_pod, _replaced),
    "suspend": Life(((_apply, _running),), _suspend, _suspended),
    "resume": Life(
        ((_apply, _running), (_suspend, _suspended)), lambda jobs, name: jobs.change(name, suspend=False), _runs_again
    ),
}


@dataclass(frozen=True)
class Undisturbed:
    """What a life has written, each write as METHOD plural name, and the picture that it came to."""

    writes: tuple[str, ...]
    picture: Json


@dataclass(frozen=True)
class KillPoints:
    """Lives of jobs in a namespace, whose operator reaches the API server through the proxy."""

    replica: Replica
    jobs: Jobs
    proxy: Proxy

    def undisturbed(self, life: str) -> Undisturbed:
        """Live it without a fault, the operator being at work."""
        name = f"{life.replace(' ', '-')}-whole"
        before = self._begin(LIVES[life], name)
        self._await_end(LIVES[life], name)
        written = self.proxy.settled_writes()  # what a life leaves behind is deleted after its last status
        return Undisturbed(tuple(_without(name, written[before:])), self._anonymous(name))

    def kill_at(self, life: str, number: int, *, done: bool, expected: Json) -> bool:
        """Kill it at this write of the life, from 1, and see that the next operator comes to the same.

        Returns whether there was such a write: how often an EndpointSlice is written depends on the pods' pace.
        """
        name = f"{life.replace(' ', '-')}-{number}-{'after' if done else 'before'}"
        reached = threading.Event()
        self._begin(LIVES[life], name, _killer(self.replica, number, done, reached))
        self.replica.eventually(lambda: reached.is_set() or LIVES[life].over(self.jobs, name), PATIENCE)
        self.proxy.intercept = honest
        killed = reached.is_set()  # or it is about to be: the write may be what ends the life
        if killed:
            assert self.replica.wait() == -signal.SIGKILL
            self.replica.start()
        self._await_end(LIVES[life], name)
        self.replica.eventually(lambda: self._anonymous(name) == expected, 10)
        return killed

    def _begin(self, life: Life, name: str, interceptor: Interceptor = honest) -> int:
        """Set it off, and return how many writes there were until then."""
        for step, done in life.before:
            step(self.jobs, name)
            self.replica.eventually(lambda done=done: done(self.jobs, name), PATIENCE)
        if life.away:
            self.replica.stop()
        before, self.proxy.intercept = len(self.proxy.writes()), interceptor
        life.begin(self.jobs, name)
        if life.away:
            self.replica.start(wait=False)
        return before

    def _await_end(self, life: Life, name: str) -> None:
        self.replica.eventually(lambda: life.over(self.jobs, name), PATIENCE)

    def _anonymous(self, name: str) -> Json:
        """Return the picture without the job's name, with what its restarts and attempts were counted as."""
        status, picture = self.jobs.status(name), self.jobs.picture(name)
        outcomes = [each["outcome"] for each in status.get("attempts", [])]
        names = {key: _without(name, picture[key]) for key in (*KINDS, "addresses")}
        replacements: list[Json] = status["attempt"].get("replacements", [])
        replaced = [each["index"] for each in replacements]
        return {**picture, **names, "restarts": status.get("restarts", 0), "outcomes": outcomes, "replaced": replaced}


def _without(name: str, words: list[str]) -> list[str]:
    return [each.replace(name, "job") for each in words]


def _killer(replica: Replica, number: int, done: bool, reached: threading.Event) -> Interceptor:
    """Kill the operator at the write with this number, once it is `done` or before, and answer none that follows.

    `reached` is set before the write is done.
    """
    writes: list[str] = []

    async def kill(request: Request, forward: Forward) -> Answer:
        if request.writes:
            writes.append(request.path)
            if len(writes) == number:
                reached.set()
                if done:
                    await forward()
                os.kill(replica.pid, signal.SIGKILL)
            if len(writes) >= number:
                raise NoAnswer
        return await forward()

    return kill
