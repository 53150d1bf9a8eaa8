"""What the hub makes of pods that are lost, of those that take their places, and of lost ones that come back."""

from types import SimpleNamespace
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
    made = load("dso_hub").Hub(launch_of(NODES, fenceSeconds=20, failurePolicy=given), 0.0)
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


def test_each_lost_pod_is_waited_for_as_long_as_the_first() -> None:
    gang = hub()
    tell(gang, 1, 1, "Stopping", 2.0, cause=LOSS)
    for moment in range(3, WAITS):
        survive(gang, float(moment))
    second = float(WAITS)
    tell(gang, 2, 2, "Waiting", second, cause={**LOSS, "index": 2, "pod": "pretrain-1-2", "node": "node2"})
    join(gang, second + 1)
    for moment in range(WAITS + 2, 2 * WAITS + 1):
        survive(gang, float(moment), lost=(1, 2))
        join(gang, float(moment))
        assert not gang.decided
    survive(gang, second + WAITS + 1, lost=(1, 2))
    assert (gang.cause["reason"], gang.cause["index"]) == ("Terminated", 2)


@pytest.mark.parametrize(
    ("policy", "index"),
    [({"replacementSeconds": 0}, 1), ({"restartInPlace": False}, 1), ({"replacementSeconds": 0}, 0)],
    ids=["no time to wait", "not in place", "no time to wait for another hub"],
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


def members(
    gang: Any, now: float, number: int, *, knows: list[int], indices: tuple[int, ...] = (1, 2, 3), **more: Any
) -> None:
    for index in indices:
        tell(gang, index, number, "Waiting", now, knows=knows, **more)
    gang.check(now)


def another_hub(*, fenced: bool = True, **policy: Any) -> Any:
    """That of the pod which took the place of rank 0's."""
    given = failure_policy(**{"replacementSeconds": WAITS, **policy})
    launch = launch_of(NODES, fenceSeconds=20, failurePolicy=given)
    launch.replacement, launch.fenced, launch.pod = 1, fenced, "pretrain-1-0-r1"
    return load("dso_hub").Hub(launch, 0.0)


def first_record(gang: Any) -> dict[str, Any]:
    """What the members of a hub know when it is lost."""
    return tell(gang, 1, 1, "Running", 2.0)["record"]


OWN: dict[str, Any] = {"podUid": "uid-r1", "pod": "pretrain-1-0-r1", "replacement": 1}


def test_another_hub_opens_the_next_round_once_all_have_come() -> None:
    record = first_record(hub())
    gang = another_hub()
    tell(gang, 0, 1, "Waiting", 3.0, knows=[1, 0], **OWN)
    assert not gang.round.opened
    for index in (1, 2, 3):
        answer = tell(gang, index, 1, "Running", 4.0, knows=[1, 1], record=record)
        assert (answer["round"], answer["opened"], answer["hub"]) == (2, False, 1)
    members(gang, 5.0, 2, knows=[2, 1], record=record)
    assert not gang.round.opened, "its own ranks are not ready yet"
    answer = tell(gang, 0, 2, "Waiting", 5.5, knows=[2, 1], **OWN)
    assert (answer["opened"], answer["rounds"]["number"]) == (True, 2)
    assert answer["rounds"]["infrastructure"] + answer["rounds"]["user"] == 1
    assert answer["rounds"]["last"]["reason"] == "PeerLost"


def test_the_round_that_the_furthest_member_knows_counts() -> None:
    record = first_record(hub())
    gang = another_hub()
    tell(gang, 0, 1, "Waiting", 3.0, knows=[1, 0], **OWN)
    tell(gang, 1, 1, "Running", 4.0, knows=[1, 1], record=record)
    tell(
        gang,
        2,
        3,
        "Running",
        4.0,
        knows=[3, 3],
        record={**record, "number": 3, "counts": {**record["counts"], "user": 2}},
    )
    answer = tell(gang, 3, 3, "Waiting", 4.0, knows=[3, 2], record=record)
    assert (answer["round"], answer["rounds"]["user"]) == (4, 2)


def test_it_waits_until_the_ranks_of_a_pod_that_may_live_have_ended_for_want_of_members() -> None:
    record = first_record(hub())
    gang = another_hub(fenced=False)
    for moment in range(4, 30):
        parted = float(moment) - 3.0
        tell(gang, 0, 2, "Waiting", float(moment), knows=[2, 1], **OWN)
        members(gang, float(moment), 2, knows=[2, 1], record=record, parted=parted)
        assert gang.round.opened == (moment >= 3 + FENCED_AFTER)


def test_a_hub_that_slept_opens_no_round_for_members_that_have_gone_over_to_another() -> None:
    gang = hub(backoff={"baseSeconds": 10, "maxSeconds": 300, "healthySeconds": 600})
    for number in (1, 2):
        tell(gang, 1, number, "Stopping", 2.0 * number, cause=CAUSE)
        for index in range(NODES):
            tell(gang, index, number + 1, "Waiting", 2.0 * number + 1)
    assert not gang.round.opened, "the second restart in a row waits"
    assert not tell(gang, 0, 3, "Waiting", 60.0)["opened"]
    gang.check(60.0)
    assert not gang.round.opened


def test_another_hub_is_bound_by_what_is_left_of_the_budget() -> None:
    policy: dict[str, Any] = {"restarts": {"user": 0, "infrastructure": 0}, "rules": [rule(budget="infrastructure")]}
    record = first_record(hub(**policy))
    gang = another_hub(**policy)
    tell(gang, 0, 1, "Waiting", 3.0, knows=[1, 0], **OWN)
    for index in (1, 2, 3):
        answer = tell(gang, index, 1, "Running", 4.0, knows=[1, 1], record=record)
    assert (answer["cause"]["reason"], gang.restarts.refused) == (
        "PeerLost",
        "no restart is left of 0 (infrastructure)",
    )


def test_a_hub_that_leaves_tells_its_members_first() -> None:
    gang = hub()
    answer = tell(gang, 0, 1, "Stopping", 2.0, cause={**LOSS, "index": 0, "pod": "pretrain-1-0"})
    assert answer["cause"]["reason"] == "Terminated"
    assert not gang.all_informed()
    for index in (1, 2, 3):
        body = {"index": index, "podUid": f"uid-{index}"}
        gang.sent(body, gang.reply(body))
    assert gang.all_informed()
    assert gang.cause is None


def test_what_another_hub_has_told_a_member_is_not_what_it_learns_of_the_one_before() -> None:
    before = hub()
    for index in (1, 2, 3):
        tell(before, index, 1, "Running", 1.5, stepped=True)
    record = first_record(before)
    gang = another_hub()
    own = tell(gang, 0, 1, "Waiting", 3.0, knows=[1, 0], **OWN)["record"]
    tell(gang, 1, 1, "Running", 4.0, knows=[1, 1], record=record)
    tell(gang, 1, 1, "Running", 4.1, knows=[1, 1], record=own)
    tell(gang, 2, 1, "Running", 4.2, knows=[1, 1], record={**record, "stepped": None})
    assert gang.before["stepped"] is True


@pytest.mark.parametrize("saved", [True, False])
def test_a_failure_after_which_the_hub_was_lost_counts_with_the_progress_before_it(saved: bool) -> None:
    before = hub()
    before.checkpoints = SimpleNamespace(progressed=saved, resume_from="")
    tell(before, 2, 1, "Running", 1.5, stepped=True)
    tell(before, 1, 1, "Stopping", 2.0, cause=CAUSE)
    record = tell(before, 2, 1, "Stopping", 2.1)["record"]
    assert (record["over"]["reason"], record["stepped"], record["saved"]) == ("RankFailed", True, saved)
    gang = another_hub(
        restarts={"user": 0, "infrastructure": 9},
        rules=[rule(action="Fail", unlessSaved=True, budget="infrastructure")],
    )
    tell(gang, 0, 1, "Waiting", 3.0, knows=[1, 0], **OWN)
    members(gang, 4.0, 2, knows=[2, 1], record=record)
    assert (gang.cause is None) == saved
