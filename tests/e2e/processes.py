"""The processes of a container, seen from the machine that all nodes run on."""

import os
import signal
from pathlib import Path

from tests.e2e.kube import Json


def first_process(pod: Json, container: str) -> int:
    """The process ID, on the machine, of the process that is number 1 in the container."""
    states = {status["name"]: status for status in pod["status"]["containerStatuses"]}
    identity = states[container]["containerID"].rpartition("/")[2]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_first_of(entry, identity):
            return int(entry.name)
    raise AssertionError(f"no process of container {container} of {pod['metadata']['name']}")


def _is_first_of(process: Path, container_id: str) -> bool:
    try:
        if container_id not in (process / "cgroup").read_text():
            return False
        namespaced = next(line for line in (process / "status").read_text().splitlines() if line.startswith("NSpid:"))
    except (OSError, StopIteration):  # it ended while we looked
        return False
    return namespaced.split()[-1] == "1"


def kill(pod: Json, container: str, number: signal.Signals = signal.SIGKILL) -> int:
    """Signal the container's first process from the node: nobody in the container can catch or report SIGKILL."""
    process = first_process(pod, container)
    os.kill(process, number)
    return process
