"""`dsjob run` of a job with its program in one file, for tests of it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
NO_GPU = {"limits": {"nvidia.com/gpu": 0}}

# What a rank was given, as one line.
TELL = "import json, os, sys; print(json.dumps({**os.environ, 'CWD': os.getcwd(), 'ARGS': sys.argv[1:]}), flush=True)"


@dataclass(frozen=True)
class Ended:
    code: int
    output: str

    @property
    def ranks(self) -> dict[int, dict[str, Any]]:
        """What each rank told, by its number."""
        told = [json.loads(line[line.index("{") :]) for line in self.output.splitlines() if '"CWD"' in line]
        return {int(each["RANK"]): each for each in told}


class Running:
    def __init__(self, directory: Path, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "deepspeed_operator.cli.main", "run", *arguments]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator"), "TMPDIR": str(directory)}
        self._output = directory / "output"
        with self._output.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=directory, env={**env, **environment}, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def pids(self, number: int) -> list[int]:
        """The processes of so many ranks, which run now."""
        waiting = re.compile(r"waiting as (\d+)$", re.MULTILINE)
        self.wait_for(lambda: len(waiting.findall(self.output)) >= number)
        return [int(pid) for pid in waiting.findall(self.output)]

    def wait_for_output(self, text: str) -> None:
        self.wait_for(lambda: text in self.output)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < until, self.output
            time.sleep(0.02)

    def end(self, seconds: float = 60) -> Ended:
        return Ended(self.process.wait(seconds), self.output)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Writes a job with its program into one file, and runs it."""
    started: list[Running] = []

    def starting(
        program: str, *arguments: str, environment: dict[str, str] | None = None, trainer: Any = None, **spec: Any
    ) -> Running:
        training = {"script": "train.py", "files": {"configMap": "code"}, **spec.pop("training", {})}
        job: dict[str, Any] = {
            "apiVersion": "deepspeed-operator.dev/v1alpha1",
            "kind": "DeepSpeedJob",
            "metadata": {"name": "plain"},
            "spec": {
                "training": training,
                "template": {"spec": {"containers": [{"name": "trainer", "resources": NO_GPU, **(trainer or {})}]}},
                **spec,
            },
        }
        code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"train.py": program}}
        (tmp_path / "job.yaml").write_text(f"{json.dumps(job)}\n---\n{json.dumps(code)}")
        started.append(Running(tmp_path, "job.yaml", *arguments, **(environment or {})))
        return started[-1]

    yield starting
    for running in started:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            running.process.wait(30)
