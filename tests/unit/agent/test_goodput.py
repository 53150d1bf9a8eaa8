"""Goodput of a run with three faults is that of a stopwatch: real agents, and an operator that forgets at each look."""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.api.attempt_status import Phase
from deepspeed_operator.api.status import State
from deepspeed_operator.reconcile.observe.observed import Facts
from deepspeed_operator.reconcile.observe.pods import moment
from deepspeed_operator.reconcile.runtime.agent_answer import report_of
from tests.unit.agent.harness import Gang, Running, failure_policy, rule
from tests.unit.reconcile.simulation import Simulation, job

# Of DeepSpeed what the hook touches, with a stopwatch in it.
DEEPSPEED = """\
import json, os, time
def note(kind, step):
    if os.environ["RANK"] == "0":
        with open(os.environ["STOPWATCH"], "a") as file:
            print(json.dumps([kind, step, time.monotonic()]), file=file)
class DeepSpeedEngine:
    def __init__(self, step):
        self.basic_optimizer = self.client_optimizer = self.optimizer = self
        self.param_groups, self.global_steps = [{"lr": 0.001}], step
        note("start", step)
    def train_batch_size(self): return 8
    def train(self, mode=True): return self
    def eval(self): return self.train(False)
    def save_checkpoint(self, path):
        note("saves", self.global_steps)
        time.sleep(0.4)
        open(path, "w").write(str(self.global_steps))
        note("saved", self.global_steps)
    def _take_model_step(self, lr_kwargs=None):
        self.global_steps += 1
        note("step", self.global_steps)
def initialize(step): return DeepSpeedEngine(step), None, None, None
"""
# It saves every tenth step, and fails after steps 18 (a rank is killed), 34 (an error) and 47 (one that ends the pods).
TRAIN = """\
import os, signal, sys, time
import deepspeed
rank, path = os.environ["RANK"], os.environ["CHECKPOINT"] + os.environ["RANK"]
failed = os.environ["CHECKPOINT"] + "failed"
began = int(open(path).read()) if os.path.exists(path) else 0
starts = len(open(failed).read()) if os.path.exists(failed) else 0
engine, *_ = deepspeed.initialize(began)
for step in range(began + 1, 61):
    time.sleep(0.05)
    engine._take_model_step()
    if step % 10 == 0:
        engine.save_checkpoint(path)
    if (starts, step, rank) in ((0, 18, "1"), (1, 34, "0"), (2, 47, "1")):
        open(failed, "a").write("x")
        if starts == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(5 + starts)
    if (starts, step) in ((0, 19), (1, 35), (2, 48)):
        time.sleep(60)  # in a collective, until it is ended
"""


@dataclass
class Life:
    """A run whose pods' agents are real, and whose operator lives in simulated time, which passes as real time does."""

    simulation: Simulation
    began: float
    skipped: float = 0.0  # seconds that nobody waits for

    def look(self, running: Running | None = None) -> None:
        """Let an operator look that knows nothing but what is written, and that asks rank 0's agent."""
        state: Any = None
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state = running.get("/state")[1] if running is not None else None
        self.catch_up()
        self.simulation.facts = Facts()
        number, now = self.simulation.job.status.attempt_number, self.simulation.now
        self.simulation.agent = report_of(state, "job-1", number, now)
        self.simulation.settle()

    def catch_up(self) -> None:
        self.simulation.wait(time.monotonic() - self.began + self.skipped - self.passed)

    @property
    def passed(self) -> float:
        return (self.simulation.now - Simulation(job()).now).total_seconds()

    def play(self, gang: Gang, **environment: str) -> None:
        """Run the agents of an attempt, and tell the operator how their pods end."""
        agents = gang.start_all(**environment)
        agents[0].wait_until_ready()
        self.simulation.run_all()
        while agents[0].process.poll() is None:
            self.look(agents[0])
            time.sleep(0.2)
        for index, each in enumerate(agents):
            ended = each.end()
            self.catch_up()
            self.simulation.end(index, ended.code, ended.message.decode())
        self.look()


def notes(path: Path) -> list[tuple[str, int, float]]:
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


def stopwatch(path: Path, skipped: float, began: float, ended: float) -> dict[str, float]:
    """What came of the seconds between two times, by what the ranks noted of them."""
    seconds: dict[str, float] = dict.fromkeys(("starting", "restarting", "productive", "repeated", "saving"), 0.0)
    before, reached, highest, first, starts = began, 0, 0, True, -1
    for kind, step, at in notes(path):
        if kind == "start":
            first, reached, starts = True, highest, starts + 1
            continue
        if kind != "saves":
            spent = "restarting" if starts else "starting"
            if not first:
                spent = "saving" if kind == "saved" else "repeated" if step <= reached else "productive"
            seconds[spent] += at - before
            before, first = at, False
        elif not first:
            seconds["repeated" if step < reached else "productive"] += at - before
            before = at
        highest = max(highest, step)
    seconds["productive"] += ended - before
    seconds["restarting"] += skipped
    return seconds


def test_goodput_with_three_faults_is_that_of_a_stopwatch(gang: Callable[..., Gang], tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users/deepspeed.py").write_text(DEEPSPEED)
    given = {"PYTHONPATH": str(tmp_path / "users"), "CHECKPOINT": f"{tmp_path}/", "STOPWATCH": f"{tmp_path}/notes"}
    budgets = {"maxRestarts": 9, "maxInfrastructureRestarts": 9, "replacementDeadlineSeconds": 0}
    life = Life(Simulation(job(failurePolicy=budgets)), time.monotonic())
    life.look()
    policy = failure_policy(rules=[rule(exitCodes=[7], inPlace=False), rule()])
    more = {"uid": "job-1", "failurePolicy": policy}
    life.play(gang(nodes=2, script=TRAIN, launch=more), **given)
    assert life.simulation.attempt.phase is Phase.BACKING_OFF
    assert life.simulation.attempt.round == 3
    life.skipped += 15
    life.simulation.remove()
    life.look()
    attempt = life.simulation.attempt
    assert attempt.number == 2
    assert attempt.reached_step == max(step for _, step, _ in notes(tmp_path / "notes"))
    life.play(gang(nodes=2, script=TRAIN, attempt=2, launch={**more, "reachedStep": attempt.reached_step}), **given)
    status = life.simulation.job.status
    assert status.state is State.COMPLETE
    assert status.goodput is not None
    assert status.run is not None
    assert status.run.completion_time is not None
    # A time in status has whole seconds.
    lasted = (moment(status.run.completion_time) - moment(status.run.start_time)).total_seconds()
    ended = life.began + lasted - life.skipped
    expected = stopwatch(tmp_path / "notes", life.skipped, life.began, ended)
    total = sum(expected.values())
    found: dict[str, Any] = status.goodput.seconds.model_dump()
    assert {kind: found[kind] for kind in expected} == pytest.approx(expected, abs=0.02 * total)
    assert status.goodput.percent == pytest.approx(100 * expected["productive"] / total, abs=2)
    assert sum(found.values()) == pytest.approx(total, abs=1)
    assert not [kind for kind in ("hung", "queued", "suspended", "unobserved") if found[kind]]
