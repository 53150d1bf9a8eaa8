"""What the hub makes of pods that are lost, of those that take their places, and of lost ones that come back."""

from typing import Any

import pytest

from tests.unit.agent.harness import failure_policy, launch_of, load, rule
from tests.unit.agent.test_hub_rounds import CAUSE, tell

NODES = 4
WAITS = 100  # seconds, for a pod in the place of one that is lost
FENCED_AFTER = 25.0  # 20 s without an answer, and what ranks need to end
LOSS = {**CAUSE, "reason": "Terminated", "rank": None, "signal": 15, "signature": "stopped by SIGTERM from outside"}
SECOND: dict[str, Any] = {"pod": "pretrain-1-1-r1", "podUid": "uid-r1", "node": "node9", "replacement": 1}


def hub(**policy: Any) -> Any:
    """One whose first round runs, and which waits for replacements."""
    given = failure_policy(**{"replacementSeconds": WAITS, **policy})
    made = load("dso_hub").Hub(launch_of(NODES, failurePolicy=given), 0.0)
    for index in range(NODES):
        tell(made, index, 1, "Waiting", 1.0)
    assert made.round.opened
    return made


def survive(gang: Any, now: float, lost: tuple[int, ...] = (1,)) -> None:
    """All pods but these tell that they wait for the round that the hub prepares."""
    for index in set(range(NODES)) - set(lost):
        tell(gang, index, gang.round.number, "Waiting", now)
    gang.check(now)


def join(gang: Any, now: float, **more: Any) -> dict[str, Any]:
    """The replacement of pod 1 registers, and waits for the round of which the answer tells it."""
    pod = {**SECOND, "fenced": True, **more}
    answer = tell(gang, 1, 1, "Waiting", now, **pod)
    return tell(gang, 1, answer["round"], "Waiting", now, **pod)


def test_another_pod_takes_the_place_of_one_that_was_told_to_end() -> None:
    gang = hub()
    answer = tell(gang, 1, 1, "Stopping", 2.0, cause=LOSS)
    assert answer["cause"]["reason"] == "Terminated", "the pod that is told to end has no other round"
    answer = tell(gang, 0, 1, "Running", 2.1)
    assert (answer["round"], answer["cause"], answer["over"]["reason"]) == (2, None, "Terminated")
    survive(gang, 3.0)
    assert not gang.round.opened
    answer = join(gang, 8.0)
    assert (answer["round"], answer["opened"], answer["cause"]) == (2, True, None)
    assert answer["rounds"]["infrastructure"] + answer["rounds"]["user"] == 1
    assert gang.missing() == []


def test_of_a_pod_whose_end_nobody_saw_the_round_waits_until_its_ranks_have_ended_for_sure() -> None:
    gang = hub()
    tell(gang, 1, 1, "Running", 5.0)
    for moment in range(6, 26):
        survive(gang, float(moment))
    assert gang.round.number == 1
    survive(gang, 25.5)
    assert gang.restarts.pending_cause["signature"].startswith("no sign of life from pod pretrain-1-1")
    survive(gang, 26.0)
    assert not join(gang, 5.0 + FENCED_AFTER - 1, fenced=False)["opened"]
    survive(gang, 5.0 + FENCED_AFTER)
    assert gang.round.opened


def test_a_replacement_that_comes_before_the_hub_misses_the_pod_ends_the_round() -> None:
    gang = hub()
    answer = join(gang, 3.0)
    assert (answer["round"], answer["opened"], gang.restarts.pending_cause["pod"]) == (2, False, "pretrain-1-1")
    assert "pretrain-1-1-r1 takes its place" in gang.restarts.pending_cause["signature"]
    survive(gang, 4.0)
    assert gang.round.opened


def test_a_lost_pod_that_comes_back_is_told_to_end_and_is_not_waited_for() -> None:
    gang = hub()
    join(gang, 3.0, fenced=False)
    for moment in range(4, 45):
        if moment < 15:
            answer = tell(gang, 1, 1, "Stopping", float(moment))
            assert answer["cause"]["reason"] == "PeerLost"
        survive(gang, float(moment))
        join(gang, float(moment), fenced=False)
        assert gang.round.opened == (moment >= 14 + FENCED_AFTER), "its ranks end, or it falls silent"
    assert (gang.round.number, gang.cause) == (2, None)


def test_an_older_pod_than_the_one_that_was_lost_is_refused() -> None:
    gang = hub()
    join(gang, 3.0)
    survive(gang, 4.0)
    tell(gang, 1, 2, "Stopping", 5.0, **{**SECOND, "fenced": True}, cause=LOSS)
    body = {"protocol": 3, "uid": "job-uid", "attempt": 1, "index": 1, "podUid": "unheard of", "replacement": 0}
    status, answer = gang.heartbeat(body, 6.0)
    assert (status, "pretrain-1-1-r1" in answer["refused"]) == (409, True)


def test_without_a_replacement_in_time_the_attempt_ends_as_the_pod_did() -> None:
    gang = hub()
    tell(gang, 1, 1, "Stopping", 2.0, cause=LOSS)
    for moment in range(3, WAITS + 3):
        survive(gang, float(moment))
        assert not gang.decided
    survive(gang, WAITS + 3.0)
    assert (gang.cause["reason"], gang.cause["index"]) == ("Terminated", 1)
    assert gang.restarts.refused == f"no pod took the place of pretrain-1-1 within {WAITS} s"
    assert tell(gang, 0, 2, "Waiting", WAITS + 4.0)["rounds"]["infrastructure"] == 0


def test_another_pod_that_is_lost_meanwhile_is_waited_for_as_well() -> None:
    gang = hub()
    tell(gang, 1, 1, "Stopping", 2.0, cause=LOSS)
    survive(gang, 3.0, lost=(1, 2))
    tell(gang, 2, 2, "Waiting", 3.0, cause={**LOSS, "index": 2, "pod": "pretrain-1-2", "node": "node2"})
    survive(gang, 4.0, lost=(1, 2))
    join(gang, 5.0)
    survive(gang, 6.0, lost=(1, 2))
    assert not gang.round.opened
    third = {"pod": "pretrain-1-2-r2", "podUid": "uid-r2", "node": "node8", "replacement": 2, "fenced": True}
    answer = tell(gang, 2, gang.round.number, "Waiting", 7.0, **third)
    assert (answer["opened"], answer["cause"]) == (True, None)
    assert answer["rounds"]["infrastructure"] + answer["rounds"]["user"] == 1, "one start of the ranks"


@pytest.mark.parametrize(
    ("policy", "index"),
    [({"replacementSeconds": 0}, 1), ({"restartInPlace": False}, 1), ({}, 0)],
    ids=["no time to wait", "not in place", "the hub's own pod"],
)
def test_where_no_pod_is_replaced_the_attempt_ends(policy: dict[str, Any], index: int) -> None:
    gang = hub(**policy)
    tell(gang, index, 1, "Stopping", 2.0, cause={**LOSS, "index": index})
    assert gang.cause["reason"] == "Terminated"


def test_where_more_than_half_are_lost_the_attempt_ends() -> None:
    gang = hub()
    for index in (1, 2, 3):
        assert not gang.decided
        cause = {**LOSS, "index": index, "pod": f"pretrain-1-{index}", "node": f"node{index}"}
        tell(gang, index, gang.round.number, "Waiting", 2.0, cause=cause)
    assert gang.cause["index"] == 3


def test_a_pod_whose_node_is_at_fault_goes_and_the_others_stay() -> None:
    gang = hub(rules=[rule(reasons=["DeviceFault"], inPlace=False, budget="infrastructure"), rule()])
    fault = {**CAUSE, "reason": "DeviceFault", "signature": "CUDA error: uncorrectable ECC error encountered"}
    assert tell(gang, 1, 1, "Stopping", 2.0, cause=fault)["cause"]["reason"] == "DeviceFault"
    survive(gang, 3.0)
    assert join(gang, 9.0)["opened"]


def test_disruptions_are_no_failures_that_come_again_and_again() -> None:
    gang = hub(restarts={"user": 0, "infrastructure": 9}, rules=[rule(budget="infrastructure")])
    for number in range(5):
        now, own = 10.0 * number + 10, {"podUid": f"uid-1-{number}", "replacement": number}
        tell(gang, 1, number + 1, "Stopping", now, cause=LOSS, **(own if number else {}))
        survive(gang, now + 1)
        after = {"podUid": f"uid-1-{number + 1}", "replacement": number + 1, "fenced": True}
        answer = tell(gang, 1, number + 2, "Waiting", now + 2, **after)
        assert (answer["opened"], answer["rounds"]["infrastructure"]) == (True, number + 1)
