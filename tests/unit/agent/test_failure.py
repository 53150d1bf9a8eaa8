"""A rank fails, a pod is stopped or lost: everyone ends soon, and with the same cause."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import AGENT, AWAIT, NO_RESTARTS, Gang, altered, load

Make = Callable[..., Gang]

SLEEP = "import time; print('started', flush=True); time.sleep(60)"


def when_rank(rank: int, then: str) -> str:
    """A script whose given rank does something, while the others train on."""
    return f"import os, sys, time, signal\nif os.environ['RANK'] == '{rank}':\n    {then}\ntime.sleep(60)"


@pytest.mark.parametrize("failing", [0, 1])
def test_exit_code_7_ends_every_pod_with_the_same_cause(gang: Make, failing: int) -> None:
    made = gang(nodes=3, script=when_rank(failing, "print('last words', flush=True); sys.exit(7)"))
    ended = made.run()
    assert [each.code for each in ended] == [7, 7, 7]
    first = ended[0].cause
    assert first.pop("ranks")["first"] == [[failing, failing, 7, None, 0]]
    assert first == ended[1].cause == ended[2].cause
    assert first == {
        "protocol": 3,
        "reason": "RankFailed",
        "rank": failing,
        "exitCode": 7,
        "signal": None,
        "signature": '"last words"',
        "index": failing,
        "pod": f"pretrain-1-{failing}",
        "node": f"node{failing}",
        "deepspeed": None,
        "round": 1,
        "stepped": None,
        "rounds": NO_RESTARTS,
    }
    assert ended[failing].log_tail == "last words\n"


def test_a_traceback_is_the_signature(gang: Make) -> None:
    (ended,) = gang(script="def step():\n    raise ValueError('loss is NaN')\nstep()").run()
    assert (ended.code, ended.cause["signature"]) == (1, "ValueError: loss is NaN")
    assert "in step" in ended.log_tail


@pytest.mark.parametrize(
    ("script", "signature"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("class Stop(Exception): pass\nraise Stop", "Stop"),
        (
            "try: 1 / 0\nexcept ZeroDivisionError: import traceback; traceback.print_exc()\nraise SystemExit(4)",
            '"ZeroDivisionError: division by zero"',
        ),
        ("raise RuntimeError('first line\\nsecond line')", "RuntimeError: first line"),
        (
            "import json, os; m = {'message': 'CUDA error: ECC', 'extraInfo': {}}\n"
            "json.dump({'message': m}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')); raise SystemExit(1)",
            "CUDA error: ECC",
        ),
        ("import os; os.abort()", "Fatal Python error: Aborted"),
    ],
)
def test_signatures(gang: Make, script: str, signature: str) -> None:
    (ended,) = gang(script=script).run()
    assert ended.cause["signature"] == signature


def test_error_files_go_with_their_round(gang: Make) -> None:
    script = "import os; print(os.environ['TORCHELASTIC_ERROR_FILE']); open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')"
    (ended,) = gang(script=script).run()
    (file,) = [line for line in ended.output.splitlines() if line.startswith("/")]  # the agent has words of its own
    assert not Path(file).exists()


def test_a_module_that_is_not_there_is_named(gang: Make) -> None:
    (ended,) = gang(launch={"program": {"kind": "module", "value": ["no.such"]}}).run()
    assert "No module named 'no'" in ended.cause["signature"]


def test_kill_9_of_a_rank_is_reported_as_a_signal(gang: Make) -> None:
    ended = gang(nodes=2, script=when_rank(1, "os.kill(os.getpid(), 9)")).run()
    assert [each.code for each in ended] == [137, 137]
    cause = ended[1].cause
    assert ended[0].cause.items() >= cause.items()
    assert (cause["signal"], cause["exitCode"], cause["rank"]) == (9, None, 1)
    # Nothing tells who has killed it: the container's memory was enough, the node's may not have been.
    assert (cause["reason"], cause["signature"], cause["candidates"]) == ("RankFailed", "", ["HostOutOfMemory"])
    assert "was killed by signal 9 (perhaps HostOutOfMemory)" in ended[1].output


def test_the_first_of_several_ranks_is_the_cause(gang: Make) -> None:
    # Rank 2 fails beside it, the other pod's once they are told to end.
    script = (
        AWAIT
        + """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(10 + rank))
open(f"handles-{rank}", "w").close()
while not all(os.path.exists(f"handles-{each}") for each in range(4)):
    time.sleep(0.02)
if rank < 2:
    time.sleep(60)
if rank == 2:
    wait_for_the_end_of(3)
sys.exit(10 + rank)
"""
    )
    ended = gang(nodes=2, slots=2, script=script).run()
    assert {each.cause["rank"] for each in ended} == {3}
    assert {each.code for each in ended} == {13}


def test_a_rank_that_fails_because_another_did_is_not_the_cause(gang: Make, tmp_path: Path) -> None:
    # Rank 0 sees the connection break, and is gone before rank 1 has finished dying.
    script = (
        AWAIT
        + """
if rank == 0:
    raise ConnectionResetError("Connection reset by peer")
wait_for_the_end_of(0)
raise ValueError("out of range")
"""
    )
    agent = altered(tmp_path, SETTLE_SECONDS=60)
    ended = gang(nodes=2, script=script, agent=agent).run()
    assert [each.cause["signature"] for each in ended] == ["ValueError: out of range"] * 2
    assert [each.cause["rank"] for each in ended] == [1, 1]
    ended = gang(slots=2, script=script, agent=agent).run()
    assert ended[0].cause["rank"] == 1


def test_a_broken_connection_is_the_cause_when_nobody_else_fails(gang: Make) -> None:
    ended = gang(nodes=2, script=when_rank(0, "raise ConnectionResetError('Connection reset by peer')")).run()
    assert {each.cause["signature"] for each in ended} == {"ConnectionResetError: Connection reset by peer"}


def test_ranks_that_ignore_sigterm_are_killed(gang: Make) -> None:
    script = when_rank(1, "time.sleep(0.3); sys.exit(7)").replace(
        "\nif", "\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nif"
    )
    ended = gang(nodes=2, slots=2, script=script).run()
    assert [each.code for each in ended] == [7, 7]


def test_a_peers_failure_after_own_success_is_everyones(gang: Make) -> None:
    script = "import os, sys, time; r = int(os.environ['RANK']); time.sleep(r); sys.exit(7 * r)"
    ended = gang(nodes=2, script=script).run()
    assert [(each.code, each.cause["rank"]) for each in ended] == [(7, 1), (7, 1)]


@pytest.mark.parametrize("stopped", [0, 1])
def test_sigterm_from_outside(gang: Make, stopped: int) -> None:
    script = """
import signal, sys, time
def save(*_):
    print("saved a checkpoint", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("started", flush=True)
time.sleep(60)
"""
    made = gang(nodes=2, script=script)
    running = made.start_all()
    for each in running:
        each.wait_for_output("started")
    running[stopped].signal(signal.SIGTERM)
    ended = [each.end() for each in running]
    assert [each.code for each in ended] == [143, 143]
    assert ended[0].cause == ended[1].cause
    assert (ended[0].cause["reason"], ended[0].cause["index"]) == ("Terminated", stopped)
    assert all("saved a checkpoint" in each.output for each in ended)
    assert "killedAfterSeconds" not in ended[0].cause


def test_a_rank_that_ignores_a_sigterm_from_outside_is_killed_before_the_grace_ends(gang: Make) -> None:
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    running = gang(script=script, launch={"terminationGraceSeconds": 7}).start()
    running.wait_for_output("started")
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert ended.code == 143
    assert ended.cause["killedAfterSeconds"] == 2, "the operator tells that the grace was not enough"


def test_sigterm_before_the_ranks_start(gang: Make) -> None:
    running = gang(nodes=2).start()
    running.wait_for(lambda: running.ask("/livez") == 200)
    running.signal(signal.SIGTERM)
    assert (running.end().code, running.end().cause["reason"]) == (143, "Terminated")


def test_sigterm_while_the_agent_itself_starts(tmp_path: Path) -> None:
    # What it reads first is a pipe, so that it cannot have come further than its own imports.
    os.mkfifo(tmp_path / "launch.json")
    log = tmp_path / "termination-log"
    own = {"DEEPSPEED_OPERATOR_DIR": str(tmp_path), "DEEPSPEED_OPERATOR_TERMINATION_LOG": str(log)}
    first = ("unshare", "--pid", "--fork", "--kill-child", sys.executable, "-S", "-u", str(AGENT))
    process = subprocess.Popen(first, env={**os.environ, **own})
    try:
        agent = until(lambda: Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())[0]
        until(lambda: handles_sigterm(agent))
        os.kill(int(agent), signal.SIGTERM)
        assert process.wait(60) == 143
    finally:
        process.kill()
    assert '"reason":"Terminated"' in log.read_text()


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end
    return result


def handles_sigterm(pid: str) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) & 1 << signal.SIGTERM - 1)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_silent_peer_is_lost_and_named_and_so_it_is_to_itself(gang: Make, lost: int) -> None:
    made = gang(nodes=2, script=SLEEP, launch={"fenceSeconds": 12})
    running = made.start_all()
    for each in running:
        each.wait_for_output("started")
    running[lost].signal(signal.SIGSTOP)
    other = running[1 - lost].end()
    assert (other.code, other.cause["reason"], other.cause["index"]) == (1, "PeerLost", lost)
    assert other.cause["node"] == f"node{lost}"
    assert f"pod pretrain-1-{lost} (host {made.hosts[lost]})" in other.cause["signature"]
    running[lost].signal(signal.SIGCONT)
    running[lost].wait_for(lambda: "stopping, PeerLost" in running[lost].output)
    fenced = running[lost].end()
    assert (fenced.code, fenced.cause["reason"]) == (1, "PeerLost")


def test_a_pod_that_vanished_is_lost(gang: Make) -> None:
    made = gang(nodes=2, script=SLEEP, launch={"fenceSeconds": 10})
    running = made.start_all()
    for each in running:
        each.wait_for_output("started")
    running[1].signal(signal.SIGKILL)
    assert running[0].end().cause["reason"] == "PeerLost"


def test_zombies_and_orphans_are_reaped_by_the_first_process(gang: Make) -> None:
    script = """
import os, subprocess, time
for _ in range(20):
    subprocess.run(["sh", "-c", "sleep 0.1 &"])
while subprocess.run(["pgrep", "-x", "sleep"], stdout=subprocess.DEVNULL).returncode == 0:
    time.sleep(0.02)  # pgrep finds zombies, too
print("no zombies, first:", os.getppid())
"""
    running = gang(script=script).start(wrapper=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    ended = running.end()
    assert (ended.code, "no zombies, first: 1" in ended.output) == (0, True), ended.output


def test_sigterm_reaches_the_ranks_when_the_agent_is_the_first_process(gang: Make) -> None:
    made = gang(script=SLEEP)
    running = made.start(wrapper=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    running.wait_for_output("started")
    first = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()[0]
    os.kill(int(first), signal.SIGTERM)
    assert running.end().code == 143


def test_grandchildren_end_with_their_rank(gang: Make) -> None:
    script = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '61']); print('child', p.pid, flush=True); sys.exit(7)"
    )
    (ended,) = gang(script=script).run()
    child = ended.output.split("child ")[1].split()[0]
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_the_message_is_bounded_and_the_object_first(gang: Make) -> None:
    script = "for i in range(500): print('log line', i, '漢字' * 10)\nraise ValueError('漢' * 2000)"
    (ended,) = gang(script=script).run(DEEPSPEED_OPERATOR_NODE="n" * 250, DEEPSPEED_OPERATOR_POD="p" * 60)
    assert len(ended.message) <= 4000
    assert len(ended.message) > 3900
    assert len(ended.message.split(b"\n")[0]) <= 2000
    assert ended.cause["signature"].startswith("ValueError: 漢")
    assert ended.log_tail.endswith("漢\n")


def test_an_error_of_the_agents_own_is_told(gang: Make) -> None:
    made = gang(launch={"protocol": 9})
    (ended,) = made.run()
    assert (ended.code, ended.cause["reason"]) == (1, "AgentError")
    assert "protocol 9" in ended.cause["signature"]


def test_a_cause_with_a_name_that_is_no_text_stays_the_cause(gang: Make) -> None:
    script = (
        "import json, os, sys\n"
        "said = {'message': {'message': 'FileNotFoundError: caf' + chr(0xDCE9)}}\n"
        "json.dump(said, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
        "sys.exit(1)"
    )
    (ended,) = gang(script=script).run()
    assert (ended.cause["reason"], ended.cause["signature"]) == ("DataOrCheckpoint", "FileNotFoundError: caf?")


def test_files_whose_names_are_no_text_are_listed_where_a_script_is_missing(gang: Make) -> None:
    made = gang(script=None)
    (made.code / os.fsdecode(b"caf\xe9")).touch()
    (ended,) = made.run()
    assert ended.cause["reason"] == "ScriptNotFound"
    assert "caf?" in ended.cause["signature"]


LOST = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.244.1.245]:4567"
)


@pytest.mark.parametrize(("nodes", "slots"), [(2, 1), (1, 2)])
def test_the_first_to_leave_with_0_while_others_train_is_the_cause(
    gang: Make, tmp_path: Path, nodes: int, slots: int
) -> None:
    script = f"""{AWAIT}
if rank == 1:
    print("out of data", flush=True)
    sys.exit()
wait_for_the_end_of(1)
time.sleep(0.5)
raise RuntimeError({LOST[14:]!r})
"""
    agent = altered(tmp_path, SETTLE_SECONDS=4)  # the test waits them out
    ended = gang(nodes=nodes, slots=slots, script=script, agent=agent).run()
    assert {each.code for each in ended} == {1}
    for each in ended:
        assert (each.cause["reason"], each.cause["rank"], each.cause["exitCode"]) == ("RankLeft", 1, 0)
        assert each.cause["pod"] == f"pretrain-1-{nodes - 1}"
        assert each.cause["signature"] == f"rank 0 then failed: {LOST}"
    if nodes == 2:
        assert ended[1].log_tail == "out of data\n"


def test_a_rank_that_fails_by_itself_after_another_has_left_is_the_cause(gang: Make) -> None:
    script = AWAIT + "if rank == 1: sys.exit()\nwait_for_the_end_of(1); raise ValueError('loss is NaN')"
    ended = gang(nodes=2, script=script).run()
    assert {(each.cause["reason"], each.cause["rank"]) for each in ended} == {("UserError", 0)}


def test_a_log_begins_with_a_whole_line_without_colours_and_carets(gang: Make) -> None:
    script = "for i in range(900): print('\\033[32mstep', i, 'is done\\033[0m')\nraise SystemExit('no more data')"
    (ended,) = gang(script=script).run()
    assert ended.cause["signature"] == '"no more data"'
    assert ended.log_tail.startswith("step ")
    assert "\033" not in ended.log_tail


def test_the_program_of_a_pod_without_ranks_of_ours_is_called_so(gang: Make) -> None:
    (ended,) = gang(slots=2, script="raise SystemExit('no data')", launch={"launcher": "None"}).run()
    assert '[deepspeed-operator] the program exited with code 1: "no data"' in ended.output
    assert "None" not in ended.output.partition("the program exited")[2]


UNPRIVILEGED = 1000


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize(
    "error",
    [
        "PermissionError: [Errno 13] Permission denied: '{}'",
        "RuntimeError: Parent directory {} does not exist.",
        "RuntimeError: File {} cannot be opened.",
    ],
)
def test_a_volume_that_may_not_be_written_is_named_with_the_uid(error: str) -> None:
    explain = load("dso_cause").unwritable
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)  # a fresh volume is root's, and others may look into it
        text = error.format(f"{made}/global_step1/model.pt")
        assert explain(text) == ""
        os.setreuid(UNPRIVILEGED, 0)  # access(2) asks for the real one
        try:
            assert explain(text) == f"{made} is not writable by uid {UNPRIVILEGED}"
        finally:
            os.setreuid(0, 0)
