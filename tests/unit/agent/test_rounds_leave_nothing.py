"""Of a round nothing is left in its pods: no process, no file in shared memory, no descriptor."""

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.agent.harness import Gang, load
from tests.unit.agent.test_rounds import restarting

Make = Callable[..., Gang]


def test_what_a_rank_has_started_is_gone_before_the_next_round(gang: Make) -> None:
    """Also what has left its session, changed its parent, and cleared its environment."""
    script = """
if restarts == 0:
    hidden = "import os, sys; os.fork() and sys.exit(); os.setsid(); print('hidden', os.getpid(), flush=True)"
    hidden += "; open('hides', 'w').close()"
    subprocess.run([sys.executable, "-c", hidden + "; os.execlp('sleep', 'sleep', '600')"], env={})
    helper = subprocess.Popen(["sleep", "601"], start_new_session=True)
    print("helper", helper.pid, flush=True)
    while not os.path.exists("hides"):
        time.sleep(0.02)
    os.kill(os.getpid(), 9)
time.sleep(60)
"""
    running = restarting(gang, script, nodes=1).start()
    running.wait_for_output("start 1 of rank 0")
    for name in ("hidden", "helper"):
        assert not Path(f"/proc/{running.output.split(name)[1].split()[0]}").exists()


def test_what_came_into_the_container_from_outside_is_left_alone(gang: Make) -> None:
    waits = "while not os.path.exists('entered'): time.sleep(0.02)"
    script = f"if restarts == 0:\n    {waits}\n    sys.exit(1)\ntime.sleep(60)"
    made = restarting(gang, script, nodes=1)
    running = made.start(wrapper=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    running.wait_for_output("start 0 of rank 0")
    first = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()[0]
    environment = dict(each.split("=", 1) for each in Path(f"/proc/{first}/environ").read_text().split("\0") if each)
    enter = ["nsenter", "-t", first, "-p", "sh", "-c", "setsid sleep 602 >/dev/null 2>&1 & echo $!"]
    subprocess.run(enter, env=environment, check=True, capture_output=True)
    (made.code / "entered").touch()
    running.wait_for_output("start 1 of rank 0")
    assert subprocess.run(["pgrep", "-f", "^sleep 602$"], capture_output=True, check=False).stdout


def test_files_that_a_round_left_in_shared_memory_go_and_anothers_stay(gang: Make, tmp_path: Path) -> None:
    own, others = f"torch_dsj-test-own-{os.getpid()}", f"torch_dsj-test-others-{os.getpid()}"
    directory = Path("/dev/shm", f"torch_dsj-test-directory-{os.getpid()}")
    script = f"""
if restarts == 0:
    open("/dev/shm/{own}", "w").write("left behind")
    os.makedirs("/dev/shm/{directory.name}/checkpoint", exist_ok=True)
    while not os.path.exists("/dev/shm/{others}"):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
print("left:", sorted(name for name in os.listdir("/dev/shm") if name.endswith("-{os.getpid()}")), flush=True)
"""
    try:
        running = restarting(gang, script, nodes=1).start()
        running.wait_for_output("start 0 of rank 0")
        with Path("/dev/shm", others).open("w"):
            ended = running.end()
        assert f"left: {[directory.name, others]}" in ended.output
    finally:
        for path in (Path("/dev/shm", others), Path("/dev/shm", own)):
            path.unlink(missing_ok=True)
        for path in (directory / "checkpoint", directory):
            path.rmdir()


def test_what_was_in_shared_memory_before_a_round_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a place of its own: agents of other tests clear the machine's."""
    shm = load("dso_shm")
    monkeypatch.setattr(shm, "PLACE", str(tmp_path))
    (tmp_path / "torch_before").touch()
    memory = shm.SharedMemory()
    (tmp_path / "torch_since").touch()
    memory.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["torch_before"]


def test_twenty_restarts_leave_nothing_behind(gang: Make) -> None:
    rounds = 20
    name = f"torch_dsj-rounds-{os.getpid()}-"
    script = f"""
import mmap, tempfile
with open(f"/dev/shm/{name}{{os.getpid()}}", "w+b") as file:
    file.truncate(1 << 20)
    mapped = mmap.mmap(file.fileno(), 1 << 20)
subprocess.Popen(["sleep", "603"], start_new_session=True)
if restarts == {rounds}:
    time.sleep(60)
if rank == 1:
    time.sleep(0.1)
    sys.exit(1)
time.sleep(60)
"""
    policy = {"restarts": {"user": 100, "infrastructure": 0}}
    running = restarting(gang, script, policy=policy).start_all()
    seen: dict[int, list[tuple[int, int, int, int]]] = {}

    def look() -> bool:
        state = running[0].get("/state")[1]
        if state["phase"] == "Running" and len(list(Path("/dev/shm").glob(f"{name}*"))) == 2:
            with suppress(FileNotFoundError, ProcessLookupError):  # the round ended meanwhile
                seen[state["round"]] = [usage(each.process.pid) for each in running]
        return state["round"] == rounds + 1 and [each[-1] for each in seen.get(rounds + 1, [])] == [2, 2]

    try:
        running[0].wait_until_ready()
        running[0].wait_for(look, 180)
    finally:
        for path in Path("/dev/shm").glob(f"{name}*"):
            path.unlink()
    for index in range(2):
        files, threads, memory, _ = zip(*(usages[index] for usages in seen.values()), strict=True)
        # A heartbeat that is on its way has a socket and a thread of its own.
        assert min(files[-5:]) <= max(files[:5])
        assert min(threads[-5:]) <= max(threads[:5])
        assert memory[-1] - memory[0] < 3000, "KiB"


def usage(pid: int) -> tuple[int, int, int, int]:
    """Open files, threads, KiB of memory and the number of processes below."""
    status = Path(f"/proc/{pid}/status").read_text()
    threads, memory = (int(status.split(name)[1].split()[0]) for name in ("Threads:", "VmRSS:"))
    children = [each for task in Path(f"/proc/{pid}/task").glob("*/children") for each in task.read_text().split()]
    for child in list(children):
        for task in Path(f"/proc/{child}/task").glob("*/children"):
            children += task.read_text().split()
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), threads, memory, len(children)
