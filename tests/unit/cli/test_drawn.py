"""`dsjob top` and `watch`: what is drawn, and how they end. A program with recorded objects stands for kubectl."""

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from deepspeed_operator.api.names import LABEL_ATTEMPT, LABEL_INDEX, LABEL_REPLACEMENT
from deepspeed_operator.cli.figures import duration, scaled, sparkline
from deepspeed_operator.cli.job_rows import COLUMNS, NARROW, plain, row
from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.top import table
from deepspeed_operator.cli.watch_frame import AgentAnswers, Moment, frame

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROGRESS = {
    "step": 480,
    "totalSteps": 1000,
    "summary": "48%",
    "eta": "2026-01-01T13:20:00Z",
    "loss": "2.031",
    "tokensPerSecond": 98_123.0,
}


def body(name: str = "pretrain", **status: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "Running", "message": "16 ranks run in 2 pods"}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": "1", "generation": 1},
        "spec": {"nodes": 2},
        "status": {"observedGeneration": 1, "state": "Running", "conditions": [ready], "restarts": 1, **status},
    }


def test_a_row_says_how_far_and_how_long_yet() -> None:
    shown = row(JobView.of(body(progress=PROGRESS)), NOW)
    assert shown == ("team", "pretrain", "Running", "2", "480/1000", "48%", "1h20m", "2.031", "98.1k", "1")


@pytest.mark.parametrize("state", ["Complete", "Failed"])
def test_a_job_that_has_ended_has_no_time_left_and_no_speed(state: str) -> None:
    shown = dict(zip(COLUMNS, row(JobView.of(body(progress=PROGRESS, state=state)), NOW), strict=True))
    assert (shown["STEP"], shown["ETA"], shown["TOKENS/S"]) == ("480/1000", "", "")


def test_a_job_that_tells_nothing_has_empty_places() -> None:
    assert row(JobView.of(body()), NOW)[4:9] == ("", "", "", "", "")


def test_what_is_stale_has_no_time_left() -> None:
    stale = {**PROGRESS, "stale": True, "summary": "48% (stale)"}
    assert row(JobView.of(body(progress=stale)), NOW)[5:7] == ("48% (stale)", "")


ROWS = [
    row(JobView.of(body("a-name-that-is-as-long-as-kubernetes-allows-for-a-job", progress=PROGRESS)), NOW),
    row(JobView.of(body("b", state="Restarting")), NOW),
]


@pytest.mark.parametrize("first", [0, 1])
def test_on_80_columns_a_job_is_one_line_and_only_names_lose_their_ends(first: int) -> None:
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(table(NARROW[first:], [each[first:] for each in ROWS], 80))
    lines = console.export_text().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    for cell in ROWS[0][2:]:
        assert cell in lines[1]


def test_the_plain_table_is_kubectls() -> None:
    assert plain(("NAME", "STATE"), [("a", "Running"), ("long", "")]) == "NAME   STATE\na      Running\nlong"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0s"), (59.6, "1m"), (3600, "1h"), (4800, "1h20m"), (200_000, "2d7h"), (-3, "0s")]
)
def test_a_duration_has_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_figures() -> None:
    assert [scaled(each) for each in (None, 3.0, 98_123.0, 2.5e6)] == ["", "3", "98.1k", "2.5M"]
    assert sparkline([3.0, 2.0, 1.0, 1.0], 3) == "█▁▁"
    assert sparkline([], 3) == ""


def rank(number: int, step: int, phase: str = "Step") -> dict[str, Any]:
    return {"rank": number, "step": step, "secondsSinceStep": 4.0, "phase": phase, "secondsInPhase": 4.0}


def moment(**changes: Any) -> Moment:
    told = {**PROGRESS, "secondsLeft": 600.0, "step": 485, "stepSeconds": {"median": 1.0, "p95": 1.25}}
    states = ({"index": 0, "progress": told, "rankSteps": [rank(0, 485), rank(1, 485), rank(2, 483, "Saving")]},)
    given: dict[str, Any] = {
        "job": JobView.of(body(progress=PROGRESS, attempt={"number": 1, "phase": "Running"})),
        "ranks": AgentAnswers(states, 1),
        "losses": [3.0, 2.5, 2.0],
        "events": [
            {
                "reason": "Running",
                "message": "16 ranks run",
                "firstTimestamp": "2026-01-01T11:58:00Z",
                "type": "Normal",
            },
            {
                "reason": "Starting",
                "message": "Attempt 1: starting 2 pods with 8 ranks each; they wait for nodes that have room.",
                "lastTimestamp": "2026-01-01T11:58:00Z",
                "type": "Normal",
            },
        ],
        "lines": [
            "step 484",
            "step 485: loss 2.031, learning rate 2.0e-05, gradient norm 0.61, 98123 tokens a second, 33 % MFU",
        ],
        "now": NOW,
    }
    return Moment(**{**given, **changes})


def drawn(shown: Moment, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None, record=True, file=io.StringIO())
    console.print(frame(shown, width))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_the_picture_of_a_job_fits_on_80_columns() -> None:
    lines = drawn(moment())
    assert max(map(len, lines)) <= 80
    assert lines[0] == "pretrain is Running, attempt 1, 1 restart"
    assert any(line.startswith("step") and "485/1000 48 %, done in 10m" in line for line in lines)
    assert any(line.startswith("loss") and "█" in line for line in lines)
    assert any(line.endswith("1 s a step (p95 1.25)") for line in lines)
    assert any("2m ago  Running: 16 ranks run" in line for line in lines)


def test_the_page_shows_the_picture() -> None:
    shown = "\n".join(drawn(moment()))
    assert f"```text\n{shown}\n```\n" in (ROOT / "docs/commands.md").read_text()


def test_the_rank_that_is_behind_comes_first() -> None:
    lines = drawn(moment())
    heading = next(at for at, line in enumerate(lines) if "behind" in line)
    assert lines[heading + 1].split() == ["2", "483", "2", "4s", "ago", "Saving", "4s"]


def test_where_the_agents_do_not_answer_status_tells_and_why_is_said() -> None:
    lines = drawn(moment(ranks=AgentAnswers((), 1, "pretrain-1-0: pods is forbidden: cannot create pods/exec")))
    assert any("480/1000 48 %, done in 1h20m" in line for line in lines)
    assert any("cannot create pods/exec" in line for line in lines)


KUBECTL = """\
#!{python}
import pathlib, sys
here = pathlib.Path(__file__).parent
if (here / "down").exists():
    sys.exit("The connection to the server was refused")
words = [word for word in sys.argv[1:] if not word.startswith("-")]
if words[:1] == ["exec"]:
    if words[1] != "pretrain-1-0-r1":
        sys.exit("cannot exec into a container in a completed pod")
    print((here / "state").read_text())
elif words[:1] == ["logs"]:
    print("step 480\\x1b[2J\\rstep 481")
elif words[:2] == ["get", "pods"]:
    print((here / "pods").read_text())
elif words[:2] == ["get", "events"]:
    print('{{"items": []}}')
else:
    if len(words) == 3 and not (here / "job").exists():
        sys.exit('Error from server (NotFound): "pretrain" not found')
    print((here / ("job" if len(words) == 3 else "jobs")).read_text())
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A directory with what kubectl shows; a file `down` there keeps it from answering."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable))
    program.chmod(0o755)
    show(tmp_path, body(progress={**PROGRESS, "eta": (datetime.now(UTC) + timedelta(hours=2)).isoformat()}))
    agent = {"containers": [{"name": "main", "command": ["python3", "-S", "/etc/deepspeed-operator/agent"]}]}
    labels = {LABEL_ATTEMPT: "1", LABEL_INDEX: "0"}
    lost = {"metadata": {"name": "pretrain-1-0", "labels": labels}, "spec": agent}
    other = {"metadata": {"name": "pretrain-1-0-r1", "labels": {**labels, LABEL_REPLACEMENT: "1"}}, "spec": agent}
    (tmp_path / "pods").write_text(json.dumps({"items": [other, lost]}))
    state = {"index": 0, "progress": {**PROGRESS, "step": 481}, "rankSteps": [rank(0, 481), rank(1, 479)]}
    (tmp_path / "state").write_text(json.dumps(state))
    return tmp_path


def show(cluster: Path, job: dict[str, Any]) -> None:
    job["status"]["attempt"] = {"number": 1, "phase": "Running"}
    for name, content in (("job", job), ("jobs", {"items": [job]})):
        (cluster / "new").write_text(json.dumps(content))
        (cluster / "new").replace(cluster / name)


def environment(cluster: Path) -> dict[str, str]:
    path = f"{cluster}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT / "operator"), "TERM": "xterm-256color"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "deepspeed_operator.cli.main", *arguments]


@pytest.mark.parametrize("arguments", [("top",), ("watch", "pretrain")])
def test_on_a_pipe_it_is_shown_once_without_control_codes(arguments: tuple[str, ...], cluster: Path) -> None:
    done = subprocess.run(
        command(*arguments), env=environment(cluster), capture_output=True, text=True, check=True, timeout=120
    )
    assert "pretrain" in done.stdout
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout) is None
    assert "48" in done.stdout


@pytest.mark.parametrize("arguments", [("top",), ("watch", "pretrain")])
def test_a_cluster_that_does_not_answer_at_first_is_an_error(arguments: tuple[str, ...], cluster: Path) -> None:
    (cluster / "down").touch()
    done = subprocess.run(
        command(*arguments), env=environment(cluster), capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dsjob: The connection to the server was refused\n"


class Terminal:
    """A terminal of 80 columns, and what was written to it so far."""

    def __init__(self, arguments: tuple[str, ...], cluster: Path) -> None:
        self.end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=environment(cluster)
        )
        os.close(theirs)
        self.text = ""

    def wait_for(self, met: Callable[[str], bool]) -> None:
        until = time.monotonic() + 120
        while not met(self.text):
            assert time.monotonic() < until, self.text
            if select.select([self.end], [], [], 1)[0]:
                with suppress(OSError):  # its other end is closed
                    self.text += os.read(self.end, 1 << 16).decode(errors="replace")


@pytest.fixture
def terminal(cluster: Path) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def make(*arguments: str) -> Terminal:
        made.append(Terminal(arguments, cluster))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        each.process.wait()
        os.close(each.end)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("arguments", [("top",), ("watch", "pretrain")])
def test_on_a_terminal_it_is_drawn_again_through_an_outage_until_it_is_told_to_end(
    arguments: tuple[str, ...], number: int, code: int, cluster: Path, terminal: Callable[..., Terminal]
) -> None:
    shown = terminal(*arguments, "--interval", "0.1")
    shown.wait_for(lambda text: "pretrain" in text)
    (cluster / "down").touch()
    shown.wait_for(lambda text: "No answer since" in text)
    show(cluster, body(state="Complete"))
    (cluster / "down").unlink()
    shown.wait_for(lambda text: "Complete" in text)
    shown.process.send_signal(number)
    shown.wait_for(lambda text: "\x1b[?1049l" in text)  # the terminal is as it was
    assert shown.process.wait(60) == code
    assert "Traceback" not in shown.text


@pytest.mark.parametrize("remade", [False, True])
def test_a_job_that_is_deleted_while_it_is_watched_ends_it(
    remade: bool, cluster: Path, terminal: Callable[..., Terminal]
) -> None:
    shown = terminal("watch", "pretrain", "--interval", "0.1")
    shown.wait_for(lambda text: "481/1000" in text)
    if remade:
        other = body(state="Starting")
        other["metadata"]["uid"] = "2"
        show(cluster, other)
    else:
        (cluster / "job").unlink()
    shown.wait_for(lambda text: "\x1b[?1049l" in text and ("not found" in text or "another of its name" in text))
    assert shown.process.wait(60) == 2
    assert "481/1000" in shown.text.partition("\x1b[?1049l")[2]


def test_the_pod_in_the_place_of_a_lost_one_is_asked_and_no_other(cluster: Path) -> None:
    done = subprocess.run(
        command("watch", "pretrain"), env=environment(cluster), capture_output=True, text=True, check=True, timeout=120
    )
    assert "481/1000" in done.stdout
    assert "cannot exec" not in done.stdout


def test_an_answer_that_is_none_of_an_agent_is_told(cluster: Path) -> None:
    (cluster / "state").write_text("sh: python3: not found")
    done = subprocess.run(
        command("watch", "pretrain"), env=environment(cluster), capture_output=True, text=True, check=True, timeout=120
    )
    assert "pretrain-1-0-r1: Expecting value" in done.stdout


@pytest.mark.parametrize(
    ("job", "options", "words"),
    [
        (body(), ("--rank", "7"), "dsjob: no rank 7 of pretrain has answered\n"),
        (body(state="Complete"), (), "dsjob: pretrain is Complete: none of its ranks runs\n"),
    ],
)
def test_stacks_of_nobody_are_told_so(job: dict[str, Any], options: tuple[str, ...], words: str, cluster: Path) -> None:
    show(cluster, job)
    (cluster / "state").write_text(json.dumps({"rank": 0, "state": "S", "place": "", "stacks": "x", "children": []}))
    done = subprocess.run(
        command("debug", "pretrain", "--stacks", *options),
        env=environment(cluster),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("", words)
    assert done.returncode == (1 if options else 2)


def test_on_a_terminal_jobs_that_have_ended_come_last(cluster: Path, terminal: Callable[..., Terminal]) -> None:
    ended = [body(f"ended-{number}", state="Complete") for number in range(1000)]
    (cluster / "jobs").write_text(json.dumps({"items": [*ended, body("at-work")]}))
    shown = terminal("top", "--interval", "60")
    shown.wait_for(lambda text: "at-work" in text)
