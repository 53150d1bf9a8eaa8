"""The agents ask NCCL how the ranks are connected, keep its lines out of the log, and tell it for the gang."""

import http.client
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import PRINT_ENVIRONMENT, TOKEN, Gang, Running, load

Make = Callable[..., Gang]
LOGS = Path(__file__).parent / "nccl"

# A rank that writes a report as NCCL does: to the file that NCCL_DEBUG_FILE names, else to its output.
REPORT = f"""
import os, pathlib, re, socket, sys, time
text = pathlib.Path({str(LOGS)!r}, sys.argv[1] + ".log").read_text()
lines = re.split(r"^### node \\d+\\n", text, flags=re.M)[1 + int(os.environ["GROUP_RANK"])]
name = os.environ.get("NCCL_DEBUG_FILE", "/dev/stdout").replace("%h", socket.gethostname().split(".")[0])
with open(name.replace("%p", str(os.getpid())), "a") as file:
    file.write(lines)
print("connected", flush=True)
time.sleep(float(sys.argv[2]))
"""


def reporting(gang: Make, log: str, seconds: float = 60, **launch: Any) -> Gang:
    return gang(nodes=2, script=REPORT, launch={"args": [log, str(seconds)], **launch})


def fabric(profile: str) -> dict[str, Any]:
    return {"profile": profile, "fallbacks": ["Socket"]}


def state_of(first: Running) -> str:
    return first.get("/state")[1]["transport"]["state"] if first.ask("/livez") else ""


def test_nccl_is_asked_for_its_report_in_a_file_of_its_own(gang: Make) -> None:
    (ended,) = gang(slots=2, script=PRINT_ENVIRONMENT).run()
    for env in ended.environments:
        assert (env["NCCL_DEBUG"], env["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET")
        assert env["NCCL_DEBUG_FILE"].endswith("/nccl.%h.%p")
        assert not Path(env["NCCL_DEBUG_FILE"]).parent.exists(), "it is removed in the end"


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"])
def test_a_user_who_asked_for_anything_is_left_alone(gang: Make, name: str) -> None:
    (ended,) = gang(script=PRINT_ENVIRONMENT).run(**{name: "WARN"})
    (env,) = ended.environments
    assert {key: value for key, value in env.items() if key.startswith("NCCL_DEBUG")} == {name: "WARN"}


def test_a_settings_file_of_nccls_counts_as_asking(gang: Make, tmp_path: Path) -> None:
    settings = tmp_path / "nccl.conf"
    settings.write_text("# ours\nNCCL_IB_TIMEOUT=22\nNCCL_DEBUG=WARN\n")
    (ended,) = gang(script=PRINT_ENVIRONMENT).run(NCCL_CONF_FILE=str(settings))
    assert not [key for key in ended.environments[0] if key.startswith("NCCL_DEBUG")]


@pytest.mark.parametrize(("log", "state"), [("2.28-socket", "Socket"), ("2.28-nvlink", "P2P"), ("2.27-efa", "OFI")])
def test_rank_0s_agent_tells_what_all_nodes_use(gang: Make, log: str, state: str) -> None:
    first, second = reporting(gang, log).start_all()
    first.wait_for(lambda: state_of(first) == state)
    assert second.get("/state")[1]["transport"] is None
    assert "NCCL INFO" not in first.output


def test_pending_before_the_first_collective_and_unknown_after_a_step_of_deepspeed(gang: Make) -> None:
    step = "print('[INFO] [logging.py:107:log_dist] [Rank 0] step=1, skipped=0, lr=[0.01], mom=[]', flush=True)"
    made = gang(script=f"import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n{step}\ntime.sleep(60)")
    running = made.start()
    running.wait_until_ready()
    assert state_of(running) == "Pending"
    (made.code / "go").touch()
    running.wait_for(lambda: state_of(running) == "Unknown")
    assert "gloo" in running.get("/state")[1]["transport"]["message"]


def test_who_set_nccl_debug_sees_its_lines_and_the_guard_sees_them_too(gang: Make) -> None:
    first, second = reporting(gang, "2.28-socket").start_all(NCCL_DEBUG="INFO")
    first.wait_for(lambda: state_of(first) == "Socket")
    assert "host:2227:2227 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n" in first.output
    second.wait_for_output("[rank 1] host:2225:2225 [0] NCCL INFO Channel 00/0")


def test_lines_that_a_program_sends_to_its_output_itself_are_seen_too(gang: Make) -> None:
    script = REPORT.replace('os.environ.get("NCCL_DEBUG_FILE", "/dev/stdout")', '"/dev/stdout"')
    first, _ = gang(nodes=2, script=script, launch={"args": ["2.28-socket", "60"]}).start_all(NCCL_DEBUG="WARN")
    first.wait_for(lambda: state_of(first) == "Socket")


FORGED: list[Any] = [
    {"links": 7}, {"version": "", "comms": [], "links": [[0, 1, "NET/Socket", ""]]}, ["links"], "links",
    {"version": "", "comms": [["", 1, []]], "links": [[0, "1", "NET/Socket", {}]]},
]  # fmt: skip


@pytest.mark.parametrize("report", FORGED)
def test_a_report_that_no_agent_makes_is_not_taken(gang: Make, report: Any) -> None:
    made = gang(nodes=2, script="import time; time.sleep(60)")
    first = made.start(0)
    first.wait_for(lambda: first.ask("/livez") == 200)
    pod: dict[str, Any] = {"index": 1, "pod": "p", "podUid": "u", "node": "n", "addresses": []}
    pod |= {"replacement": 0, "fenced": False}
    heartbeat: dict[str, Any] = {
        "protocol": 3,
        "uid": "job-uid",
        "attempt": 1,
        "round": 1,
        "knows": [1, 0],
        "stopSeconds": 0.0,
        "hang": 0,
        "phase": "Waiting",
        "wait": False,
    }
    news = ("cause", "ago", "left", "stepped", "stuck", "world", "ranks", "ahead", "endings", "pace", "evidence")
    heartbeat |= {**pod, **dict.fromkeys(news), "transport": report}
    connection = http.client.HTTPConnection(made.hosts[0], made.port, timeout=30)
    authorization = {"Authorization": f"Bearer {TOKEN}"}
    connection.request("POST", "/heartbeat", json.dumps(heartbeat), authorization)
    assert connection.getresponse().status == 200
    connection.close()
    first.wait_until_ready()
    assert state_of(first) == "Pending"


def test_a_users_own_debug_files_are_read_and_kept(gang: Make, tmp_path: Path) -> None:
    pattern = str(tmp_path / "mine.%h.%p")
    old = tmp_path / pattern.rpartition("/")[2].replace("%h", os.uname().nodename.split(".")[0]).replace("%p", "1")
    old.write_text((LOGS / "2.27-efa.log").read_text())
    os.utime(old, (0, 0))
    first, second = reporting(gang, "2.28-socket").start_all(NCCL_DEBUG="info", NCCL_DEBUG_FILE=pattern)
    first.wait_for(lambda: state_of(first) == "Socket")
    second.wait_for_output("connected")
    assert len(list(tmp_path.glob("mine.*"))) == 3


def test_a_lower_level_hides_the_transport_and_says_so(gang: Make) -> None:
    made = gang(script="import time; time.sleep(60)")
    running = made.start(NCCL_DEBUG="WARN")
    running.wait_until_ready()
    assert "NCCL_DEBUG=WARN" in running.get("/state")[1]["transport"]["message"]


def test_a_short_run_leaves_what_it_used_in_its_message(gang: Make) -> None:
    first, second = reporting(gang, "2.28-socket", 0).run()
    assert first.cause["transport"]["state"] == "Socket"
    assert first.cause["transport"]["links"][0]["devices"] == ["lo"]
    assert "transport" not in second.cause


def test_a_required_fabric_that_is_not_used_ends_the_run_with_that_reason(gang: Make) -> None:
    ended = [
        each.end() for each in reporting(gang, "2.21-socket-fallback", requiredFabric=fabric("InfiniBand")).start_all()
    ]
    for each in ended:
        assert each.cause["reason"] == "TransportMismatch"
        assert "InfiniBand" in each.cause["signature"]
        # Of two pairs that fell back, the first that is read ends the run.
        assert re.search(r"NET/Socket \((bond0\.2093, )?eth0\)", each.cause["signature"])


def test_a_required_fabric_that_is_used_ends_nothing(gang: Make) -> None:
    ended = reporting(gang, "2.27-efa", 2, requiredFabric=fabric("AWS-EFA")).run()
    assert [each.code for each in ended] == [0, 0]


def test_a_file_that_grows_without_end_is_cut_and_no_longer_read(tmp_path: Path) -> None:
    transport = load("dso_transport")
    path = tmp_path / "nccl.host.1"
    tail = transport.Tail()
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"h:1:2 [0] NCCL INFO noise\n" * 20_000)
            file.flush()
            tail.read(str(path), True)
        assert path.stat().st_blocks * 512 < 2 * transport.KEPT_BYTES
    assert tail.offset <= transport.READ_BYTES + transport.PIECE
