"""A rank fails while the pods are well: the ranks of all pods start again where they are, without anybody's help."""

import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import AGENT, Ended, Gang, Running, failure_policy, rule

Make = Callable[..., Gang]

# Each start of a rank says so, and a step is seen of it: a failure after one is no lack of progress.
# None goes on before all have started, so that no other's failure ends it before.
START = """
import os, signal, subprocess, sys, time
rank, restarts = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print(f"start {restarts} of rank {rank} at port {os.environ['MASTER_PORT']}", flush=True)
print("step=3, skipped=0, lr=[0.1]", flush=True)
open(f"started-{restarts}-{rank}", "w").close()
while not all(os.path.exists(f"started-{restarts}-{each}") for each in range(int(os.environ["WORLD_SIZE"]))):
    time.sleep(0.01)
"""


def restarting(gang: Make, script: str, nodes: int = 2, policy: dict[str, Any] | None = None, **more: Any) -> Gang:
    launch = {"failurePolicy": failure_policy(**(policy or {})), **more.pop("launch", {})}
    return gang(nodes=nodes, script=START + script, launch=launch, **more)


def round_of(running: Running) -> int:
    """The round that the pod plays or waits for; 0 before it answers."""
    return running.get("/state")[1]["round"] if running.ask("/livez") else 0


def starts(ended: Ended | Running) -> list[str]:
    return re.findall(r"start (\d+ of rank \d+ at port \d+)", ended.output)


@pytest.mark.parametrize(
    ("failing", "end", "reason", "words"),
    [
        (0, "sys.exit(1)", "RankFailed", "exited with code 1"),
        (1, "raise ValueError('loss is NaN')", "UserError", "exited with code 1: ValueError: loss is NaN"),
        (1, "os.kill(os.getpid(), 9)", "RankFailed", "was killed by signal 9"),
        (0, "os.kill(os.getpid(), 11)", "Segfault", "was killed by signal 11"),
    ],
)
def test_ranks_start_again_in_the_same_pods_at_the_next_port(
    gang: Make, failing: int, end: str, reason: str, words: str
) -> None:
    script = f"if restarts == 0:\n    if rank == {failing}:\n        {end}\n    time.sleep(60)"
    ended = restarting(gang, script).run()
    assert [(each.code, each.cause["reason"], each.cause["round"]) for each in ended] == [(0, "Completed", 2)] * 2
    for rank, each in enumerate(ended):
        assert starts(each) == [f"0 of rank {rank} at port 29500", f"1 of rank {rank} at port 29501"]
    budget = "infrastructure" if "signal" in words else "user"
    assert f"[deepspeed-operator] round 2 begins: rank {failing} in pod pretrain-1-{failing} {words}" in ended[0].output
    assert f"; restart 1 of {20 if budget == 'infrastructure' else 3} ({budget}); detected in " in ended[0].output
    rounds = ended[1].cause["rounds"]
    assert (rounds["number"], rounds[budget], rounds["user"] + rounds["infrastructure"]) == (2, 1, 1)
    last = rounds["last"]
    assert (last["reason"], last["rank"], last["pod"]) == (reason, failing, f"pretrain-1-{failing}")


def test_what_is_left_of_the_budget_is_all_there_is(gang: Make) -> None:
    script = "raise ValueError(f'attempt at {restarts}')"
    ended = restarting(gang, script, nodes=1, policy={"restarts": {"user": 2, "infrastructure": 20}}).run()[0]
    assert (ended.code, ended.cause["signature"], ended.cause["round"]) == (1, "ValueError: attempt at 2", 3)
    assert ended.cause["rounds"]["user"] == 2
    assert ended.cause["rounds"]["last"]["time"] <= time.time()
    assert "do not start again in their pods: no restart is left of 2 (user)" in ended.output


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (
            [rule(exitCodes=[9]), rule(exitCodes=[3], action="Fail"), rule()],
            "a rule of the failure policy ends the run",
        ),
        ([rule(pattern="no (more|less) data", inPlace=False), rule()], "after RankFailed the pod is not used again"),
    ],
)
def test_a_rule_may_leave_no_restart_in_place(gang: Make, rules: list[dict[str, Any]], words: str) -> None:
    script = "print('no more data', flush=True); sys.exit(3)"
    ended = restarting(gang, script, policy={"rules": rules}).run()
    assert [(each.code, each.cause["round"], each.cause["rounds"]["number"]) for each in ended] == [(3, 1, 1)] * 2
    assert words in ended[0].output


def test_what_does_not_count_leaves_the_budget_as_it_is(gang: Make) -> None:
    rules = [rule(signals=[9], action="RestartWithoutCounting", budget="infrastructure"), rule()]
    policy = {"rules": rules, "restarts": {"user": 0, "infrastructure": 0}}
    (ended,) = restarting(gang, "if restarts < 1: os.kill(os.getpid(), 9)", nodes=1, policy=policy).run()
    assert ended.code == 0
    counts = {name: ended.cause["rounds"][name] for name in ("number", "user", "infrastructure", "uncounted")}
    assert counts == {"number": 2, "user": 0, "infrastructure": 0, "uncounted": 1}
    assert "; a restart that does not count; " in ended.output


def test_several_failures_at_once_are_one(gang: Make) -> None:
    ended = restarting(gang, "if restarts == 0: sys.exit(10 + rank)", slots=2).run()
    assert [(each.code, each.cause["rounds"]["user"]) for each in ended] == [(0, 1)] * 2


def test_ranks_that_fail_while_they_are_stopped_change_nothing(gang: Make) -> None:
    script = """
if restarts == 0:
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), sys.exit(3)))
    time.sleep(0.2)
    if rank == 0:
        sys.exit(7)
    time.sleep(60)
if restarts == 1 and rank == 1:
    sys.exit(9)
"""
    ended = restarting(gang, script, nodes=3).run()
    assert [(each.code, each.cause["rounds"]["user"], each.cause["round"]) for each in ended] == [(0, 2, 3)] * 3
    stories = [line for line in ended[0].output.splitlines() if " begins: " in line]
    assert ["exited with code 7" in stories[0], "exited with code 9" in stories[1], len(stories)] == [True, True, 2]


def test_the_same_failure_without_a_step_between_ends_the_run(gang: Make) -> None:
    script = START.replace("print('step", "#").replace('print("step', "#") + "os.kill(os.getpid(), 9)"
    kept = {"key": None, "count": 0}
    policy = failure_policy(repeated=kept)
    (ended,) = gang(script=script, launch={"failurePolicy": policy}).run(DEEPSPEED_OPERATOR_NODE="")
    assert (ended.code, ended.cause["round"]) == (137, 3)
    assert "the same failure 3 times in a row, without a step between them" in ended.output
    assert ended.cause["rounds"]["repeated"]["count"] == 2
    kept = ended.cause["rounds"]["repeated"]
    policy = failure_policy(repeated=kept)
    (ended,) = gang(script=script, launch={"failurePolicy": policy}).run(DEEPSPEED_OPERATOR_NODE="")
    assert ended.cause["round"] == 1


def test_a_users_error_before_the_first_step_is_tried_twice(gang: Make) -> None:
    script = START.replace('print("step', "#") + "import no_such_module"
    (ended,) = gang(script=script, launch={"failurePolicy": failure_policy()}).run()
    assert (ended.code, ended.cause["round"], ended.cause["stepped"]) == (1, 2, None)


def test_a_second_failure_on_a_node_leaves_its_pod(gang: Make) -> None:
    ended = restarting(gang, "if rank == 1: os.kill(os.getpid(), 9)").run()
    assert [(each.code, each.cause["round"]) for each in ended] == [(137, 2)] * 2
    assert "the second failure on node node1" in ended[0].output


def test_readiness_follows_the_ranks_and_a_pause_comes_before_the_second_restart(gang: Make) -> None:
    script = "if restarts < 2: sys.exit(1 + restarts)\ntime.sleep(60)"
    backoff = {"baseSeconds": 15, "maxSeconds": 300, "healthySeconds": 600}
    first, second = restarting(gang, script, policy={"backoff": backoff}).start_all()
    second.wait_for(lambda: second.output.count("stopping, ") == 2)
    first.wait_for(lambda: first.get("/state")[1]["phase"] == "Waiting")
    assert [each.ask("/readyz") for each in (first, second)] == [503, 503]
    state = first.get("/state")[1]
    assert (state["round"], state["rounds"]["number"], state["rounds"]["user"]) == (3, 2, 1)
    for each in (first, second):
        each.wait_until_ready()
    state = first.get("/state")[1]
    assert (state["round"], state["rounds"]["number"], state["rounds"]["user"]) == (3, 3, 2)
    assert re.search("paused until 1[2-8] s were over", first.output)  # 15 s, 20 % more or less


@pytest.mark.parametrize("stopped", [0, 1])
def test_sigterm_between_rounds(gang: Make, stopped: int) -> None:
    script = "if rank == 1: sys.exit(1 + restarts)\ntime.sleep(60)"
    backoff = {"baseSeconds": 300, "maxSeconds": 300, "healthySeconds": 600}
    running = restarting(gang, script, policy={"backoff": backoff}).start_all()
    running[0].wait_for(lambda: round_of(running[0]) == 3)
    running[stopped].signal(signal.SIGTERM)
    ended = [each.end() for each in running]
    assert [(each.code, each.cause["reason"]) for each in ended] == [(143, "Terminated")] * 2
    assert [(each.cause["index"], each.cause["rounds"]["user"]) for each in ended] == [(stopped, 1)] * 2


def test_sigterm_while_ranks_are_stopped_for_another_round(gang: Make) -> None:
    script = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while rank == 1 and not os.path.exists("fails"):
    time.sleep(0.02)
if rank == 1: sys.exit(1)
time.sleep(60)
"""
    made = restarting(gang, script, slots=2)
    running = made.start_all()
    for rank in range(4):
        running[rank // 2].wait_for_output(f"start 0 of rank {rank}")
    running[1].signal(signal.SIGSTOP)  # no round begins without it
    (made.code / "fails").touch()
    running[0].wait_for_output("stopping, RankFailed")
    running[0].signal(signal.SIGTERM)
    running[0].wait_for_output("stopping, Terminated")
    running[1].signal(signal.SIGCONT)
    ended = [each.end() for each in running]
    assert [(each.code, each.cause["reason"]) for each in ended] == [(143, "Terminated")] * 2
    assert all(len(starts(each)) == 2 for each in ended)


def test_a_pod_that_vanishes_between_rounds_is_lost(gang: Make) -> None:
    script = "if restarts < 2: sys.exit(1 + restarts)\ntime.sleep(60)"
    policy = {"backoff": {"baseSeconds": 300, "maxSeconds": 300, "healthySeconds": 600}}
    running = restarting(gang, script, policy=policy, launch={"fenceSeconds": 10}).start_all()
    running[0].wait_for(lambda: round_of(running[0]) == 3)
    running[1].signal(signal.SIGKILL)
    assert running[0].end().cause["reason"] == "PeerLost"


def test_a_member_that_is_cut_off_between_rounds_plays_the_next_one_once(gang: Make, tmp_path: Path) -> None:
    made = restarting(gang, "if restarts == 0:\n    if rank == 0: sys.exit(1)\n    time.sleep(60)\ntime.sleep(2)")
    proxy = Proxy(made.hosts[0], made.port)
    first = made.start(0)
    cut_off = tmp_path / "etc"
    shutil.copytree(made.directory / "etc", cut_off)
    (cut_off / "hostfile").write_text(f"{proxy.host} slots=1\n{made.hosts[1]} slots=1\n")
    second = made.start(1, DEEPSPEED_OPERATOR_DIR=str(cut_off))
    second.wait_for_output("start 0 of rank 1")
    proxy.cut()
    first.wait_for(lambda: round_of(first) == 2)
    assert len(starts(second)) == 1
    proxy.mend()
    ended = [each.end() for each in (first, second)]
    assert [(each.code, each.cause["round"], len(starts(each))) for each in ended] == [(0, 2, 2)] * 2


class Proxy:
    """Between a member and the hub: passes all on, or cuts what is under way and takes nothing more."""

    def __init__(self, host: str, port: int) -> None:
        self.target = host, port
        self.host = f"{host.rpartition('.')[0]}.200"
        self.open: list[socket.socket] = []
        self.is_cut = False
        self.listener = socket.create_server((self.host, port))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            caller, _ = self.listener.accept()
            if self.is_cut:
                caller.close()
                continue
            try:
                hub = socket.create_connection(self.target)
            except OSError:  # it does not listen yet
                caller.close()
                continue
            self.open += [caller, hub]
            for source, sink in ((caller, hub), (hub, caller)):
                threading.Thread(target=self.copy, args=(source, sink), daemon=True).start()

    def copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        self.is_cut = True
        for each in self.open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.is_cut = False


def test_an_agent_that_fails_before_a_later_round_ends_as_that_round(gang: Make, tmp_path: Path) -> None:
    broken = tmp_path / "agent"
    shutil.copytree(AGENT, broken)
    with (broken / "dso_shm.py").open("a") as module:
        module.write("\ndef broken(self):\n    raise ValueError('broken')\nSharedMemory.clear = broken\n")
    (ended,) = restarting(gang, "sys.exit(1)", nodes=1, agent=broken).run()
    assert (ended.cause["reason"], ended.cause["signature"]) == ("AgentError", "ValueError: broken"), ended.output
    assert ended.cause["round"] == 2
