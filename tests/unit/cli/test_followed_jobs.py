"""What `dsjob wait`, `why`, `logs` and `rerun` make of what a cluster says."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.cli import rerun
from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.kubectl import Kubectl
from deepspeed_operator.cli.logs import LogSelection, shown_line
from deepspeed_operator.cli.pod_log import TrainerPod
from deepspeed_operator.cli.rerun import next_run_id
from deepspeed_operator.cli.wait import state_line
from deepspeed_operator.cli.why import story

Json = dict[str, Any]


def condition(kind: str, status: str, message: str = "", reason: str = "Because") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def job(status: Json, **spec: Any) -> JobView:
    metadata = {"name": "pretrain", "namespace": "team", "uid": "1", "generation": 2}
    return JobView.of({"metadata": metadata, "spec": spec, "status": {"observedGeneration": 2, **status}})


COMPLETE = [condition("Accepted", "True"), condition("Ready", "True", "All 2 pods ended with success.")]


def test_a_job_that_nothing_was_said_of_is_pending() -> None:
    assert state_line(job({"observedGeneration": None})) == "pretrain: Pending"


def test_a_result_counts_for_the_spec_that_it_is_about() -> None:
    done: Json = {"state": "Complete", "conditions": COMPLETE}
    assert job(done).finished
    assert not job({**done, "observedGeneration": 1}).finished


def test_a_refused_run_is_invalid_whatever_the_run_before_came_to() -> None:
    said = [
        condition("Accepted", "False", "spec.nodes: 0 is too few", "InvalidSpec"),
        condition("Ready", "False", "Run 'b' is refused."),
        condition("Stalled", "True"),
    ]
    refused = job({"state": "Complete", "conditions": said})
    assert (refused.refused, refused.finished) == (True, False)
    assert state_line(refused) == "pretrain: Invalid: Run 'b' is refused."


def test_who_may_not_read_events_is_told_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho 'Error from server (Forbidden): events is forbidden' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert Kubectl(()).events(job({"state": "Running"})) == []


@pytest.mark.parametrize(
    ("current", "taken", "following"),
    [
        ("", set[str](), "2"),
        ("2", {"2"}, "3"),
        ("2", {"2", "3", "4"}, "5"),
        ("nightly", {"nightly"}, "nightly-2"),
        ("nightly-9", {"nightly-9"}, "nightly-10"),
        ("v1.", set[str](), "v1.2"),
        ("x" * 64, set[str](), "x" * 62 + "-2"),
        ("9" * 64, set[str](), "9" * 54 + "1000000000"),
    ],
)
def test_the_next_run_has_an_id_that_none_had(current: str, taken: set[str], following: str) -> None:
    assert next_run_id(current, taken) == following


def test_a_run_that_the_job_has_had_last_is_no_new_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes: list[object] = []

    def known(*_: object) -> JobView:
        return job({"state": "Complete", "conditions": COMPLETE}, runId="ci-42")

    def change(*given: object) -> None:
        changes.append(given)

    monkeypatch.setattr(Kubectl, "job", known)
    monkeypatch.setattr(Kubectl, "change", change)
    given = {"name": "pretrain", "namespace": None, "context": None, "kubeconfig": None, "replace": False}
    assert rerun.run(Namespace(**given, run_id="ci-42")) == 1
    assert "has run 'ci-42' already" in capsys.readouterr().err
    assert rerun.run(Namespace(**given, run_id="ci-43")) == 0
    assert len(changes) == 1


def pod(name: str) -> TrainerPod:
    return TrainerPod(name, name, "team", 2, int(name.split("-")[2]), "trainer", started=True, ended=False)


LINES = [
    ("pretrain-2-0", b"step 1\n"),
    ("pretrain-2-0", b"[rank 1] step 1\n"),
    ("pretrain-2-1", b"[deepspeed-operator] 2 ranks\n"),
    ("pretrain-2-1", b"[rank 2] step 1"),
    ("pretrain-2-1", b"an entrypoint's\n"),
]


@pytest.mark.parametrize(
    ("rank", "shown"),
    [
        (
            None,
            [
                b"[rank 0] step 1\n",
                b"[rank 1] step 1\n",
                b"[pretrain-2-1] [deepspeed-operator] 2 ranks\n",
                b"[rank 2] step 1",
                b"an entrypoint's\n",
            ],
        ),
        (0, [b"step 1\n"]),
        (1, [b"step 1\n"]),
        (2, [b"[pretrain-2-1] [deepspeed-operator] 2 ranks\n", b"step 1"]),
    ],
)
def test_each_line_has_its_rank(rank: int | None, shown: list[bytes]) -> None:
    found = [
        shown_line(line, pod(name), rank) for name, line in LINES if LogSelection(2, 2, rank).has(pod(name), slots=2)
    ]
    assert [line for line in found if line is not None] == shown


def test_a_pod_in_the_place_of_a_lost_one_has_its_ranks() -> None:
    other = pod("pretrain-2-0-r1")
    assert shown_line(b"step 1\n", other, None) == b"[rank 0] step 1\n"
    assert shown_line(b"step 1\n", other, 0) == b"step 1\n"
    told = shown_line(b"[deepspeed-operator] begun\n", other, 0)
    assert told == b"[pretrain-2-0-r1] [deepspeed-operator] begun\n"


def test_the_story_says_where_the_wall_time_went_once_a_step_was_seen() -> None:
    seconds = {"productive": 90.4, "starting": 8.2, "restarting": 0.3, "queued": 1200, "hung": 0}
    known: Json = {"until": "T9", "percent": 7.0, "ettrPercent": 91.4, "seconds": seconds}
    told = "  Goodput 7.0 %, ETTR 91.4 %, until T9: queued 1200 s, productive 90 s, starting 8 s."
    assert told in story(job({"state": "Running", "goodput": known}), [])
    before = {"until": "T9", "seconds": seconds}
    assert not [line for line in story(job({"state": "Running", "goodput": before}), []) if "Goodput" in line]


def test_the_story_is_told_in_the_order_of_time_and_each_thing_once() -> None:
    first = {"number": 1, "startTime": "T1", "runningTime": "T2", "endTime": "T3", "outcome": "Failed"}
    status: Json = {
        "state": "Failed",
        "conditions": [condition("Ready", "False", "rank 1 failed. Correct the program.", "UserError")],
        "run": {"startTime": "T0", "world": {"slotsPerNode": 1}},
        "attempt": {"number": 2, "phase": "Ended", "startTime": "T4"},
        "attempts": [
            {**first, "reason": "Segfault", "message": "rank 0 got signal 11"},
            {**first, "number": 2, "startTime": "T4", "runningTime": "T5", "endTime": "T6", "message": "rank 1 failed"},
        ],
        "failure": {
            "rank": 1,
            "pod": "pretrain-2-1",
            "node": "b",
            "message": "rank 1 failed\nTraceback\nValueError",
            "ranks": {
                "failed": 12,
                "stopped": 3,
                "exited": 0,
                "first": ["rank 1 failed", "rank 0 failed, 0.4 s later"],
            },
        },
    }
    events = [
        {
            "type": "Warning",
            "reason": "Restarting",
            "message": "rank 0 got signal 11. Attempt 2",
            "lastTimestamp": "T3",
        },
        {"type": "Warning", "reason": "PodsRefused", "message": "quota", "lastTimestamp": "T4"},
        {"type": "Normal", "reason": "Running", "message": "2 ranks run", "lastTimestamp": "T5"},
    ]
    assert list(story(job(status), events)) == [
        "pretrain is Failed (UserError)",
        "  rank 1 failed. Correct the program.",
        "",
        "  T0  run accepted",
        "  T1  attempt 1 begins",
        "  T2  attempt 1: all ranks run",
        "  T3  attempt 1 Failed (Segfault): rank 0 got signal 11",
        "  T4  attempt 2 begins",
        "  T4  PodsRefused: quota",
        "  T5  attempt 2: all ranks run",
        "  T6  attempt 2 Failed: rank 1 failed",
        "",
        "How the ranks ended: 12 failed, 3 stopped",
        "  rank 1 failed",
        "  rank 0 failed, 0.4 s later",
        "  and 10 more",
        "",
        "The last lines of rank 1 in pod pretrain-2-1 on node b:",
        "  Traceback",
        "  ValueError",
    ]
