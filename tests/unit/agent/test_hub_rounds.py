"""What the hub makes of reports that come late, twice, or not at all, from one round to the next."""

from typing import Any

from tests.unit.agent.harness import failure_policy, launch_of, load

NODES = 3
CAUSE: dict[str, Any] = {
    "reason": "RankFailed",
    "rank": 1,
    "exitCode": None,
    "signal": 9,
    "signature": "",
    "index": 1,
    "pod": "pretrain-1-1",
    "node": "node1",
}


def hub() -> Any:
    """One whose first round runs."""
    made = load("dso_hub").Hub(launch_of(NODES, fenceSeconds=20, failurePolicy=failure_policy()), 0.0)
    for index in range(NODES):
        tell(made, index, 1, "Waiting", 1.0)
    assert made.round.opened
    return made


def tell(gang: Any, index: int, number: int, phase: str, now: float, **more: Any) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "pod": f"pretrain-1-{index}",
        "podUid": f"uid-{index}",
        "node": f"node{index}",
        "addresses": [],
        "replacement": 0,
        "fenced": False,
    }
    news = dict.fromkeys(
        (
            "cause",
            "ago",
            "left",
            "stepped",
            "stuck",
            "transport",
            "world",
            "ranks",
            "ahead",
            "endings",
            "record",
            "parted",
            "pace",
            "evidence",
        )
    )
    body: dict[str, Any] = {"protocol": 3, "uid": "job-uid", "attempt": 1, "index": index, **pod, **news}
    body |= {
        "round": number,
        "phase": phase,
        "knows": [number, number],
        "stopSeconds": 0.5,
        "hang": 0,
        "evidence": None,
        **more,
    }
    status, answer = gang.heartbeat(body, now)
    assert status == 200
    return answer


def fail(gang: Any, now: float) -> dict[str, Any]:
    return tell(gang, 1, 1, "Stopping", now, cause=CAUSE)


def test_a_round_opens_once_nothing_of_the_one_before_is_left_in_any_pod() -> None:
    gang = hub()
    answer = fail(gang, 2.0)
    assert (answer["round"], answer["opened"], answer["cause"], answer["over"]["signal"]) == (2, False, None, 9)
    assert answer["rounds"]["number"] == 1, "it may still be that no other one opens"
    for index in (0, 1, 0, 1):
        assert not tell(gang, index, 2, "Waiting", 3.0)["opened"]
    assert not tell(gang, 2, 1, "Running", 3.5)["opened"], "it has not heard of the end yet"
    assert not tell(gang, 2, 1, "Stopping", 4.0)["opened"]
    answer = tell(gang, 2, 2, "Waiting", 5.0)
    assert (answer["round"], answer["opened"], answer["over"]) == (2, True, None)
    assert (answer["rounds"]["number"], answer["rounds"]["infrastructure"]) == (2, 1)
    assert gang.restarts.story.endswith("detected in 0.0 s, stopped in 0.5 s, barrier 2.5 s")


def test_a_member_that_missed_all_answers_joins_the_round_that_waits_for_it() -> None:
    gang = hub()
    fail(gang, 2.0)
    for index in (0, 1):
        tell(gang, index, 2, "Waiting", 3.0)
    answer = tell(gang, 2, 1, "Running", 9.0)
    assert (answer["round"], answer["opened"]) == (2, False)
    assert tell(gang, 2, 2, "Waiting", 9.5)["opened"]
    assert tell(gang, 2, 2, "Waiting", 9.6)["opened"], "and once more, where that answer was lost"


def test_reports_of_an_earlier_round_change_nothing() -> None:
    gang = hub()
    fail(gang, 2.0)
    for index in range(NODES):
        tell(gang, index, 2, "Waiting", 3.0)
    late = tell(gang, 0, 1, "Stopping", 4.0, cause={**CAUSE, "rank": 0}, left=CAUSE, stepped=True, transport={})
    assert (late["round"], late["opened"], late["cause"], late["stepped"]) == (2, True, None, None)
    assert (gang.round.cause, gang.round.left, gang.restarts.record.counts["infrastructure"]) == (None, None, 1)
    for index in range(NODES):
        tell(gang, index, 1, "Finished", 5.0)
    assert not gang.round.finished
    tell(gang, 0, 1, "Stopping", 6.0, stuck="process 7 does not end")
    assert gang.cause is None


def test_a_process_that_does_not_end_ends_the_attempt_and_nothing_is_counted() -> None:
    gang = hub()
    fail(gang, 2.0)
    for index in (0, 1):
        tell(gang, index, 2, "Waiting", 3.0)
    answer = tell(gang, 2, 1, "Stopping", 15.0, stuck="Pod pretrain-1-2 does not end: process 7")
    assert (answer["cause"]["signal"], answer["cause"]["round"]) == (9, 1)
    assert (answer["rounds"]["number"], answer["rounds"]["infrastructure"], answer["rounds"]["last"]) == (1, 0, None)


def test_a_member_that_falls_silent_between_rounds_is_lost() -> None:
    gang = hub()
    fail(gang, 2.0)
    for moment in range(3, 30):
        for index in (0, 1):
            tell(gang, index, 2, "Waiting", float(moment))
        gang.check(float(moment))
    assert (gang.cause["reason"], gang.cause["index"]) == ("PeerLost", 2)


STANDS: dict[str, Any] = {"step": 40, "state": "S", "kernel": "", "where": "all_reduce", "collective": True, "load": ""}


def pace(idle: float) -> dict[str, Any]:
    return {"idle": {"Step": idle}, "slowest": {"Step": 2.0}, "steps": [40, 40], "complete": False, "own": []}


def test_ranks_that_hang_by_what_was_learned_are_told_until_steps_go_on() -> None:
    gang = hub()
    behind = {**STANDS, "rank": 1, "where": "train.py:8 (load)", "collective": False}
    for index in range(NODES):
        tell(gang, index, 1, "Running", 400.0, pace=pace(301.0))
    gang.check(400.0)
    assert tell(gang, 0, 1, "Running", 400.5, pace=pace(301.5))["hang"] == 1, "evidence is wanted"
    assert gang.hang() is None
    for index in range(NODES):
        stands = behind if index == 1 else {**STANDS, "rank": index}
        tell(gang, index, 1, "Running", 401.0, pace=pace(302.0), hang=1, evidence=[stands])
    gang.check(401.0)
    assert gang.hang() == {
        "words": "rank 1 is in train.py:8 (load), the others in all_reduce; no step for 302 s, learned limit 300 s",
        "learned": True,
        "rank": 1,
        "pod": "pretrain-1-1",
        "node": "node1",
    }
    assert gang.round.cause is None
    answer = tell(gang, 0, 1, "Running", 402.0, pace=pace(0.1), hang=1)
    gang.check(402.0)
    assert gang.hang() is None
    assert answer["round"] == 1
