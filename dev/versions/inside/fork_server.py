"""Runs scripts of this directory in forks of a process that has imported PyTorch and DeepSpeed.

Each message on stdin, a socket, is {script, arguments} with four files: the script's stdin, stdout and stderr, and
where its exit code is written. When the socket is closed, this process ends, and with it all in its namespace.
"""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import contextlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

# There is no compiler, and many run side by side.
os.environ.update(OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1")

import beforehand

_FILES, _LONGEST = 4, 1 << 16


def _run(script: str, arguments: list[str], files: list[int]) -> int:
    for number in range(3):
        os.dup2(files[number], number)
    for each in files:
        os.close(each)
    sys.stdin = open(0)  # noqa: SIM115  what was read of the socket's is not the script's
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(str(Path(__file__).with_name(script)), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _forked(question: dict[str, Any], files: list[int]) -> int:
    """Return the exit code, after everything that the script has left behind was ended."""
    child = os.fork()
    if child == 0:
        os.setsid()
        code = _run(question["script"], question["arguments"], files)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    for each in files[:3]:
        os.close(each)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return code


def main() -> None:
    beforehand.prepare_cpu()
    questions = socket.socket(fileno=os.dup(0))
    while True:
        message, files, *_ = socket.recv_fds(questions, _LONGEST, _FILES)
        if not message:
            return
        if os.fork() == 0:
            questions.close()
            code = _forked(json.loads(message), files)
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                os.write(files[3], str(code).encode())
            os._exit(0)
        for each in files:
            os.close(each)
        # It is the first process of its namespace: what others leave is its to bury, too.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


main()
