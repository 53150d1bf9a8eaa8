"""Runs real agents on loopback addresses, as the pods of one gang would run them."""

import contextlib
import http.client
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

AGENT = Path(__file__).parents[3] / "operator/deepspeed_operator/agent"
TOKEN = "the token of an attempt"
CONFIG = {"train_micro_batch_size_per_gpu": 4}

# What a training script may ask for: the variables that a rank was given, one JSON object a line.
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"

# Where a rank does something after another's end: once the agent has seen that, it is no process any more.
AWAIT = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
os.symlink(str(os.getpid()), f"rank-{rank}")
def wait_for_the_end_of(other):
    while not os.path.islink(f"rank-{other}") or os.path.exists("/proc/" + os.readlink(f"rank-{other}")):
        time.sleep(0.02)
"""

# What termination messages say of rounds where nothing was started again.
NO_RESTARTS: dict[str, Any] = {
    "number": 1,
    "user": 0,
    "infrastructure": 0,
    "uncounted": 0,
    "repeated": {"key": None, "count": 0},
    "last": None,
}


def failure_policy(**fields: Any) -> dict[str, Any]:
    """What a failure does: every one starts another round, as far as nothing in these fields says otherwise."""
    return {
        "restartInPlace": True,
        "warmInterpreters": "Off",
        "replacementSeconds": 0,
        "restarts": {"user": 3, "infrastructure": 20},
        "repeated": {"key": None, "count": 0},
        "backoff": {"baseSeconds": 0, "maxSeconds": 300, "healthySeconds": 600},
        "rules": [rule(signals=[7, 9, 11], budget="infrastructure"), rule()],
        **fields,
    }


def rule(**fields: Any) -> dict[str, Any]:
    """A rule of a failure policy, which matches everything but for these fields."""
    conditions: dict[str, Any] = dict.fromkeys(("reasons", "exitCodes", "signals", "pattern"))
    return {**conditions, "action": "Restart", "unlessSaved": False, "budget": "user", "inPlace": True, **fields}


def hang(**fields: Any) -> dict[str, Any]:
    """After how long ranks hang: as a job has it that says nothing of it, but for these fields."""
    return {"restart": False, "firstStepSeconds": None, "progressSeconds": None, "checkpointSeconds": None, **fields}


def document(**fields: Any) -> dict[str, Any]:
    """A launch document, with these fields."""
    return {
        "protocol": 3,
        "job": "pretrain",
        "uid": "job-uid",
        "attempt": 1,
        "round": 1,
        "nodes": 1,
        "slotsPerNode": 1,
        "launcher": "Ranks",
        "program": {"kind": "script", "value": ["train.py"]},
        "args": [],
        "python": "python3",
        "configPath": None,
        "integration": "None",
        "files": False,
        "deepspeedVersion": None,
        "environment": {},
        "libraryPath": [],
        "ports": {"agent": 20000, "preflight": 20001, "masters": [20002]},
        "requiredFabric": None,
        "preflightBandwidth": None,
        "measure": False,
        "startupDeadlineSeconds": 120,
        "successPolicy": "AllPods",
        "terminationGraceSeconds": 30,
        "fenceSeconds": 120,
        "failurePolicy": failure_policy(restartInPlace=False),
        "checkpoint": {"path": None, "declared": False, "repairLatest": True, "since": 0, "conversionSeconds": 0},
        "hang": hang(),
        "reachedStep": 0,
        **fields,
    }


@dataclass
class Ended:
    code: int
    message: bytes
    output: str
    seconds: float

    @property
    def cause(self) -> dict[str, Any]:
        return json.loads(self.message.split(b"\n")[0])

    @property
    def log_tail(self) -> str:
        return self.message.partition(b"\n")[2].decode()

    @property
    def environments(self) -> list[dict[str, str]]:
        return [json.loads(line[line.index("{") :]) for line in self.output.splitlines() if '"PATH"' in line]


class Running:
    def __init__(self, gang: "Gang", index: int, process: subprocess.Popen[bytes], message: Path, output: Path) -> None:
        self.gang, self.index, self.process = gang, index, process
        self._message, self._output = message, output
        self.host = gang.hosts[index]

    def get(self, path: str, token: str = TOKEN) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(self.host, self.gang.port, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def ask(self, path: str) -> int:
        """The status of a GET; 0 while nobody listens."""
        try:
            return self.get(path)[0]
        except OSError:
            return 0

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: self.ask("/readyz") == 200)

    def wait_for_output(self, text: str) -> None:
        self.wait_for(lambda: text in self.output)

    def wait_for(self, condition: Any, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"not within {seconds} s; output so far: {self.output}"
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def message(self) -> bytes:
        return self._message.read_bytes() if self._message.exists() else b""

    def end(self, seconds: float = 60) -> Ended:
        begun = time.monotonic()
        code = self.process.wait(seconds)
        return Ended(code, self.message, self.output, time.monotonic() - begun)


@dataclass
class Gang:
    directory: Path
    nodes: int = 1
    slots: int = 1
    script: str | None = "print('trained', flush=True)"
    launch: dict[str, Any] = field(default_factory=dict[str, Any])
    config: dict[str, Any] | None = field(default_factory=lambda: CONFIG)
    attempt: int = 1
    token: str = TOKEN
    python: str = sys.executable
    agent: Path = AGENT
    options: tuple[str, ...] = ("-S", "-u")
    hosts: list[str] = field(default_factory=list[str])
    port: int = 0

    def __post_init__(self) -> None:
        net = f"127.{random.randint(1, 254)}.{random.randint(0, 255)}"
        self.hosts = self.hosts or [f"{net}.{index + 2}" for index in range(self.nodes)]
        self.port = self.port or random.randint(20000, 29999)
        self.running: list[Running] = []
        self.code = self.directory / "code"
        self.code.mkdir(exist_ok=True)
        if self.script is not None:
            (self.code / "train.py").write_text(self.script)

    def write(self) -> Path:
        etc = self.directory / "etc"
        etc.mkdir(exist_ok=True)
        put(etc / "hostfile", "".join(f"{host} slots={self.slots}\n" for host in self.hosts))
        put(etc / "token", self.token)
        if self.config is not None:
            put(etc / "ds_config.json", json.dumps(self.config))
        own = {"attempt": self.attempt, "nodes": self.nodes, "slotsPerNode": self.slots, "python": self.python}
        config = str(etc / "ds_config.json") if self.config is not None else None
        ports = {"agent": self.port, "preflight": 24444, "masters": [29500, 29501]}
        launch = document(**{**own, "configPath": config, "ports": ports, **self.launch})
        put(etc / "launch.json", json.dumps(launch))
        return etc

    def start(self, index: int = 0, *, wrapper: tuple[str, ...] = (), **environment: str) -> Running:
        etc = self.write()
        home = self.directory / f"pod-{index}-{len(self.running)}"
        home.mkdir()
        (home / "workspace").mkdir()
        message, output = home / "termination-log", home / "output"
        env = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(home),
            "DEEPSPEED_OPERATOR_DIR": str(etc),
            "DEEPSPEED_OPERATOR_FILES": str(self.directory / "files"),
            "DEEPSPEED_OPERATOR_WORKSPACE": str(home / "workspace"),
            "DEEPSPEED_OPERATOR_TERMINATION_LOG": str(message),
            "DEEPSPEED_OPERATOR_INDEX": str(index),
            "DEEPSPEED_OPERATOR_POD": f"pretrain-{self.attempt}-{index}",
            "DEEPSPEED_OPERATOR_POD_UID": f"uid-{self.attempt}-{index}",
            "DEEPSPEED_OPERATOR_NODE": f"node{index}",
            **environment,
        }
        command = [*wrapper, self.python, *self.options, str(self.agent)]
        with output.open("wb") as out:
            process = subprocess.Popen(command, env=env, cwd=self.code, stdout=out, stderr=out, start_new_session=True)
        running = Running(self, index, process, message, output)
        self.running.append(running)
        return running

    def start_all(self, **environment: str) -> list[Running]:
        return [self.start(index, wrapper=(), **environment) for index in range(self.nodes)]

    def run(self, **environment: str) -> list[Ended]:
        return [running.end() for running in self.start_all(**environment)]

    def close(self) -> None:
        for running in self.running:
            if running.process.poll() is None:
                for number in (signal.SIGCONT, signal.SIGTERM):
                    running.signal(number)
        for running in self.running:
            try:
                running.process.wait(6)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                # Ranks of an agent that was killed: there is no container that would end with it.
                if (process / "cwd").readlink().is_relative_to(self.directory):
                    os.kill(int(process.name), signal.SIGKILL)


def put(path: Path, text: str) -> None:
    """Write a file, but not while agents that have begun may be reading the same from it."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def altered(directory: Path, **constants: float) -> Path:
    """An agent whose constants of these names have these values: it waits long enough for a busy machine."""
    copy = shutil.copytree(AGENT, directory / "agent")
    for name, value in constants.items():
        found = 0
        for path in copy.glob("*.py"):
            text, count = re.subn(rf"(?m)^{name} = [\d.]+", f"{name} = {value}", path.read_text())
            path.write_text(text)
            found += count
        assert found == 1, name
    return copy


def load(module: str) -> ModuleType:
    """A module of the agent, whose siblings import each other by plain name."""
    sys.path.insert(0, str(AGENT))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(str(AGENT))


def launch_of(nodes: int, slots: int = 1, **fields: Any) -> Any:
    """The agent's own view of a launch document, on rank 0, for what is tested without a process."""
    hostfile = "".join(f"pretrain-1-{index}.pretrain slots={slots}\n" for index in range(nodes))
    raw = document(nodes=nodes, slotsPerNode=slots, **fields)
    return load("dso_launch").LaunchDocument(raw, hostfile, {"DEEPSPEED_OPERATOR_INDEX": "0"})


def interpreters() -> list[str]:
    """One path for each Python ≥ 3.8 that this machine has."""
    found: dict[int, str] = {}
    for minor in range(8, 16):
        candidates = [str(path) for path in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}")]
        on_path = shutil.which(f"python3.{minor}")
        for path in [*candidates, *([on_path] if on_path and "/shims/" not in on_path else [])]:
            found.setdefault(minor, path)
    return list(found.values())
