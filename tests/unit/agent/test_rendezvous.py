"""Who may join, who is waited for, and what is said of those who never come."""

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.unit.agent.harness import TOKEN, Gang, launch_of, load

Make = Callable[..., Gang]
UNRESOLVABLE = "no-such-host.invalid"


def test_who_is_missing_at_the_deadline_is_named_by_all(gang: Make) -> None:
    made = gang(nodes=14, launch={"startupDeadlineSeconds": 10})
    running = [made.start(0), made.start(2)]
    ended = [each.end() for each in running]
    cause = ended[0].cause
    assert (cause["reason"], cause["index"], cause["pod"]) == ("PeersMissing", 1, "pretrain-1-1")
    named = ", ".join(made.hosts[index] for index in [1, *range(3, 12)])
    assert cause["signature"] == f"12 of 14 hosts did not start within 10 s: {named}, …"
    assert ended[1].cause == cause
    assert [each.code for each in ended] == [1, 1]


def test_a_host_that_does_not_resolve_is_named(gang: Make) -> None:
    made = gang(nodes=2, launch={"startupDeadlineSeconds": 8})
    made.hosts[0] = UNRESOLVABLE
    ended = made.start(1).end()
    assert (ended.code, ended.cause["reason"], ended.cause["index"]) == (1, "HostNotResolved", 0)
    assert UNRESOLVABLE in ended.cause["signature"]


def test_rank_0_waits_until_its_own_name_resolves(gang: Make) -> None:
    made = gang(launch={"startupDeadlineSeconds": 8})
    made.hosts[0] = UNRESOLVABLE
    assert made.start(0).end().cause["reason"] == "HostNotResolved"


def test_rank_0_that_never_starts_is_missing(gang: Make) -> None:
    made = gang(nodes=2, launch={"startupDeadlineSeconds": 8})
    ended = made.start(1).end()
    assert (ended.cause["reason"], ended.cause["index"]) == ("PeersMissing", 0)
    assert made.hosts[0] in ended.cause["signature"]


def test_a_host_with_a_name_is_served_on_every_interface(gang: Make) -> None:
    # Other gangs have ports below 30,000, each on an address of its own, of which one is in the way of every interface.
    made = gang(hosts=["localhost"], port=30999, script="import time; time.sleep(60)")
    running = made.start()
    running.wait_until_ready()
    for running.host in ("127.0.0.1", "127.9.9.9"):
        assert running.ask("/readyz") == 200


def test_peers_may_come_in_any_order_and_late(gang: Make) -> None:
    made = gang(nodes=3)
    running = [made.start(2)]
    time.sleep(0.3)
    running.append(made.start(0))
    time.sleep(0.3)
    running.append(made.start(1))
    assert [each.end().code for each in running] == [0, 0, 0]


def test_who_does_not_know_the_token_is_refused_with_the_reason(gang: Make) -> None:
    """An agent of another job, or of another attempt, to which rank 0's address has come."""
    here = gang(nodes=2)
    other = gang(nodes=2, hosts=here.hosts, port=here.port, token="another", launch={"startupDeadlineSeconds": 10})
    hub = here.start(0)
    hub.wait_for(lambda: hub.ask("/livez") == 200)
    ended = other.start(1).end()
    assert list(hub.get("/state")[1]["refused"].values()) == [
        "it does not know the token of the attempt that runs here"
    ]
    assert ended.cause["reason"] == "PeersMissing"
    assert "refused this pod: it does not know the token of the attempt that runs here" in ended.cause["signature"]


def test_the_uid_ends_no_run_and_a_stranger_learns_nothing_but_the_phase(gang: Make) -> None:
    made = gang(script="import time; time.sleep(60)")
    running = made.start(0)
    running.wait_until_ready()
    cause = {"reason": "RankFailed", "signature": "a lie", "index": 0}
    for token in ("", "guessed", "job-uid", "\u00e4"):
        said = [running.get(path, token) for path in ("/state", "/livez", "/readyz")]
        assert said == [(200, {"phase": "Running"})] * 3
        with closing(HTTPConnection(running.host, made.port, timeout=30)) as connection:
            headers = {"Authorization": f"Bearer {token}".encode()}
            connection.request("POST", "/heartbeat", json.dumps(heartbeat(0, "Stopping", cause=cause)), headers)
            assert connection.getresponse().status == 403
    time.sleep(0.5)
    assert running.get("/state")[1]["phase"] == "Running"
    assert TOKEN not in running.output


def test_an_attempt_without_a_token_does_not_start(gang: Make) -> None:
    made = gang(token="\n")
    ended = made.start(0).end()
    assert (ended.code, ended.cause["reason"]) == (1, "AgentError")
    assert "token is empty" in ended.cause["signature"]


@pytest.mark.parametrize("variable", ["JOB_UID", "ATTEMPT"])
def test_an_agent_with_another_pods_launch_document_ends_at_once(gang: Make, variable: str) -> None:
    own = {"DEEPSPEED_OPERATOR_JOB_UID": "job-uid", "DEEPSPEED_OPERATOR_ATTEMPT": "1"}
    made = gang()
    stale = made.start(0, wrapper=(), **{**own, f"DEEPSPEED_OPERATOR_{variable}": "2"}).end()
    assert (stale.code, stale.cause["reason"], stale.cause["index"]) == (1, "StaleLaunchDocument", 0)
    assert "its launch document is that of attempt 1 of the job with uid job-uid" in stale.cause["signature"]
    assert "trained" not in stale.output
    assert made.start(0, wrapper=(), **own).end().code == 0


def test_a_replaced_pod_takes_its_index_before_the_start(gang: Make) -> None:
    made = gang(nodes=3, script="import time; time.sleep(60)")
    first = made.start(0)
    lost = made.start(1)
    first.wait_for(lambda: first.ask("/livez") == 200 and first.get("/state")[1]["hosts"]["registered"] == 2)
    lost.process.kill()
    lost.process.wait()
    replacement = made.start(1, DEEPSPEED_OPERATOR_POD_UID="replacement")
    replacement.wait_for(lambda: replacement.ask("/livez") == 200)
    replacement.wait_for(lambda: replacement.get("/state")[1]["hosts"]["registered"] == 2)
    second = made.start(2)
    for running in (first, replacement, second):
        running.wait_until_ready()


def hub(nodes: int) -> Any:
    return load("dso_hub").Hub(launch_of(nodes, 8, startupDeadlineSeconds=60, fenceSeconds=20), 0.0)


def heartbeat(index: int, phase: str = "Waiting", **more: Any) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "pod": f"pretrain-1-{index}",
        "podUid": f"uid-{index}",
        "node": f"node{index}",
        "addresses": [],
        "replacement": 0,
        "fenced": False,
    }
    attempt: dict[str, Any] = {"protocol": 3, "uid": "job-uid", "attempt": 1, "index": index, **pod}
    news = dict.fromkeys(
        ("cause", "ago", "left", "stepped", "stuck", "transport", "world", "ranks", "ahead", "endings", "pace")
    )
    known = [1, 0 if phase == "Waiting" else 1]
    return {
        **attempt,
        "round": 1,
        "phase": phase,
        "knows": known,
        "stopSeconds": 0.0,
        "hang": 0,
        "evidence": None,
        **news,
        **more,
    }


def test_after_the_release_another_pod_of_the_same_index_is_refused() -> None:
    gang = hub(2)
    gang.heartbeat(heartbeat(0), 1.0)
    gang.heartbeat(heartbeat(1), 1.0)
    status, answer = gang.heartbeat(heartbeat(1, podUid="intruder"), 2.0)
    assert status == 409
    assert "the ranks run, with pod pretrain-1-1 uid uid-1 as index 1" in answer["refused"]


def test_a_pod_that_registered_and_died_does_not_start_the_ranks() -> None:
    gang = hub(3)
    gang.heartbeat(heartbeat(0), 1.0)
    gang.heartbeat(heartbeat(1), 1.0)
    for moment in range(2, 20):
        gang.heartbeat(heartbeat(0), float(moment))
        gang.check(float(moment))
    gang.heartbeat(heartbeat(2), 20.0)
    assert (gang.round.opened, gang.missing()) == (False, [1])
    gang.heartbeat(heartbeat(1, podUid="replacement"), 20.5)
    assert gang.round.opened


def test_what_agents_cost_rank_0_grows_with_their_number_and_no_faster() -> None:
    def life(nodes: int) -> None:
        gang = hub(nodes)
        for index in range(nodes):
            gang.heartbeat(heartbeat(index), 1.0)
        assert gang.round.opened
        for moment in range(2, 7):
            for index in range(nodes):
                assert gang.heartbeat(heartbeat(index, "Running"), float(moment))[0] == 200
            gang.check(float(moment))

    assert instructions(lambda: life(1000)) < 1.2 * 5 * instructions(lambda: life(200))


def instructions(work: Callable[[], None]) -> int:
    """Count what the interpreter executes: a machine's moods do not change it, as they do the time that it takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(("phase", "lost"), [("Running", True), ("Finished", False)])
def test_only_who_still_runs_owes_signs_of_life(phase: str, lost: bool) -> None:
    gang = hub(3)
    for index in range(3):
        gang.heartbeat(heartbeat(index), 1.0)
    gang.heartbeat(heartbeat(1, phase), 2.0)
    for moment in range(3, 40):
        gang.heartbeat(heartbeat(0, "Running"), float(moment))
        gang.heartbeat(heartbeat(2, "Running"), float(moment))
        gang.check(float(moment))
    assert (gang.round.cause is not None) is lost
    assert not lost or (gang.round.cause["reason"], gang.round.cause["node"]) == ("PeerLost", "node1")


def test_beats_are_held_longer_the_more_nodes_there_are() -> None:
    assert [hub(nodes).launch.hold for nodes in (1, 100, 1000, 10000)] == [1.0, 1.0, 2.0, 5.0]


@pytest.mark.parametrize("nodes", [200])
def test_two_hundred_agents_start_within_a_second_of_the_last(gang: Make, nodes: int) -> None:
    """One real rank 0; its peers are bare calls, held open like real ones."""
    made = gang(nodes=nodes, script="import time; time.sleep(60)")
    first = made.start(0)
    first.wait_for(lambda: first.ask("/livez") == 200)
    http = load("dso_http")
    address = [(2, 1, 6, "", (made.hosts[0], made.port))]
    answers: list[Any] = []

    def call(index: int) -> None:
        answer = {"opened": False}
        while not answer["opened"]:
            _, answer = http.post(address, "/heartbeat", heartbeat(index, wait=True), TOKEN, 90)
        answers.append(answer)

    callers = [threading.Thread(target=call, args=(index,)) for index in range(1, nodes - 1)]
    for caller in callers:
        caller.start()
    first.wait_for(lambda: first.get("/state")[1]["hosts"]["registered"] == nodes - 1)
    begun = time.monotonic()
    call(nodes - 1)
    first.wait_until_ready()
    assert time.monotonic() - begun < 60, "not when their calls time out"
    for caller in callers:
        caller.join()
    assert len(answers) == nodes - 1


def test_rank_0_waits_until_the_result_is_sent_and_not_just_decided() -> None:
    gang = hub(2)
    for phase in ("Waiting", "Finished"):
        replies = [(body, gang.heartbeat(body, 1.0)[1]) for body in (heartbeat(0, phase), heartbeat(1, phase))]
    assert gang.round.finished
    assert not gang.all_informed()
    gang.sent(*replies[1])
    gang.sent(heartbeat(0, "Finished"), gang.reply(heartbeat(0, "Finished")))
    assert gang.all_informed()


COUNTING_RESOLVER = """\
import socket
found = socket.getaddrinfo
def counted(*arguments, **more):
    print("look-up", flush=True)
    return found(*arguments, **more)
socket.getaddrinfo = counted
"""


def test_an_address_that_answered_is_not_looked_up_again(gang: Make, tmp_path: Path) -> None:
    """Else a slow name server would keep pods away for so long that rank 0 takes them for gone, and never starts."""
    (tmp_path / "sitecustomize.py").write_text(COUNTING_RESOLVER)
    waiting = gang(nodes=2, options=("-u",)).start(0, PYTHONPATH=str(tmp_path))
    waiting.wait_for_output("look-up")
    time.sleep(4)
    assert waiting.output.count("look-up") == 1
