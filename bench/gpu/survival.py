"""What becomes of a run that is told to end, and of one that hangs: 1.345 B parameters, two nodes of one GPU.

    python3 -m bench.gpu.survival --output survival.jsonl       two GPUs, ≈ 460 s

All runs are `dsjob run`'s, and import side by side; the GPUs are one's at a time while steps are timed and checkpoints
written. First a run at stage 1, then one at stage 3 train 60 steps, and are told to end by SIGTERM: they save within
their grace. Then rank 1 of one run hangs after 20 steps, for as long as the limit that was learned; and beside it, with
a limit of 15 s, those of the others, which then start again. One JSON line each; the cases are in bench/gpu/cases.py.
"""

import argparse
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench.gpu import cases
from bench.gpu.cases import CASES, Case
from bench.gpu.restarts import EndedError, Run
from deepspeed_operator.api.names import LAUNCH_FILE, TOKEN_FILE
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.cli.agents import state_of
from deepspeed_operator.render.local_attempt import loopback

_ROOT: Final = Path(__file__).parents[2]
_RANKS: Final = 2
_LAGGARD: Final = 1
_LEARNED_PATIENCE: Final = 420
_GRACE: Final = 40
_HANG: Final = re.compile(r"(?:the ranks hang|stopping, Hang): (.*)")
_EVIDENCE: Final = re.compile(r"\] (hang: rank (\d+), .*)")
_THREAD: Final = re.compile(r"\] (?:Current thread|Thread) ")
_FRAME: Final = re.compile(r'\]   File "(.*)", line (\d+) in (.*)')


def job(case: Case, directory: Path) -> Json:
    """The job of a case, as `dsjob run` gets it."""
    record = case.configuration().record()
    recorder = {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(directory / f"{case.name}-pipe-"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(_dumps(case, directory)),
        "TORCH_FR_DUMP_TEMP_FILE": str(_dumps(case, directory)),
    }
    hangs = case.how != cases.TOLD
    trainer = {
        "name": "trainer",
        "image": "none",
        "env": [{"name": name, "value": value} for name, value in recorder.items() if hangs],
    }
    arguments = [case.name, str(_gate(case, directory)), str(_checkpoints(case, directory))]
    return {
        "apiVersion": "deepspeed-operator.dev/v1alpha1",
        "kind": "DeepSpeedJob",
        "metadata": {"name": case.name},
        "spec": {
            "nodes": _RANKS,
            "slotsPerNode": 1,
            "training": {"module": "bench.gpu.inside.survived", "python": sys.executable, "args": arguments},
            "dsConfig": record["ds_config"],
            "model": {
                "fromConfig": record["model_config"],
                "sequenceLength": record["sequence"],
                "attention": "SDPA",
                "activationCheckpointing": False,
            },
            "checkpoint": {"path": str(_checkpoints(case, directory))},
            "failurePolicy": {"backoffSeconds": 1},
            "lifecycle": {} if case.deadline is None else {"progressDeadlineSeconds": case.deadline},
            "template": {"spec": {"containers": [trainer]}},
        },
    }


def _gate(case: Case, directory: Path) -> Path:
    return directory / f"{case.name}.gate"


def _dumps(case: Case, directory: Path) -> Path:
    return directory / f"{case.name}-nccl-"


def _checkpoints(case: Case, directory: Path) -> Path:
    """What a run that was told to end has saved, others of its stage go on from."""
    return directory / (f"checkpoint-{case.stage}" if case.loads or case.how == cases.TOLD else f"{case.name}-none")


class Bench:
    """A case, whose ranks import as soon as it is made."""

    def __init__(self, case: Case, directory: Path, output: Path, begun: float, until: float) -> None:
        self.case, self.directory, self.output, self.begun = case, directory, output, begun
        path = directory / f"{case.name}.yaml"
        path.write_text(json.dumps(job(case, directory)))
        self.kept = directory / f"{case.name}-run"
        command = [sys.executable, "-m", "deepspeed_operator.cli.main", "run", str(path), "--dir", str(self.kept)]
        self.run = Run(command, output.with_name(f"survival-{case.name}.log"), until)
        self.since = time.time()

    def measure(self) -> None:
        """Let it have the GPUs, and write what became of it."""
        try:
            self.run.wait_for("imported", self.since)
            _gate(self.case, self.directory).touch()
            found = self._told() if self.case.how == cases.TOLD else self._hung()
        except (EndedError, subprocess.TimeoutExpired) as error:
            found = {"error": str(error)}
        finally:
            self.run.end()
        at = round(time.monotonic() - self.begun, 1)
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"case": self.case.name, "at": at, **found}) + "\n")
        shown = {name: value for name, value in found.items() if name not in ("evidence", "said", "progress", "timed")}
        print(f"{at:5.0f} s: {self.case.name}: {shown}", flush=True)

    def _told(self) -> dict[str, Any]:
        """Tell it to end once its steps are timed: what a pod's end does. Seconds are those since then."""
        run = self.run
        run.wait_for("ready", self.since)
        state = self._state()
        timed = json.loads(_gate(self.case, self.directory).with_suffix(".timed").read_text())
        now, said = time.time(), len(run.said)
        run.process.send_signal(signal.SIGTERM)
        run.process.wait(_GRACE)
        ended = time.time()
        latest = _checkpoints(self.case, self.directory) / "latest"
        message = (self.kept / "node-0" / "termination-log").read_text().partition("\n")[0]
        told = json.loads(message)
        return {
            "progress": state.get("progress"),
            "measured": state.get("measured"),
            "timed": timed,
            "saving": self._after("saving", now),
            "saved": self._after("saved", now),
            "latest": round(latest.stat().st_mtime - now, 2) if latest.exists() else None,
            "ended": round(ended - now, 2),
            "code": run.process.returncode,
            "savedAtEnd": told.get("savedAtEnd"),
            "checkpoint": told.get("checkpoint"),
            "killedAfter": told.get("killedAfterSeconds"),
            "said": run.said[said:],
        }

    def _after(self, name: str, since: float) -> float | None:
        """Seconds until the last rank had got so far; None where not all have."""
        times = self.run.times(name, since)
        return round(max(times.values()) - since, 2) if len(times) == _RANKS else None

    def _state(self) -> Json:
        """What rank 0's agent tells the operator."""
        port = json.loads((self.kept / "etc" / LAUNCH_FILE).read_text())["ports"]["agent"]
        return state_of(loopback(0), port, (self.kept / "etc" / TOKEN_FILE).read_text()) or {}

    def has_hung(self) -> bool:
        return self.run.process.poll() is not None or _gate(self.case, self.directory).with_suffix(".left").exists()

    def _hung(self) -> dict[str, Any]:
        """See what is said of it. Seconds are those since rank 1 did something else instead of another step."""
        run, case = self.run, self.case
        if case.how == "stopped":
            run.wait_for("ready", self.since)
            left = run.kill(_LAGGARD, signal.SIGSTOP)
            _gate(case, self.directory).with_suffix(".left").touch()
        else:
            run.wait(lambda: bool(run.times("left", self.since)), "left")
            left = run.times("left", self.since)[_LAGGARD]
        progress = self._state().get("rankSteps")
        run.wait(lambda: self._reported() is not None, "report", _LEARNED_PATIENCE)
        number = self._reported() or 0
        reported, words = run.heard[number], _HANG.search(run.said[number])
        found: dict[str, Any] = {
            "loaded": bool(run.times("loaded", self.since)),
            "reported": round(reported - left, 2),
            "words": words[1] if words else "",
            "rankSteps": progress,
        }
        if case.deadline is None:
            time.sleep(3)  # for the flight recorder
        else:
            run.wait_for("stepped", reported)
            found["stepping"] = self._after("stepped", left)
        dumps = [_dump(path) for path in sorted(self.directory.glob(f"{_dumps(case, self.directory).name}*"))]
        return {**found, "evidence": evidence(run.said), "recorder": dumps}

    def _reported(self) -> int | None:
        return next((number for number, line in enumerate(self.run.said) if _HANG.search(line)), None)


def evidence(said: Sequence[str]) -> list[dict[str, Any]]:
    """Of each rank what the agents' log has of it: its state, how many threads, and the main one's innermost frames."""
    found: list[dict[str, Any]] = []
    for line in said:
        head, frame = _EVIDENCE.search(line), _FRAME.search(line)
        if head:
            found.append({"rank": int(head[2]), "state": head[1], "threads": 0, "frames": []})
        elif found and _THREAD.search(line):
            found[-1].update(threads=found[-1]["threads"] + 1, frames=[])
        elif found and frame and len(found[-1]["frames"]) < 12:
            found[-1]["frames"].append(f"{'/'.join(frame[1].split('/')[-2:])}:{frame[2]} {frame[3]}")
    return found


def _dump(path: Path) -> dict[str, Any]:
    """What torch has recorded of a rank's collectives: how many, and the last two."""
    about: dict[str, Any] = {"file": path.name, "bytes": path.stat().st_size}
    try:
        entries = pickle.loads(path.read_bytes())["entries"]
        last = [{name: each.get(name) for name in ("profiling_name", "state")} for each in entries[-2:]]
    except Exception as error:  # another format is no reason to lose the rest
        return {**about, "error": repr(error)[:200]}
    return {**about, "entries": len(entries), "last": last}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [each.name for each in CASES]
    parser.add_argument("--output", type=Path, required=True, help="JSON lines; the logs lie beside it")
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which nothing is waited for")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = f"{_ROOT}:{_ROOT / 'operator'}:{os.environ.get('PYTHONPATH', '')}"
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        chosen = [each for each in CASES if each.name in arguments.cases]
        until = begun + arguments.budget
        benches = [Bench(each, Path(directory), arguments.output, begun, until) for each in chosen]
        for bench in (each for each in benches if each.case.how == cases.TOLD):
            bench.measure()
        with ThreadPoolExecutor(len(benches)) as pool:
            for bench in (each for each in benches if each.case.how != cases.TOLD):
                done = pool.submit(bench.measure)
                # What is learned is learned from steps of a GPU of its own.
                while bench.case.deadline is None and not (bench.has_hung() or done.done()):
                    time.sleep(0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
