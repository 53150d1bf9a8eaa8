"""Where something speaks against a fork the ranks start cold, with the reason; and what a warm interpreter costs."""

import os
from pathlib import Path

import pytest

from tests.unit.agent.harness import load
from tests.unit.agent.warm import MODULES, Pod, Rank


def count(directory: str) -> int:
    return len(list(Path(directory).iterdir()))


REFUSED: dict[str, tuple[str, str]] = {
    "grpc": ("", "grpc was imported, and gRPC does not support a fork"),
    "thread": ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='t').start()",
               "an import has started the thread t"),
    "native": ("import _thread\n_thread.start_new_thread(_thread.allocate_lock().acquire, ())\nimport ctypes\n"
               "libc = ctypes.CDLL(None)\nt = ctypes.c_ulong()\n"
               "assert not libc.pthread_create(ctypes.byref(t), None, libc.pause, None)",
               "native has started threads as it was imported"),
    "process": ("import subprocess; child = subprocess.Popen(['sleep', '60'])", "an import has started a process"),
    "rank": ("import os; mine = os.getenv('RANK')", "rank reads RANK as it is imported"),
    "device": ("import os; file = os.open('/dev/accel', os.O_RDONLY)", "an import has opened /dev/accel"),
    "home": ("import os; home = os.environ.get('HF_HOME')", "the program sets HF_HOME before it imports home"),
}  # fmt: skip


ALLOWED: dict[str, str] = {
    "named": "import ctypes, threading\nlibc = ctypes.CDLL(None)\nt = ctypes.c_ulong()\n"
             "assert not libc.pthread_create(ctypes.byref(t), None, libc.pause, None)\n"
             "assert not libc.pthread_setname_np(t, b'jemalloc_bg_thd')",
    "ended": "import threading\nthread = threading.Thread(target=print)\nthread.start()\nthread.join()",
    "copy": "import os; mine = {key: value for key, value in dict(os.environ).items() if key.startswith('FSSPEC_')}",
    "items": "import os; mine = [value for key, value in os.environ.items() if key.startswith('TQDM_')]",
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_bears_a_fork_is_not_refused(pod: Pod, name: str) -> None:
    """Threads that a library starts anew, or that have ended; and who looks through all variables for its own."""
    users = pod.directory / "users"
    users.mkdir()
    (users / f"{name}.py").write_text(ALLOWED[name])
    (pod.directory / "train.py").write_text(f"import {name}; print('trained')")
    rank = pod.rank("train.py", users=str(users))
    pod.prepare(rank, name)
    assert pod.warm_run(rank)[0].output == "trained\n"


READ: dict[str, list[str]] = {
    "dict(os.environ); os.environ.copy(); {**os.environ}; list(os.environ.items())": [],
    "dict(os.environ); os.environ['RANK']; dict(os.environ)": ["RANK"],
    "list(os.environ); os.environ['RANK']": ["RANK"],
    "'RANK' in os.environ": ["RANK"],
    "os.getenv('NONE')": ["NONE"],
}


@pytest.mark.parametrize("code", READ)
def test_what_a_module_reads_of_the_environment_is_noted_unless_it_copies_all(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    preload = load("dso_preload")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(os.environ, "__class__", preload.Environ)
    preload.Environ.reads.clear()
    exec(code, {"__name__": "reader", "os": os})
    preload.Environ.settle()
    assert sorted(preload.Environ.reads.get("reader", {})) == READ[code]


def test_a_variable_is_read_also_by_who_went_through_all_before(pod: Pod) -> None:
    users = pod.directory / "users"
    users.mkdir()
    (users / "both.py").write_text("import os\nfor key in os.environ:\n    if key == 'RANK': break\nos.environ['RANK']")
    rank = pod.rank("train.py", users=str(users))
    pod.prepare(rank, "both")
    assert pod.start(rank) is None
    assert "both reads RANK as it is imported" in pod.said[-1]


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_bear_a_fork_is_refused_with_the_reason(pod: Pod, name: str) -> None:
    text, words = REFUSED[name]
    users = pod.directory / "users"
    users.mkdir()
    (users / f"{name}.py").write_text(text)
    if name == "device":
        if Path("/dev/accel").exists() or os.getuid():
            pytest.skip("needs a device file of its own")
        os.mknod("/dev/accel", 0o20600, os.makedev(1, 3))
    try:
        rank = pod.rank("train.py", users=str(users))
        pod.prepare(rank, name, changed={"home": {"HF_HOME": 1}})
        assert pod.start(rank) is None
    finally:
        if name == "device":
            Path("/dev/accel").unlink()
    assert words in pod.said[-1]
    assert pod.said[-1].startswith("the ranks start with cold interpreters: ")


def test_a_start_that_would_differ_is_a_cold_one(pod: Pod) -> None:
    train = pod.directory / "train.py"
    train.write_text("print('trained')")
    users = pod.directory / "users"
    users.mkdir()
    (users / "helper.py").write_text("one = 1")

    def refusal(rank: Rank) -> str:
        if not pod.warm.server:
            pod.prepare(pod.rank("train.py", users=str(users)), "json", "helper")
        assert pod.start(rank) is None
        return pod.said[-1].partition(": ")[2]

    rank = pod.rank("train.py", users=str(users))
    assert (
        refusal(pod.rank("train.py", users=str(users), OMP_NUM_THREADS="2"))
        == "the environment differs in OMP_NUM_THREADS"
    )
    assert refusal(pod.rank("train.py", users="/another")) == "the environment differs in PYTHONPATH"
    assert refusal(pod.rank("none.py", users=str(users))) == "none.py is no file"
    (pod.directory / "json.py").write_text("")
    assert refusal(rank) == f"{pod.directory} has a module json, too"
    (pod.directory / "json.py").unlink()
    pod.prepare(rank, "json", "helper")
    assert pod.warm_run(rank)[0].output == "trained\n"
    (users / "helper.py").write_text("one = 10")
    assert refusal(rank) == f"{users}/helper.py has changed since it was imported"


def test_a_sitecustomize_of_the_users_is_run_in_the_rank_and_not_before(pod: Pod) -> None:
    users = pod.directory / "users"
    users.mkdir()
    (users / "sitecustomize.py").write_text("")
    rank = pod.rank("train.py", users=str(users))
    pod.prepare(rank, "json")
    assert pod.start(rank) is None
    assert "runs as an interpreter starts" in pod.said[-1]


def test_a_server_that_was_killed_makes_the_next_start_cold_and_its_ranks_live_on(pod: Pod) -> None:
    (pod.directory / "train.py").write_text(
        "input() if 0 else None\nimport time\nprint('up')\ntime.sleep(0.3)\nprint('trained')"
    )
    rank = pod.rank("train.py")
    pod.prepare(rank, "json")
    started = pod.start(rank)
    assert started is not None
    ((pid, output),) = started
    server = pod.warm.server.process
    server.kill()
    server.wait()
    assert pod.start(rank) is None
    assert "the warm interpreter" in pod.said[-1]
    ended = pod.end(pid, output)
    assert (ended.code, ended.output) == (0, "up\ntrained\n")


def test_twenty_rounds_leave_nothing_behind(pod: Pod) -> None:
    (pod.directory / "train.py").write_text("import sys; sys.exit(7)")
    ranks = [pod.rank("train.py") for _ in range(2)]
    pod.prepare(ranks[0], *MODULES)
    server = pod.warm.server.process.pid

    def left() -> tuple[int, int, int]:
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return count("/proc/self/fd"), count(f"/proc/{server}/fd"), len(children)

    before = left()
    for _ in range(20):
        assert [each.code for each in pod.warm_run(*ranks)] == [7, 7]
    assert left() == before


def test_a_rank_that_fails_before_its_first_step_makes_the_next_start_cold_and_the_second_one_all(pod: Pod) -> None:
    rank = pod.rank("train.py")
    for words in ("failed before its first step", "for the second time"):
        pod.prepare(rank, "json")
        pod.warm.failed()
        assert pod.start(rank) is None
        assert pod.said[-1].endswith(words)
    pod.prepare(rank, "json")
    assert pod.warm.server is None


def test_little_memory_is_left_to_the_ranks(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod.module, "NEEDED_BYTES", 1 << 50)
    rank = pod.rank("train.py")
    pod.prepare(rank, "json")
    assert pod.start(rank) is None
    assert "GiB of memory are free" in pod.said[-1]


def test_its_imports_have_the_lowest_priority_and_the_ranks_have_not(pod: Pod) -> None:
    users = pod.directory / "users"
    users.mkdir()
    (users / "nice.py").write_text(
        "import os, threading; found = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())"
    )
    (pod.directory / "train.py").write_text("import os, nice; print(nice.found, os.nice(0))")
    rank = pod.rank("train.py", users=str(users))
    pod.prepare(rank, "nice")
    assert pod.warm_run(rank)[0].output == f"19 {os.nice(0)}\n"
