"""The launchers beside ours. Stand-ins play DeepSpeed's and torch's; the end-to-end tests run the real ones."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.agent.harness import PRINT_ENVIRONMENT, Gang, failure_policy

Make = Callable[..., Gang]

# Like DeepSpeed's: starts `-m deepspeed.launcher.launch`, and exits 0 when that was killed by a signal.
RUNNER = """
import json, os, subprocess, sys
def main():
    print("cli", json.dumps(sys.argv[1:]), flush=True)
    launch = [sys.executable, "-u", "-m", "deepspeed.launcher.launch"]
    result = subprocess.Popen([*launch, sys.argv[sys.argv.index("--node_rank") + 1], *sys.argv[-2:]])
    result.wait()
    if result.returncode > 0:
        sys.exit(result.returncode)
"""
LAUNCH = """
import os, subprocess, sys
node, script, how = sys.argv[1:]
if how == "killed" and node == "1":
    os.kill(os.getpid(), 9)
sys.exit(subprocess.call([sys.executable, "-u", script, how], env={**os.environ, "RANK": node}))
"""
SCRIPT = """
import os, signal, sys, time
if sys.argv[1] == "fails" and os.environ["RANK"] == "1":
    raise ValueError("in the script")
if sys.argv[1] == "saves":
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), print("saved", flush=True), sys.exit(0)))
if sys.argv[1] != "trains":
    print("started", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def deepspeed(tmp_path: Path) -> str:
    """A path with a stand-in for the package deepspeed."""
    launcher = tmp_path / "packages/deepspeed/launcher"
    launcher.mkdir(parents=True)
    for path in (launcher / "__init__.py", launcher.parent / "__init__.py"):
        path.touch()
    (launcher / "runner.py").write_text(RUNNER)
    (launcher / "launch.py").write_text(LAUNCH)
    (tmp_path / "packages/deepspeed-0.19.8.dist-info").mkdir()
    return str(tmp_path / "packages")


def with_deepspeed(gang: Make, how: str) -> Gang:
    return gang(nodes=2, script=SCRIPT, launch={"launcher": "DeepSpeed", "args": [how]})


def test_deepspeeds_cli_gets_our_hostfile_and_world(gang: Make, deepspeed: str) -> None:
    made = with_deepspeed(gang, "trains")
    ended = made.run(PYTHONPATH=deepspeed)
    assert [(each.code, each.cause["reason"], each.cause["deepspeed"]) for each in ended] == [
        (0, "Completed", "0.19.8")
    ] * 2
    cli = json.loads(ended[1].output.split("cli ")[1].splitlines()[0])
    hostfile = str(made.directory / "etc/hostfile")
    world = ["--num_nodes", "2", "--num_gpus", "1", "--node_rank", "1"]
    master = ["--master_addr", made.hosts[0], "--master_port", "29500"]
    assert cli == ["--no_ssh", "--hostfile", hostfile, *world, *master, "train.py", "trains"]


def test_a_killed_deepspeed_launcher_is_a_failure_though_its_cli_exits_0(gang: Make, deepspeed: str) -> None:
    ended = with_deepspeed(gang, "killed").run(PYTHONPATH=deepspeed)
    assert [each.cause["index"] for each in ended] == [1, 1]
    assert "deepspeed.launcher.launch was killed by signal 9" in ended[1].cause["signature"]
    assert all(each.code != 0 for each in ended)


def test_a_rank_under_deepspeeds_launcher_that_fails(gang: Make, deepspeed: str) -> None:
    ended = with_deepspeed(gang, "fails").run(PYTHONPATH=deepspeed)
    assert {(each.code, each.cause["rank"], each.cause["signature"]) for each in ended} == {
        (1, 1, "ValueError: in the script")
    }


@pytest.mark.parametrize("slots", [1, 2])
def test_a_rank_killed_under_deepspeeds_launcher_is_a_signal(gang: Make, deepspeed: str, slots: int) -> None:
    # Its launcher makes 247 of -9, and says so in its log.
    script = (
        "print('[x] [ERROR] [launch.py:259:sigkill_handler] [] exits with return code = -9'); raise SystemExit(247)"
    )
    (ended,) = gang(slots=slots, script=script, launch={"launcher": "DeepSpeed", "args": ["x"]}).run(
        PYTHONPATH=deepspeed
    )
    assert (ended.code, ended.cause["signal"], ended.cause["exitCode"]) == (137, 9, None)


def test_ranks_under_deepspeeds_launcher_have_their_grace(gang: Make, deepspeed: str) -> None:
    made = with_deepspeed(gang, "saves")
    running = made.start_all(PYTHONPATH=deepspeed)
    for each in running:
        each.wait_for_output("started")
    running[0].signal(15)
    ended = [each.end() for each in running]
    assert [each.code for each in ended] == [143, 143]
    assert all("saved" in each.output for each in ended)


def test_launcher_deepspeed_without_deepspeed_is_refused(gang: Make) -> None:
    ended = with_deepspeed(gang, "trains").run()
    assert {each.cause["reason"] for each in ended} == {"PodCheckFailed"}
    assert "has no deepspeed" in ended[0].cause["signature"]


def test_launcher_none_runs_the_command_once_with_the_nodes_values(gang: Make) -> None:
    made = gang(nodes=2, slots=4, script=PRINT_ENVIRONMENT, launch={"launcher": "None", "args": ["$(NODE_RANK)"]})
    ended = made.run()
    assert [each.code for each in ended] == [0, 0]
    (env,) = ended[1].environments
    node = {
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "4",
        "MASTER_ADDR": made.hosts[0],
        "MASTER_PORT": "29500",
    }
    assert {name: env[name] for name in node} == node
    assert {name: env["PET_" + name] for name in node} == node
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & set(env)
    assert "[rank" not in ended[1].output


@pytest.mark.parametrize("word", ["$(RANK)-$(WORLD_SIZE)", "--nnodes=${WORLD_SIZE:-1}", "$RANK"])
def test_a_command_that_names_a_pytorchjobs_variables_gets_them(gang: Make, word: str) -> None:
    ended = gang(nodes=2, slots=4, script=PRINT_ENVIRONMENT, launch={"launcher": "None", "args": [word]}).run()
    (env,) = ended[1].environments
    assert (env["WORLD_SIZE"], env["RANK"]) == ("2", "1"), "pods, not ranks"
    assert "LOCAL_RANK" not in env


def test_a_failure_under_launcher_none_names_no_rank_when_there_are_several(gang: Make) -> None:
    (ended,) = gang(slots=2, script="raise SystemExit(5)", launch={"launcher": "None"}).run()
    assert (ended.code, ended.cause["rank"], ended.cause["exitCode"]) == (5, None, 5)


def test_the_rank_that_torch_names_in_its_traceback_is_taken(gang: Make) -> None:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 1', "ValueError: boom"]
    script = "".join(f"print({'[rank3]: ' + line!r})\n" for line in lines) + "raise SystemExit(1)"
    (ended,) = gang(slots=4, script=script, launch={"launcher": "None"}).run()
    assert (ended.cause["rank"], ended.cause["signature"]) == (3, "ValueError: boom")


ONCE = """
import os, sys, time
print("port", os.environ["MASTER_PORT"], flush=True)
if os.environ.get("RANK", os.environ["NODE_RANK"]) == "1" and os.environ["MASTER_PORT"] == "29500":
    raise ValueError("this once")
time.sleep(1.5 if os.environ["MASTER_PORT"] == "29501" else 60)
"""


@pytest.mark.parametrize("launcher", ["DeepSpeed", "None"])
def test_a_launchers_ranks_start_again_in_their_pods(gang: Make, deepspeed: str, launcher: str) -> None:
    launch = {"launcher": launcher, "args": ["trains"], "failurePolicy": failure_policy()}
    ended = gang(nodes=2, script=ONCE, launch=launch).run(PYTHONPATH=deepspeed)
    assert [(each.code, each.cause["round"], each.cause["rounds"]["user"]) for each in ended] == [(0, 2, 1)] * 2
    assert all("port 29501" in each.output for each in ended)


@pytest.mark.parametrize(("kind", "program"), [("script", ["train.py"]), ("module", ["--module", "train"])])
def test_torchrun_gets_the_jobs_world(gang: Make, tmp_path: Path, kind: str, program: list[str]) -> None:
    package = tmp_path / "packages/torch/distributed"
    package.mkdir(parents=True)
    for path in (package / "__init__.py", package.parent / "__init__.py"):
        path.touch()
    (package / "run.py").write_text('import json, sys; print("cli", json.dumps(sys.argv[1:]), flush=True)')
    launch = {"launcher": "Torchrun", "program": {"kind": kind, "value": program[-1:]}, "args": ["--epochs", "1"]}
    made = gang(nodes=2, slots=4, launch=launch)
    ended = made.run(PYTHONPATH=str(tmp_path / "packages"))
    assert [(each.code, each.cause["reason"]) for each in ended] == [(0, "Completed")] * 2
    cli = json.loads(ended[1].output.split("cli ")[1].splitlines()[0])
    world = ["--nnodes", "2", "--node_rank", "1", "--nproc_per_node", "4"]
    master = ["--master_addr", made.hosts[0], "--master_port", "29500"]
    assert cli == [*world, *master, *program, "--epochs", "1"]
