"""A watch of a job goes on over whatever ends one of kubectl's: only what keeps it from beginning ends the command."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.cli import kubectl
from deepspeed_operator.cli.kubectl import ClusterError, GoneError, Kubectl

JOB: dict[str, Any] = {
    "metadata": {"name": "pretrain", "namespace": "team", "uid": "1", "generation": 1},
    "status": {"observedGeneration": 1, "state": "Running"},
}
LOST = {"type": "ERROR", "object": {"kind": "Status", "message": "http2: client connection lost"}}


def said(state: str) -> dict[str, Any]:
    return {"type": "MODIFIED", "object": {**JOB, "status": {"observedGeneration": 1, "state": state}}}


@pytest.fixture
def watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose files kubectl prints, one a watch: N.out, N.err and, where it fails, N.code."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\ncd {tmp_path}\nn=$(ls | grep -c '^ran')\ntouch ran$n\n"
        "cat $n.out\n[ ! -e $n.err ] || cat $n.err >&2\n[ ! -e $n.code ] || exit $(cat $n.code)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(kubectl, "AGAIN_SECONDS", 0.0)
    return tmp_path


def states(watches: Path, *events: list[dict[str, Any]]) -> list[str]:
    for number, each in enumerate(events):
        (watches / f"{number}.out").write_text("\n".join(map(json.dumps, each)))
    found: list[str] = []
    for job in Kubectl(()).watch("pretrain", 60):
        found.append(job.state)
        if job.finished:
            break
    return found


@pytest.mark.parametrize("lost", [[said("Running")], [said("Running"), LOST]], ids=["its time is over", "ERROR"])
def test_a_watch_that_ends_is_followed_by_another(watches: Path, lost: list[dict[str, Any]]) -> None:
    (watches / "0.err").write_text("Warning: v1alpha1 is deprecated\n")
    assert states(watches, lost, [said("Running"), said("Complete")]) == ["Running", "Running", "Complete"]


def test_a_connection_that_breaks_in_the_midst_of_it_is_made_again(watches: Path) -> None:
    (watches / "0.code").write_text("1")
    (watches / "0.err").write_text("error: unexpected EOF\n")
    assert states(watches, [said("Running")], [said("Failed")]) == ["Running", "Failed"]


def test_an_api_server_that_is_away_later_is_told_once_and_waited_for(
    watches: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        (watches / f"{number}.code").write_text("1")
        (watches / f"{number}.err").write_text("The connection to the server was refused\n")
    assert states(watches, [said("Running")], [], [], [said("Complete")]) == ["Running", "Complete"]
    assert capsys.readouterr().err == "dsjob: no answer, trying again: The connection to the server was refused\n"


@pytest.mark.parametrize("remade", [False, True], ids=["not there any more", "another of its name"])
def test_a_job_that_is_deleted_while_nothing_is_heard_is_gone(watches: Path, remade: bool) -> None:
    other = said("Running")
    other["object"]["metadata"] = {**JOB["metadata"], "uid": "2"}
    if not remade:
        (watches / "1.code").write_text("1")
        (watches / "1.err").write_text('Error from server (NotFound): "pretrain" not found\n')
    with pytest.raises(GoneError, match="pretrain was deleted"):
        states(watches, [said("Running")], [other] if remade else [])


@pytest.mark.parametrize("events", [[], [LOST]], ids=["nothing", "ERROR"])
def test_one_that_tells_nothing_ends_it_in_kubectls_words(watches: Path, events: list[dict[str, Any]]) -> None:
    (watches / "0.code").write_text("1")
    (watches / "0.err").write_text("Error from server (NotFound)\n")
    with pytest.raises(ClusterError, match=r"NotFound|connection lost"):
        states(watches, events)
