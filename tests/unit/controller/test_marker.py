"""What ends the process is known to the next one, and left alone for a while."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deepspeed_operator.controller import marker as markers
from deepspeed_operator.controller.bodies import Bodies, is_unread
from deepspeed_operator.controller.marker import FIRST_PAUSE, LONGEST_PAUSE, Marker
from tests.unit.controller.test_judges import compute

UID = "6f7d1c1e-0f5c-4f0e-9a0e-3a2f3f1e5b5a"
KILLED = """
import os, pathlib, signal, sys
from deepspeed_operator.controller.marker import Marker
marker = Marker(pathlib.Path(sys.argv[1]))
with marker.on("other"):
    pass
if sys.argv[2]:
    with marker.on(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_on(directory: Path, uid: str) -> None:
    """A process is killed while it works on a job, or on none."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", KILLED, str(directory), uid], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL


def test_what_was_worked_on_when_the_process_was_killed_is_set_aside(tmp_path: Path) -> None:
    killed_on(tmp_path, UID)
    marker = Marker(tmp_path, lambda: 1000.0)
    aside = marker.aside(UID)
    assert aside is not None
    assert aside.why == "the operator's process ended while it worked on this job"
    assert aside.until == datetime.fromtimestamp(1000 + FIRST_PAUSE, UTC)
    assert marker.aside("other") is None


def test_a_process_that_works_on_nothing_sets_nobody_aside(tmp_path: Path) -> None:
    killed_on(tmp_path, "")
    assert Marker(tmp_path).aside("other") is None
    assert not (tmp_path / "set-aside.json").exists()


def test_it_is_longer_each_time_and_ends(tmp_path: Path) -> None:
    moments = [1000.0]
    for pause in (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, *[None] * 20, LONGEST_PAUSE):
        (tmp_path / "at-work").write_text(UID)
        marker = Marker(tmp_path, lambda: moments[-1])
        aside = marker.aside(UID)
        assert aside is not None
        if pause is not None:
            assert aside.until.timestamp() == moments[-1] + pause
        moments.append(aside.until.timestamp())
        assert marker.aside(UID) is None


def test_a_job_that_holds_the_process_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "LONGEST_WORK", 0.0)
    marker = Marker(tmp_path)
    with marker.on(UID):
        compute(0.0)
    assert marker.aside(UID) is not None
    assert Marker(tmp_path).aside(UID) is not None


def test_without_a_directory_nothing_is_kept() -> None:
    marker = Marker(None)
    with marker.on(UID):
        pass
    assert marker.aside(UID) is None


def test_a_damaged_table_is_none(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"a": 1}', '{"a": {"times": 1}}', "null"):
        (tmp_path / "set-aside.json").write_text(text)
        assert Marker(tmp_path).aside("a") is None


def test_of_a_job_that_is_set_aside_nothing_is_read_but_its_name_and_status(tmp_path: Path) -> None:
    body = {
        "metadata": {"name": "pretrain", "namespace": "ml", "uid": UID},
        "spec": {"nodes": "what ended it"},
        "status": {"state": "Starting", "warnings": 1},
    }
    killed_on(tmp_path, UID)
    job, _ = Bodies(Marker(tmp_path)).job(body)
    assert is_unread(job)
    assert job.status.warnings == 1
    whole, _ = Bodies(Marker(None)).job({**body, "spec": {"nodes": 1, "training": {"script": "train.py"}}})
    assert not is_unread(whole)
