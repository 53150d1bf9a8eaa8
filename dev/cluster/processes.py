"""Long-lived processes: in a cgroup of ours, recorded with their start time, found again by the driver's next run."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dev.cluster import cgroups

# All are written in Go, and a fifth of their processor time went into collecting garbage. The limit is far above what
# the API server holds after tests with huge jobs, some 2 GiB: at a limit, collecting is all that a process does.
_GO = {"GOGC": "300", "GOMEMLIMIT": "6GiB"}


class CommandError(RuntimeError):
    """A command that ended badly, with what it said."""


@dataclass(frozen=True)
class Process:
    name: str
    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`, which tells it from a later process of the same number.

    None once it has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def start(
    name: str, command: Sequence[str], *, records: Path, log: Path, cgroup: str, env: Mapping[str, str] | None = None
) -> Process:
    """The process joins its cgroup before it executes: a driver killed right now leaves nothing that `down` misses."""
    records.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    join = f"echo $$ > {shlex.quote(str(cgroups.membership(cgroup)))} && exec {shlex.join(command)}"
    with log.open("ab") as output:
        child = subprocess.Popen(
            ["sh", "-c", join],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            env={**os.environ, **_GO, **(env or {})},
        )
    started = start_time(child.pid)
    if started is None:
        raise CommandError(f"{name} ended at once: {tail(log)}")
    process = Process(name, child.pid, started)
    (records / f"{name}.json").write_text(json.dumps(asdict(process)))
    return process


def recorded(records: Path, name: str) -> Process | None:
    try:
        return Process(**json.loads((records / f"{name}.json").read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def is_alive(records: Path, name: str) -> bool:
    process = recorded(records, name)
    return process is not None and process.alive


def end(records: Path, name: str, grace: float = 3) -> None:
    """SIGTERM, then SIGKILL; nothing if it is not there."""
    process = recorded(records, name)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process is None or not process.alive:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        deadline = time.monotonic() + grace
        while process.alive and time.monotonic() < deadline:
            time.sleep(0.05)
    (records / f"{name}.json").unlink(missing_ok=True)


def run(
    command: Sequence[str], *, stdin: str | None = None, timeout: float = 600, env: Mapping[str, str] | None = None
) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )
    if done.returncode:
        raise CommandError(
            f"{shlex.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-3000:]}"
        )
    return done.stdout


def wait_for(
    what: str, condition: Callable[[], bool], *, seconds: float, log: Path | None = None, every: float = 0.1
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:.0f} s still waiting for {what}{f': {tail(log)}' if log else ''}")
        time.sleep(every)


def tail(log: Path, size: int = 1500) -> str:
    try:
        return log.read_text(errors="replace")[-size:]
    except FileNotFoundError:
        return ""
