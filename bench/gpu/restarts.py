"""What a failed rank costs: kill -9 of one of two, until both ranks have made a step again.

    python3 -m bench.gpu.restarts --output restarts.jsonl       two GPUs, ≈ 480 s with all launchers at stages 1 and 3

Under `dsjob run` with two nodes of one GPU, with warm and with cold interpreters; under `torchrun --max-restarts`; and
under `deepspeed`, started again by hand as soon as it has ended. A 1.3 B model trains, saves after 20 steps, and goes
on from there. One JSON line each, with the seconds from the kill until both ranks had got so far, and the losses of the
first steps from there.

All runs are side by side, since most of a start is one CPU's work for each rank, and a GPU holds eight: whoever waits
to be killed makes a step every 3 s. All launchers of a stage go on from one checkpoint, which the first of them saves.
"""

import argparse
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_SCRIPT: Final = Path(__file__).parent / "inside" / "restarted.py"
_RANKS: Final = 2
_PATIENCE_SECONDS: Final = 240
_LAST_SECONDS: Final = 90  # for what follows the last kill
_MARK: Final = re.compile(r"mark (\w+) (\d+) (\d+) ([\d.]+)")
_LOSSES: Final = re.compile(r"losses (\d+) (.+)")
_TOLD: Final = ("] warm interpreter: ", "] no warm interpreter: ")
_OURS: Final = ("warm", "cold")
# Where two nodes of dsjob share one GPU, which CUDA_VISIBLE_DEVICES names twice: CUDA then sees none.
_ONE_GPU: Final = ("env", "CUDA_VISIBLE_DEVICES=0") if os.environ.get("BENCH_ONE_GPU") else ()
_MARKS: Final = ("started", "torch", "deepspeed", "imported", "device", "model", "initialized", "loaded", "stepped")


class EndedError(Exception):
    """A run ended, or did not get as far as it should in time."""


class Run:
    """A launcher's run, followed by what its ranks print."""

    def __init__(self, command: Sequence[str], log: Path, until: float = math.inf) -> None:
        """Nothing is waited for after `until`, of time.monotonic()."""
        self.process = subprocess.Popen(
            command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.marks: list[tuple[str, int, int, float]] = []
        self.said: list[str] = []  # by the agents and by dsjob
        self.heard: list[float] = []  # when each of these was
        self.losses: dict[int, str] = {}  # of each rank, since its last start
        self._log, self._until = log.open("a", encoding="utf-8"), until
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._log.write(line)
            self._log.flush()
            found = _MARK.search(line)
            if found:
                self.marks.append((found[1], int(found[2]), int(found[3]), float(found[4])))
                continue
            losses = _LOSSES.search(line)
            if losses:
                self.losses[int(losses[1])] = losses[2].strip()
            elif "[deepspeed-operator]" in line or "[dsjob]" in line:
                self.heard.append(time.time())
                self.said.append(line.rstrip())

    def times(self, name: str, after: float) -> dict[int, float]:
        """Return when each rank printed a mark after that time."""
        return {rank: at for mark, rank, _, at in self.marks if mark == name and at > after}

    def wait_for(self, name: str, after: float) -> None:
        self.wait(lambda: len(self.times(name, after)) == _RANKS, name)

    def wait_for_interpreters(self) -> None:
        self.wait(lambda: sum(any(each in line for each in _TOLD) for line in self.said) >= _RANKS, "interpreter")

    def wait(self, condition: Callable[[], bool], what: str, patience: float = _PATIENCE_SECONDS) -> None:
        until = min(self._until, time.monotonic() + patience)
        while not condition():
            if time.monotonic() > until or self.process.poll() is not None:
                raise EndedError(f"no {what}: {self.process.poll()}, {self.marks[-4:]}, {self.said[-3:]}")
            time.sleep(0.01)

    def kill(self, victim: int, number: signal.Signals = signal.SIGKILL) -> float:
        """Send this rank a signal, and return when."""
        pid = next(pid for mark, rank, pid, _ in reversed(self.marks) if mark == "ready" and rank == victim)
        now = time.time()
        os.kill(pid, number)
        return now

    def end(self) -> None:
        with_all = self.process.pid
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(with_all, number)
                self.process.wait(15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


class Bench:
    """A launcher at a stage. `saves`: it makes the checkpoint, for which the others wait."""

    def __init__(self, launcher: str, stage: int, directory: Path, output: Path, *, saves: bool, begun: float) -> None:
        self.launcher, self.stage, self.directory, self.output = launcher, stage, directory, output
        self.saves, self.begun = saves, begun
        self.log = output.with_name(f"{launcher}-{stage}.log")

    def arguments(self) -> list[str]:
        directory = self.directory / f"checkpoint-{self.stage}"
        return [str(self.stage), str(directory), "saves" if self.saves else "waits"]

    def dsjob(self, warm: str) -> list[str]:
        job = {
            "apiVersion": "deepspeed-operator.dev/v1alpha1",
            "kind": "DeepSpeedJob",
            "metadata": {"name": f"{warm}-{self.stage}".lower()},
            "spec": {
                "nodes": _RANKS,
                "slotsPerNode": 1,
                "training": {"script": str(_SCRIPT), "python": sys.executable, "args": self.arguments()},
                "failurePolicy": {"warmInterpreters": warm, "backoffSeconds": 1},
            },
        }
        path = self.directory / f"{warm}-{self.stage}.yaml"
        path.write_text(json.dumps(job))
        return [sys.executable, "-m", "deepspeed_operator.cli.main", "run", str(path)]

    def torchrun(self) -> list[str]:
        nodes = ["--nproc-per-node", str(_RANKS), "--max-restarts", "5", "--master-port", str(_port())]
        return [*_ONE_GPU, sys.executable, "-m", "torch.distributed.run", *nodes, str(_SCRIPT), *self.arguments()]

    def deepspeed(self) -> list[str]:
        nodes = ["--num_gpus", str(_RANKS), "--master_port", str(_port())]
        return [*_ONE_GPU, sys.executable, "-m", "deepspeed.launcher.runner", *nodes, str(_SCRIPT), *self.arguments()]

    def measure(self, times: int, until: float) -> None:
        """Kill a rank so often, but not after that time, and write what it cost each time."""
        command = {
            "warm": lambda: self.dsjob("Auto"),
            "cold": lambda: self.dsjob("Off"),
            "torchrun": self.torchrun,
            "deepspeed": self.deepspeed,
        }[self.launcher]
        begun = time.time()
        run = Run(command(), self.log, until + _LAST_SECONDS)
        try:
            run.wait_for("ready", begun)
            self.write(run, "first", begun)
            for number in range(times):
                if number and number % _RANKS == 0 and self.launcher in _OURS:
                    # A node on which a second rank was killed would give its pod back.
                    run.end()
                    begun = time.time()
                    run = Run(command(), self.log, until + _LAST_SECONDS)
                    run.wait_for("ready", begun)
                if self.launcher == "warm":
                    run.wait_for_interpreters()
                if time.monotonic() > until:
                    break
                said = len(run.said)
                killed, ended = run.kill(1 - number % _RANKS), None
                if self.launcher == "deepspeed":
                    run.process.wait(_PATIENCE_SECONDS)
                    ended = round(time.time() - killed, 2)
                    run = Run(command(), self.log, until + _LAST_SECONDS)
                run.wait_for("ready", killed)
                self.write(run, str(number + 1), killed, run.said[said:], ended)
        except EndedError as error:
            print(f"stage {self.stage} {self.launcher}: {error}", flush=True)
        finally:
            run.end()

    def write(self, run: Run, which: str, since: float, said: Sequence[str] = (), ended: float | None = None) -> None:
        """Write when the last rank had got how far; `ended`: when the launcher had ended, where it had to."""
        reached = {name: round(max(run.times(name, since).values()) - since, 2) for name in _MARKS}
        at = round(time.monotonic() - self.begun, 1)
        line: dict[str, Any] = {"stage": self.stage, "launcher": self.launcher, "restart": which, "seconds": reached}
        line.update(ended=ended, at=at, said=said, losses=run.losses)
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{at:5.0f} s: stage {self.stage} {self.launcher} {which}: {reached}", flush=True)


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", nargs="+", type=int, default=[1, 3])
    parser.add_argument("--output", type=Path, required=True, help="JSON lines; the logs lie beside it")
    parser.add_argument("--launchers", nargs="+", default=["warm", "cold", "torchrun", "deepspeed"])
    parser.add_argument(
        "--times", type=int, default=5, help="restarts of each launcher; dsjob run begins anew after two"
    )
    parser.add_argument("--beside", type=int, default=8, help="runs side by side")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no other rank is killed")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = f"{_ROOT}:{_ROOT / 'operator'}:{os.environ.get('PYTHONPATH', '')}"
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        until = begun + arguments.budget
        with ThreadPoolExecutor(arguments.beside) as pool:
            for launcher in arguments.launchers:
                for stage in arguments.stages:
                    saves = launcher == arguments.launchers[0]
                    bench = Bench(launcher, stage, Path(directory), arguments.output, saves=saves, begun=begun)
                    pool.submit(bench.measure, arguments.times, until)
    return 0


if __name__ == "__main__":
    sys.exit(main())
