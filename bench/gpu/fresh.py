"""Measures each of many things in processes of its own, one a rank, in whatever world this process was started.

While one pair of processes measures, the next ones import torch, transformers and DeepSpeed, and wait for their turn.
"""

# pyright: basic, reportMissingImports=false

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed

ROOT = Path(__file__).parents[2]
_AHEAD = 2
_POLL_SECONDS = 0.05


@dataclass
class Item:
    """What a process is told (`question`), with which variables it runs, and how long it may take."""

    name: str
    question: dict[str, Any]
    seconds: float
    environment: dict[str, str] = field(default_factory=dict)


class _Process:
    """A process that has imported what it needs when it is asked; its answers are JSON lines."""

    def __init__(self, module: str, item: Item, log: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
        answers, written = os.pipe()
        self.item, self._answers, self._asked = item, answers, os.pipe()
        self._reader: threading.Thread | None = None
        self.lines: list[dict[str, Any]] = []
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-u", "-m", module],
                stdin=self._asked[0],
                stdout=output,
                stderr=output,
                env={**environment, **item.environment, "BENCH_ANSWERS": str(written)},
                pass_fds=[written],
                cwd=ROOT,
            )
        os.close(written)
        os.close(self._asked[0])

    def ask(self, port: int, heard: Callable[[dict[str, Any]], None]) -> None:
        self._reader = threading.Thread(target=self._read, args=(heard,))
        self._reader.start()
        with os.fdopen(self._asked[1], "w") as question:
            question.write(json.dumps({**self.item.question, "port": port}) + "\n")

    def _read(self, heard: Callable[[dict[str, Any]], None]) -> None:
        with os.fdopen(self._answers) as answers:
            for line in answers:
                self.lines.append(json.loads(line))
                heard(self.lines[-1])

    def ended(self) -> bool:
        return self._child.poll() is not None

    def failure(self) -> str:
        said = [line["error"] for line in self.lines if "error" in line]
        return said[-1] if said else f"ended with {self._child.returncode}" if self._child.returncode else ""

    def end(self) -> None:
        if not self.ended():
            self._child.kill()
        self._child.wait()
        if self._reader is not None:
            self._reader.join()


def measure(module: str, items: Sequence[Item], output: Path, budget: float) -> None:
    """Run `module --measure` for every item, and append to `output` on rank 0 what it prints.

    After `budget` seconds nothing more is begun.
    """
    store, rank, _ = next(torch.distributed.rendezvous("env://", timeout=timedelta(minutes=30)))
    begun = time.monotonic()
    log = output.with_suffix(f".{rank}.log")
    waiting: list[_Process] = []
    for index in range(len(items)):
        while len(waiting) <= _AHEAD and index + len(waiting) < len(items):
            waiting.append(_Process(module, items[index + len(waiting)], log))
        if rank == 0:
            store.set(f"port-{index}", str(_free_port() if time.monotonic() - begun < budget else 0))
        port = int(store.get(f"port-{index}"))
        if port == 0:
            break
        _one(store, rank, output, index=index, process=waiting.pop(0), port=port)
    for each in waiting:
        each.end()
    # The store is rank 0's.
    store.add("done", 1)
    if rank == 0:
        while store.add("done", 0) < int(os.environ["WORLD_SIZE"]):
            time.sleep(_POLL_SECONDS)


def _one(store: Any, rank: int, output: Path, *, index: int, process: _Process, port: int) -> None:
    begun, item = time.monotonic(), process.item

    def heard(answer: dict[str, Any]) -> None:
        if rank == 0 and "error" not in answer:
            _write(output, {**answer, "seconds": round(time.monotonic() - begun, 1)})

    process.ask(port, heard)
    failed, why = f"failed-{index}", ""
    while not process.ended() and not why:
        if store.check([failed]):
            why = store.get(failed).decode()
            time.sleep(1)
        elif time.monotonic() - begun > item.seconds:
            why = f"not done after {item.seconds:.0f} s"
        time.sleep(_POLL_SECONDS)
    process.end()
    why = process.failure() if process.failure() and not why.startswith("not done") else why
    if why:
        store.set(failed, why)
    if rank == 0:
        took = time.monotonic() - begun
        if why:
            _write(output, {**item.question, "item": item.name, "error": why, "seconds": round(took, 1)})
        print(f"{item.name}: {took:.1f} s {why[:200]}", flush=True)


def _write(output: Path, line: dict[str, Any]) -> None:
    with output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
