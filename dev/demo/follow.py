"""Shows a job to its end: each change of its state, and what its rank 0 says meanwhile."""

import subprocess
import threading
import time
from typing import Any

from dev.demo.environment import NAMESPACE, Environment

_ENDED = {"Complete", "Failed", "Invalid"}
# Lines of examples/train.py; DeepSpeed's own log is left to `kubectl logs`.
_PROGRAM_LINE = "rank "


def follow(environment: Environment, job: str, timeout: float) -> dict[str, Any]:
    """Return the job once it has ended; SystemExit if that takes too long."""
    begin, shown, logs = time.monotonic(), None, None
    while time.monotonic() - begin < timeout:
        found = environment.get("deepspeedjob", job)
        status = found.get("status", {})
        now = status.get("state"), condition(found, "Ready").get("message")
        if now != shown and now[0]:
            shown = now
            print(f"{time.monotonic() - begin:6.1f} s  {now[0]:10} {now[1]}", flush=True)
        if status.get("state") in _ENDED:
            if logs:
                logs.join(timeout=10)
            return found
        if logs is None and status.get("state") == "Running":
            logs = threading.Thread(
                target=_show_log, args=(environment, f"{job}-{status['attempt']['number']}-0"), daemon=True
            )
            logs.start()
        time.sleep(0.3)
    raise SystemExit(f"the job {job} has not ended after {timeout:.0f} s; it is {shown}")


def condition(job: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a condition of a job, empty if it is not there."""
    conditions: list[dict[str, Any]] = job.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), dict[str, Any]())


def program_lines(environment: Environment, pod: str) -> list[str]:
    """Return what the program of one pod printed, without DeepSpeed's own log."""
    log = environment.run(environment.kubectl, "logs", pod, "-n", NAMESPACE)
    return [line for line in (_program_line(line) for line in log.splitlines()) if line]


def _program_line(line: str) -> str | None:
    """Only rank 0's lines come unchanged; the others carry their rank in brackets."""
    text = line.split("] ", 1)[1] if line.startswith("[rank ") and "] " in line else line
    return text if text.startswith(_PROGRAM_LINE) else None


def _show_log(environment: Environment, pod: str) -> None:
    command = [environment.kubectl, "logs", "--follow", pod, "-n", NAMESPACE]
    with subprocess.Popen(command, env=environment.variables, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            text = _program_line(line.rstrip())
            if text:
                print(f"           | {text}", flush=True)
