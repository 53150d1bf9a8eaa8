"""Ranks that are forked from a warm interpreter find what they would find in a new one."""

import json
import os
import re
import sys
from typing import Any

import pytest

from tests.unit.agent.harness import interpreters
from tests.unit.agent.warm import MODULES, Ended, Pod

# What a program can see of its interpreter; sorted where the order says nothing.
PROBE = r'''
"""The program."""
import sys
import faulthandler, gc, json, os, resource, signal, subprocess, threading, warnings
def disposition(number):
    handler = signal.getsignal(number)
    return getattr(handler, "__name__", str(handler))
def stream(file):
    names = "encoding errors line_buffering write_through newlines mode name".split()
    return [file.fileno(), *(getattr(file, name, None) for name in names), os.fstat(file.fileno()).st_mode & 0o170000]
open_files = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        # The hook's own has the process in its name.
        open_files[fd] = os.readlink("/proc/self/fd/" + fd).split(":")[0].replace(str(os.getpid()), "PID")
    except OSError:
        pass  # the directory's own
main = sys.modules["__main__"]
found = {
    "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "flags": repr(sys.flags), "path": sys.path,
    "executable": [sys.executable, sys.prefix, sys.exec_prefix], "options": [sys._xoptions, sys.warnoptions],
    "environ": dict(os.environ), "cwd": os.getcwd(), "umask": os.umask(0o22),
    "environ of C": sorted(map(repr, subprocess.check_output(["env", "-0"]).split(b"\0"))),
    "main": {name: repr(value)[:80].split(" at 0x")[0] for name, value in vars(main).items() if name.startswith("__")},
    "main is this": main.__dict__ is globals(), "file": __file__, "argv0": sys.argv[0],
    "signals": {str(number): disposition(number) for number in signal.valid_signals()},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "status": [
        line for line in open("/proc/self/status") if line.startswith(("SigI", "SigB", "Shd", "Thr", "Name", "Cap"))
    ],
    "cmdline": open("/proc/self/cmdline").read().rstrip("\0").split("\0"),
    "files": open_files, "leads": [os.getpid() == os.getsid(0), os.getpid() == os.getpgrp()],
    "parent": os.getppid(), "nice": os.nice(0), "limits": [resource.getrlimit(each) for each in range(16)],
    "stdin": stream(sys.stdin), "stdout": stream(sys.stdout), "stderr": stream(sys.stderr),
    "originals": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.excepthook is sys.__excepthook__],
    "faulthandler": faulthandler.is_enabled(), "filters": repr(warnings.filters),
    "threads": [thread.name for thread in threading.enumerate()],
    "main thread": threading.main_thread().native_id == os.getpid(),
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()], "interval": sys.getswitchinterval(),
    "ours": sorted(name for name in sys.modules if name.startswith("dso_")),
    "site": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "finders": sorted(getattr(each, "__name__", type(each).__name__) for each in sys.meta_path),
    "limit": sys.getrecursionlimit(),
}
print(json.dumps(found), flush=True)
'''


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x…", text)


def seen(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.output
    return json.loads(ended.output.splitlines()[-1])


@pytest.mark.parametrize("python", sorted({sys.executable, interpreters()[0], interpreters()[-1]}))
def test_a_program_sees_what_it_sees_in_a_new_interpreter(pod: Pod, python: str) -> None:
    for place in ("train.py", "code/train.py", "pack/train.py", "pack/__main__.py", "pack/__init__.py"):
        file = pod.directory / place
        file.parent.mkdir(exist_ok=True)
        file.write_text("" if place.endswith("__init__.py") else PROBE)
    link = pod.directory / "link.py"
    link.symlink_to("code/train.py")
    modules = [("-m", "pack.train", "a"), ("-m", "pack")]
    for program in [("train.py", "--lr", "1e-4", ""), ("./code/train.py",), (str(link),), *modules]:
        if program == modules[0]:
            pod.close()
        rank = pod.rank(*program, python=python, users="/users/one::relative", LATIN=os.fsdecode(b"\xff"))
        cold, warm = (seen(each) for each in pod.both(rank, *MODULES))
        assert set(cold) == set(warm)
        for name, value in cold.items():
            assert warm[name] == value, (program, name)
        assert warm["parent"] == os.getpid()


ENDS = {
    "returns": "print('last')",
    "exit": "import sys; sys.exit(3)",
    "exit with words": "import sys; sys.exit('what is wrong')",
    "exit with None": "raise SystemExit",
    "os._exit": "import os; os._exit(4)",
    "exception": "def f():\n    raise ValueError('wrong')\ntry:\n    1/0\nexcept ZeroDivisionError:\n    f()",
    "in a module": "import broken",
    "syntax": "def f(:",
    "its own hook": "import sys\nsys.excepthook = lambda k, v, t: print('hooked', k, t.tb_lineno)\n\n1/0",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "aborted": "import os; print('dump'); os.abort()",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "pipe": "import os, signal; os.kill(os.getpid(), signal.SIGPIPE); print('goes on')",
    "atexit": "import atexit; atexit.register(print, 'at exit'); print('first')",
    "thread": "import threading, time\ndef late():\n    time.sleep(0.1); print('late')\n"
    "threading.Thread(target=late).start()",
    "logging": "import logging, sys; logging.warning('w'); print('out'); print('err', file=sys.stderr); print('out')",
    "warning": "import warnings; warnings.warn('careful')",
    "processes": "from multiprocessing import Pool\nif __name__ == '__main__':\n"
    "    with Pool(2) as pool: print(pool.map(abs, [-1, 2]))",
    "spawned": "import multiprocessing as m\ndef say(): print('in', __name__)\nif __name__ == '__main__':\n"
    "    p = m.get_context('spawn').Process(target=say); p.start(); p.join(); print(p.exitcode)",
    "shared memory": "from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=9)\n"
    "m.close(); m.unlink(); print('done')",
    "pickles": "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A)) is A)",
    "executor": "from concurrent.futures import ThreadPoolExecutor as T\nprint(list(T(2).map(abs, [-1])))",
    "subprocess": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; print(sys.path[1:])'])",
    "asyncio": "import asyncio\nasync def f(): return 5\nprint(asyncio.run(f()))",
}


@pytest.mark.parametrize("python", sorted({sys.executable, interpreters()[0], interpreters()[-1]}))
def test_it_ends_as_in_a_new_interpreter_and_says_the_same(pod: Pod, python: str) -> None:
    (pod.directory / "broken.py").write_text("def g():\n    return {}['key']\n\ng()\n")
    for name, text in ENDS.items():
        (pod.directory / "train.py").write_text(text)
        cold, warm = pod.both(pod.rank("train.py", python=python), *MODULES)
        # A dump of the stack shows where the program was called from.
        output = "".join(line for line in warm.output.splitlines(keepends=True) if "/dso_fork" not in line)
        assert (warm.code, without_addresses(output)) == (cold.code, without_addresses(cold.output)), name


def test_all_ranks_of_a_pod_start_together_each_with_its_own_environment(pod: Pod) -> None:
    (pod.directory / "train.py").write_text("import os; print(os.environ['RANK'], os.environ['MASTER_PORT'])")
    ranks = [pod.rank("train.py", MASTER_PORT="29500") for _ in range(8)]
    pod.prepare(ranks[0], *MODULES)
    for number, rank in enumerate(ranks):
        rank.environment.update(RANK=str(number), LOCAL_RANK=str(number), MASTER_PORT="29501")
    ended = pod.warm_run(*ranks)
    assert [each.output.split() for each in ended] == [[str(number), "29501"] for number in range(8)]
    assert len({each.code for each in ended}) == 1


def test_nvml_is_initialized_again_in_each_rank(pod: Pod) -> None:
    """On an H200 a forked process was told that it is not, and DeepSpeed asks NVML for free memory."""
    users = pod.directory / "users"
    users.mkdir()
    (users / "pynvml.py").write_text("import os\nby = []\ndef nvmlInit(): by.append(os.getpid())\nnvmlInit()")
    (pod.directory / "train.py").write_text("import os, pynvml; print(pynvml.by[-1] == os.getpid(), len(pynvml.by))")
    rank = pod.rank("train.py", users=str(users))
    pod.prepare(rank, "pynvml")
    assert pod.warm_run(rank)[0].output == "True 2\n"


def test_what_is_random_is_drawn_anew_and_variables_set_by_imports_stay(pod: Pod) -> None:
    users = pod.directory / "users"
    users.mkdir()
    (users / "sets.py").write_text("import os; os.environ['SET'] = 'by an import'; os.environ.pop('TAKEN')")
    program = "import os, random, multiprocessing as m\n"
    program += "print(random.random(), m.current_process().authkey.hex(), os.environ['SET'], os.environ.get('TAKEN'))"
    (pod.directory / "train.py").write_text(program)
    rank = pod.rank("train.py", users=str(users), TAKEN="away")
    pod.prepare(rank, *MODULES, "sets")
    first, second = (pod.warm_run(rank)[0].output.split(maxsplit=2) for _ in range(2))
    assert first[2] == second[2] == "by an import None\n"
    assert first[0] != second[0]
    assert first[1] != second[1]
