"""When a gang hangs: by limits that are given or learned, in simulated time. What must not fire does not."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.agent.harness import hang, load

pace, detector, behind = load("dso_pace"), load("dso_hang"), load("dso_behind")
STANDING: dict[str, Any] = {
    "step": 40,
    "state": "S",
    "kernel": "",
    "where": "all_reduce",
    "collective": True,
    "load": "",
}


class Pod:
    """The rank of a pod, which the test moves on; all times are seconds of one clock."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pace = pace.Pace()
        self.taken, self.phase, self.since, self.at = 0, "Starting", 0.0, None

    def enter(self, phase: str, now: float) -> None:
        self.phase, self.since = phase, now

    def step(self, now: float) -> None:
        if self.phase != "Step":
            self.enter("Step", now)
        self.taken, self.at = self.taken + 1, now

    def report(self, now: float, told: float | None, complete: bool) -> dict[str, Any]:
        record = SimpleNamespace(rank=self.index, taken=self.taken, phase=self.phase, since=self.since, at=self.at)
        record.passes, record.pass_seconds = 0, 0.0
        records = [record] if self.phase != "Starting" else []
        return self.pace.take(records, [self.index], pace.ToldSteps(told, complete), 0.0, now)


class Simulated:
    """Pods of one rank each, whose heartbeats come every second; each tells at once where it stands when asked."""

    def __init__(self, nodes: int = 2, **limits: Any) -> None:
        self.pods = [Pod(index) for index in range(nodes)]
        self.detector = detector.HangDetector(hang(**limits))
        self.now = 0.0
        self.told: float | None = None  # when another source told a step
        self.complete = False
        self.left = ""
        self.silent: set[int] = set()
        self.hangs: list[Any] = []
        self.standings = [{**STANDING, "rank": pod.index} for pod in self.pods]

    def beat(self) -> Any:
        for pod in self.pods:
            report = pod.report(self.now, self.told, self.complete)
            tells = self.detector.number and pod.index not in self.silent
            evidence = [self.standings[pod.index]] if tells else None
            self.detector.take(pod.index, report, self.detector.number, evidence)
        found = self.detector.check(self.now, range(len(self.pods)), self.left)
        if found and (not self.hangs or found is not self.hangs[-1]):
            self.hangs.append(found)
        return found

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 1)
            self.beat()

    def enter(self, phase: str) -> None:
        for pod in self.pods:
            pod.enter(phase, self.now)

    def train(self, steps: int, seconds: float = 1.0) -> None:
        for _ in range(steps):
            self.wait(seconds)
            for pod in self.pods:
                pod.step(self.now)
        self.beat()

    def again(self) -> None:
        """Another round."""
        self.detector.begin()
        self.pods = [Pod(index) for index in range(len(self.pods))]
        self.now = 0.0


def test_before_sixteen_steps_nothing_is_learned() -> None:
    gang = Simulated()
    gang.train(15)
    gang.wait(5000)
    assert not gang.hangs


def test_five_times_the_slowest_step_of_any_rank_is_the_limit() -> None:
    gang = Simulated()
    gang.train(20, 10)
    gang.train(1, 100)
    gang.wait(499)
    assert not gang.hangs
    gang.wait(3)
    (found,) = gang.hangs
    assert found.words == (
        "all ranks are in all_reduce: a connection between them hangs, or a GPU; no step for 502 s, learned limit 500 s"
    )
    assert not found.restarts


def test_fast_steps_leave_a_data_loader_minutes_all_the_same() -> None:
    gang = Simulated()
    gang.train(100, 0.01)
    gang.wait(299)
    assert not gang.hangs
    gang.wait(5)
    assert len(gang.hangs) == 1


def test_it_is_over_when_steps_go_on_and_comes_later_the_next_time() -> None:
    gang = Simulated()
    gang.train(20)
    gang.wait(310)
    assert gang.beat() is not None
    gang.train(1)
    assert gang.beat() is None
    gang.wait(1500)
    assert gang.beat() is None, "five times as long as that has taken"
    gang.wait(100)
    assert len(gang.hangs) == 2


def test_one_rank_that_makes_steps_is_enough() -> None:
    gang = Simulated(progressSeconds=10)
    gang.train(20)
    for _ in range(10):
        gang.wait(5)
        gang.pods[1].step(gang.now)
    assert not gang.hangs


def test_a_pod_that_has_not_reported_is_waited_for() -> None:
    gang = Simulated(progressSeconds=10)
    gang.train(20)
    gang.detector.paces.pop(1)
    assert gang.detector.check(gang.now + 100, range(2)) is None
    assert not gang.detector.number


@pytest.mark.parametrize("phase", ["Evaluation", "Saving"])
def test_a_phase_that_was_never_seen_has_no_limit_and_later_its_own(phase: str) -> None:
    gang = Simulated()
    gang.train(20)
    gang.enter(phase)
    gang.wait(600)
    assert not gang.hangs
    gang.enter("Step")
    gang.train(20)
    gang.enter(phase)
    gang.wait(5 * 600 - 1)
    assert not gang.hangs
    gang.wait(5)
    (found,) = gang.hangs
    assert found.words.endswith(f"{'saving' if phase == 'Saving' else 'evaluating'} for 3002 s, learned limit 3000 s")


def test_the_first_step_after_saving_counts_from_its_end() -> None:
    gang = Simulated(progressSeconds=100)
    gang.train(20)
    gang.enter("Saving")
    gang.wait(1000)
    gang.enter("Step")
    gang.wait(99)
    assert not gang.hangs
    gang.wait(5)
    assert len(gang.hangs) == 1


def test_tokenizing_and_a_long_first_step_are_no_hang() -> None:
    gang = Simulated(progressSeconds=10, checkpointSeconds=10, restart=True)
    gang.wait(1800)
    gang.enter("FirstStep")
    gang.wait(1800)
    assert not gang.hangs


@pytest.mark.parametrize("phases", [("Starting", "FirstStep"), ("FirstStep", "Starting"), ("FirstStep", "FirstStep")])
def test_a_given_limit_for_the_first_step_counts_from_the_start_of_the_ranks(phases: tuple[str, str]) -> None:
    gang = Simulated(firstStepSeconds=100)
    gang.wait(60)
    for pod, phase in zip(gang.pods, phases, strict=True):
        pod.enter(phase, gang.now)
    gang.wait(39)
    assert not gang.hangs
    gang.wait(5)
    assert gang.hangs[0].restarts
    assert "no first step for 102 s, limit 100 s" in gang.hangs[0].words


def test_ranks_that_train_nothing_beside_those_that_do_are_left_out() -> None:
    gang = Simulated(progressSeconds=10, firstStepSeconds=100)
    for _ in range(200):
        gang.wait(1)
        gang.pods[0].step(gang.now)
    assert not gang.hangs
    gang.wait(15)
    assert len(gang.hangs) == 1


def test_steps_that_another_source_tells_are_steps() -> None:
    gang = Simulated(progressSeconds=10)
    gang.train(20)
    for _ in range(10):
        gang.wait(5)
        gang.told = gang.now
    assert not gang.hangs


def test_a_program_without_engine_is_judged_by_the_steps_that_it_tells() -> None:
    gang = Simulated()
    for _ in range(20):
        gang.wait(100)
        gang.told = gang.now
    gang.wait(499)
    assert not gang.hangs
    gang.wait(5)
    assert len(gang.hangs) == 1


@pytest.mark.parametrize("given", [{}, {"progressSeconds": 1000}])
def test_at_the_end_of_a_training_only_what_is_given_counts(given: dict[str, int]) -> None:
    for ends in ({"complete": True}, {"left": "rank 3"}):
        gang = Simulated(**given)
        gang.train(20)
        vars(gang).update(ends)
        gang.wait(900)
        assert not gang.hangs
        gang.wait(200)
        assert len(gang.hangs) == len(given)
        assert all(("; rank 3 has ended with 0; " in each.words) is ("left" in ends) for each in gang.hangs)


def test_what_a_round_has_taught_counts_by_half_in_the_next() -> None:
    gang = Simulated()
    gang.train(20, 100)
    gang.again()
    gang.train(20, 200)
    gang.wait((500 + 1000) / 2 - 1)
    assert not gang.hangs
    gang.wait(5)
    assert "learned limit 750 s" in gang.hangs[0].words


def test_the_ranks_start_again_by_a_given_limit_or_where_the_job_says_so() -> None:
    for limits, restarts in (({"progressSeconds": 400}, True), ({"restart": True}, True), ({}, False)):
        gang = Simulated(**limits)
        gang.train(20)
        gang.wait(410)
        assert gang.hangs[0].restarts is restarts


def test_evidence_of_a_pod_that_does_not_tell_it_is_not_waited_for_longer_than_seconds() -> None:
    gang = Simulated(progressSeconds=10)
    gang.train(20)
    gang.silent = {1}
    gang.wait(20)
    assert not gang.hangs
    gang.wait(5)
    assert gang.hangs[0].words.startswith("rank 0 is in all_reduce; no step for 22 s")


def rank(number: int, **fields: Any) -> dict[str, Any]:
    return {**STANDING, "rank": number, **fields}


LOADS: dict[str, Any] = {"where": "dataloader.py:88 (fetch)", "collective": False}


@pytest.mark.parametrize(
    ("ranks", "words", "who"),
    [
        ([rank(0), rank(1, **LOADS), rank(2)], "rank 1 is in dataloader.py:88 (fetch), the others in all_reduce", 1),
        ([rank(0), rank(1, **LOADS)], "rank 1 is in dataloader.py:88 (fetch), rank 0 in all_reduce", 1),
        (
            [rank(0), rank(1, **LOADS), rank(2, **LOADS), rank(3)],
            "rank 1 is in dataloader.py:88 (fetch) (rank 2 is behind, too), the others in all_reduce",
            1,
        ),
        ([rank(0), rank(1, state="T", where="", collective=False)], "rank 1 is stopped (state T), rank 0 in all_r", 1),
        (
            [rank(0), rank(1, state="D", kernel="nfs_wait", where="", collective=False), rank(2, **LOADS)],
            "rank 1 is in uninterruptible sleep (state D, in nfs_wait of the kernel), the others in all_reduce (1), da",
            1,
        ),
        ([rank(0, state="D"), rank(1, **LOADS)], "rank 1 is in dataloader.py:88", 1),  # whoever tells a stack moves
        ([rank(0), rank(1, step=39)], "rank 1 is in all_reduce after step 39, rank 0 in all_reduce", 1),
        ([rank(0, step=None), rank(1, step=1)], "rank 0 is in all_reduce before its first step, rank 1 in", 0),
        ([rank(0), rank(1)], "all ranks are in all_reduce: a connection between them hangs, or a GPU", None),
        ([rank(0, **LOADS), rank(1, **LOADS)], "all ranks are in dataloader.py:88 (fetch)", None),
        (
            [rank(0), rank(1, where="barrier"), rank(2)],
            "perhaps rank 1 is behind: it is in barrier, the others in all_reduce",
            None,
        ),
        ([rank(0), rank(1, where="barrier")], "it is not certain which rank is behind: all_reduce (1), barrier", None),
        ([rank(0), rank(1, where="", collective=False)], "rank 1 is in an unknown place, rank 0 in all_reduce", 1),
        ([], "the agents could not see where the ranks are", None),
    ],
)
def test_who_is_behind(ranks: list[dict[str, Any]], words: str, who: int | None) -> None:
    found = behind.behind([behind.Standing(each["rank"] // 2, each) for each in ranks])
    assert found.words.startswith(words)
    assert found.rank == who
    assert found.pod == (None if who is None else who // 2)


@pytest.mark.parametrize(
    ("loads", "words"),
    [
        (["loads", "none"], "; rank 1 found no checkpoint to load, where rank 0 loads one"),
        (["none", "found", "loads", "none"], "; ranks 0, 3 found no checkpoint to load, where ranks 1, 2 load one"),
        (["none", ""], ""),
        (["none", "none"], ""),
        (["found", "loads"], ""),
    ],
)
def test_ranks_of_which_some_found_no_checkpoint_are_told_before_any_step(loads: list[str], words: str) -> None:
    def told(**fields: Any) -> str:
        ranks = [rank(number, load=each, **fields) for number, each in enumerate(loads)]
        return behind.loads_apart([behind.Standing(0, each) for each in ranks])

    assert told(step=None) == words
    assert told(step=1) == ""


def test_a_hang_tells_who_found_no_checkpoint() -> None:
    gang = Simulated(firstStepSeconds=10)
    for pod, told in zip(gang.pods, ("loads", "none"), strict=True):
        gang.standings[pod.index] |= {"step": None, "load": told}
        pod.enter("FirstStep", 0.0)
    gang.wait(20)
    assert "; rank 1 found no checkpoint to load, where rank 0 loads one; no first step for" in gang.hangs[0].words


TORCH = "/usr/lib/python3.12/site-packages/torch"
STACKS = {
    f"""Thread 0x1 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait

Current thread 0x2 (most recent call first):
  File "{TORCH}/distributed/distributed_c10d.py", line 2810 in all_reduce
  File "{TORCH}/distributed/c10d_logger.py", line 81 in wrapper
  File "/usr/lib/python3.12/site-packages/deepspeed/comm/torch.py", line 146 in all_reduce
  File "/app/train.py", line 30 in main
""": ("all_reduce", True),
    f"""Thread 0x1 [autograd] (most recent call first):
  File "{TORCH}/distributed/distributed_c10d.py", line 4 in reduce_scatter_tensor
  File "/usr/lib/python3.12/site-packages/deepspeed/runtime/zero/stage3.py", line 1 in reduce

Thread 0x2 (most recent call first):
  File "{TORCH}/autograd/graph.py", line 823 in _engine_run_backward
  File "/app/train.py", line 30 in main
""": ("reduce_scatter_tensor", True),
    f"""Current thread 0x2 (most recent call first):
  File "/usr/lib/python3.12/selectors.py", line 415 in select
  File "/usr/lib/python3.12/multiprocessing/connection.py", line 1136 in wait
  File "{TORCH}/utils/data/dataloader.py", line 1251 in _try_get_data
  File "/app/train.py", line 30 in main
""": ("dataloader.py:1251 (_try_get_data)", False),
    f"""Current thread 0x2 (most recent call first):
  File "{TORCH}/cuda/__init__.py", line 1040 in synchronize
  File "/app/train.py", line 30 in main
""": ("synchronize", True),
    """Current thread 0x2 (most recent call first):
  File "/usr/lib/python3.12/site-packages/deepspeed/runtime/zero/stage3.py", line 3042 in has_overflow
  File "/usr/lib/python3.12/site-packages/deepspeed/runtime/engine.py", line 2500 in step
  File "/app/train.py", line 31 in main
""": ("stage3.py:3042 (has_overflow)", True),
    """Current thread 0x2 (most recent call first):
  File "/app/train.py", line 20 in forward
  File "/usr/lib/python3.12/site-packages/deepspeed/runtime/engine.py", line 2100 in forward
  File "/app/train.py", line 30 in main
""": ("train.py:20 (forward)", False),
    'Current thread 0x2 (most recent call first):\n  File "/usr/lib/python3.12/selectors.py", line 415 in select\n': (
        "selectors.py:415 (select)",
        False,
    ),
    "": ("", False),
    "Fatal Python error\n  <no Python frame>": ("", False),
}


@pytest.mark.parametrize("stacks", STACKS)
def test_where_the_main_thread_is(stacks: str) -> None:
    assert load("dso_evidence").where(stacks) == STACKS[stacks]
