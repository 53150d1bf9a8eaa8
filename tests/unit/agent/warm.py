"""A pod whose ranks are started cold, and warm: forked from an interpreter that has imported what they import."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.unit.agent.harness import AGENT, load

MODULES = (
    "json",
    "multiprocessing.pool",
    "concurrent.futures.thread",
    "logging",
    "random",
    "runpy",
    "ctypes",
    "xml.dom",
)


class Rank:
    """A process to start, as the agent describes it."""

    def __init__(self, python: str, *program: str, **environment: str) -> None:
        self.argv = [python, "-u", *program]
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            **environment,
        }


class Ended:
    def __init__(self, status: int, output: str) -> None:
        self.code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.output = output


class Pod:
    """Starts ranks cold, as the agent does, and warm, in the test's directory."""

    def __init__(self, directory: Path) -> None:
        self.module = load("dso_warm")
        self.directory = directory
        self.said: list[str] = []
        self.warm = self.module.WarmInterpreters(self.said.append)
        self.hook = directory / "hook"
        self.hook.mkdir()
        for name, copied in (("dso_hook.py", "sitecustomize.py"), ("dso_imports.py", "dso_imports.py")):
            (self.hook / copied).write_text((AGENT / name).read_text())

    def rank(self, *program: str, python: str = sys.executable, users: str = "", **environment: str) -> Rank:
        path = f"{users}:{self.hook}" if users else str(self.hook)
        return Rank(python, *program, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", PYTHONPATH=path, **environment)

    def prepare(self, rank: Rank, *modules: str, changed: Any = None) -> None:
        self.warm.prepare(rank, {"modules": modules, "changed": changed or {}})
        until = time.monotonic() + 120  # it starts at low priority
        while self.warm.server and not self.warm.server.ready:
            assert time.monotonic() < until
            time.sleep(0.01)
            self.warm.look()

    def start(self, *ranks: Rank) -> list[tuple[int, int]] | None:
        pipes = [os.pipe() for _ in ranks]
        pids = self.warm.fork(ranks, [out for _, out in pipes])
        for _, out in pipes:
            os.close(out)
        return list(zip(pids, [read for read, _ in pipes], strict=True)) if pids else None

    def warm_run(self, *ranks: Rank) -> list[Ended]:
        started = self.start(*ranks)
        assert started is not None, self.said
        return [self.end(pid, output) for pid, output in started]

    def end(self, pid: int, output: int) -> Ended:
        with open(output, "rb") as file:
            text = file.read().decode()
        return Ended(os.waitpid(pid, 0)[1], text)

    def cold_run(self, rank: Rank) -> Ended:
        done = subprocess.run(
            rank.argv, env=rank.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, check=False, text=True,
        )  # fmt: skip
        return (
            Ended(0, done.stdout) if done.returncode == 0 else SimpleNamespace(code=done.returncode, output=done.stdout)
        )  # type: ignore[return-value]

    def both(self, rank: Rank, *modules: str) -> tuple[Ended, Ended]:
        cold = self.cold_run(rank)
        if not self.warm.server:
            self.prepare(rank, *modules)
        (warm,) = self.warm_run(rank)
        return cold, warm

    def close(self) -> None:
        server = self.warm.server
        self.warm.end()
        if server:
            os.waitpid(server.process.pid, 0)
