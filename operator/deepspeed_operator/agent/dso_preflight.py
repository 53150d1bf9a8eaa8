"""What can be known before the ranks start: errors end the run with a cause, the rest are warnings."""

from __future__ import annotations

import glob
import os
import resource
import subprocess
from typing import Iterator

import dso_network
from dso_launch import DIRECTORY, DS_CONFIG, FILES, WORKSPACE, LaunchDocument, RunFailedError
from dso_ranks import ProcessSpec

GIB = 1 << 30
SHOWN = 10  # files of a directory

# Read from the files that importlib.metadata reads, but without its slow import. Prints the version, or "missing".
FIND_DEEPSPEED = """\
import importlib.util, os, re, sys
def versions():
    for path in sys.path:
        for name in os.listdir(path or ".") if os.path.isdir(path or ".") else ():
            yield re.match(r"deepspeed-([^-]+?)(-py[\\d.]+)?\\.(dist|egg)-info$", name)
match = next(filter(None, versions()), None)
print(match[1] if match else "" if importlib.util.find_spec("deepspeed") else "missing")
"""


def check(launch: LaunchDocument) -> Iterator[str]:
    """Yields warnings; raises RunFailedError."""
    if (len(launch.hosts), set(launch.slots_of)) != (launch.nodes, {launch.slots}):
        text = f"the hostfile has {len(launch.hosts)} hosts with slots {sorted(set(launch.slots_of))}"
        raise RunFailedError(launch.cause("WorldMismatch", f"{text}; planned are {launch.nodes} with {launch.slots}"))
    yield from place_files(launch)
    check_program(launch)
    yield from check_machine(launch)


def place_files(launch: LaunchDocument) -> Iterator[str]:
    """The user's files into a writable directory, which then is the working directory; ds_config.json beside them."""
    if launch.files:
        # A ConfigMap volume keeps its data in ..data and shows each key as a link into it.
        for name in sorted(os.listdir(FILES)):
            if not name.startswith(".."):
                copy(os.path.join(FILES, name), os.path.join(WORKSPACE, name))
        os.chdir(WORKSPACE)
    ours = read(DS_CONFIG)
    if ours is None:
        return
    there = read("ds_config.json")
    if there not in (None, ours) and os.path.abspath("ds_config.json") != launch.config:
        kept = "replaced by the job's" if launch.files else "a script that opens it by that name reads the old one"
        yield f"{os.path.abspath('ds_config.json')} differs from the job's configuration: {kept}"
    if launch.files and there != ours:
        copy(DS_CONFIG, "ds_config.json")


def copy(source: str, target: str) -> None:
    if os.path.realpath(source) == os.path.dirname(os.path.realpath(DIRECTORY)):
        return  # `dsjob run --files . --dir ./out`: the workspaces are in there, and would be copied into themselves
    data = read(source)
    if data is None:
        for name in os.listdir(source) if os.path.isdir(source) else ():
            os.makedirs(target, exist_ok=True)
            copy(os.path.join(source, name), os.path.join(target, name))
        return
    with open(target, "wb") as file:
        file.write(data)
    os.chmod(target, os.stat(source).st_mode & 0o777 | 0o200)


def read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def which(name: str) -> str | None:
    paths = [name] if "/" in name else [os.path.join(d, name) for d in os.environ.get("PATH", "").split(":")]
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def likely(name: str, names: list[str]) -> list[str]:
    """Sort file names: first those that are near to this one, then programs, then the others."""
    import difflib  # only where there is something to say

    near = difflib.get_close_matches(name, names)
    order = {each: place for place, each in enumerate(near)}
    return sorted(names, key=lambda each: (order.get(each, len(near)), not each.endswith(".py"), each))


def check_program(launch: LaunchDocument) -> None:
    needs_python = launch.kind != "command" or launch.launcher == "DeepSpeed"
    if needs_python and not which(launch.python):
        path = os.environ.get("PATH", "")
        raise RunFailedError(
            launch.cause("PythonNotFound", f"no interpreter {launch.python!r} in the image (PATH {path})")
        )
    program = launch.program[0]
    if launch.kind == "script" and not os.path.isfile(program):
        directory = os.path.dirname(os.path.abspath(program))
        here = likely(os.path.basename(program), os.listdir(directory)) if os.path.isdir(directory) else None
        listing = "(no such directory)" if here is None else ", ".join(here[:SHOWN]) or "(nothing)"
        if here is not None and len(here) > SHOWN:
            listing += f" and {len(here) - SHOWN} more"
        working = " (the working directory)" if directory == os.getcwd() else ""
        text = f"script {program!r} not found: {directory}{working} has: {listing}"
        raise RunFailedError(launch.cause("ScriptNotFound", text))
    if launch.kind == "command" and not which(program):
        raise RunFailedError(launch.cause("ScriptNotFound", f"command {program!r} not found, or not executable"))


def check_world(launch: LaunchDocument, specs: list[ProcessSpec]) -> Iterator[str]:
    """A rank trusts its variables: one that was already set, to another number, would train another world."""
    for spec in specs:
        for name, value in spec.ours.items():
            present = spec.environment[name]
            if present == value or name.startswith(("OMP_", "PYTHON")):
                continue
            text = f'{name} is already set to "{present}" in the container'
            if launch.launcher != "None" and (name.endswith(("RANK", "SIZE"))):
                raise RunFailedError(
                    launch.cause("WorldMismatch", f'{text}; this rank\'s is "{value}"', rank=spec.rank)
                )
            if spec is specs[0]:
                yield f'{text} and kept; the job\'s would be "{value}"'


def check_machine(launch: LaunchDocument) -> Iterator[str]:
    devices = [path for path in glob.glob("/dev/nvidia*") if path[len("/dev/nvidia") :].isdigit()]
    chosen = [entry for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    given = [entry for entry in os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    if chosen and chosen[0] not in ("-1", "NoDevFiles"):
        if len(chosen) < launch.slots:
            text = f"CUDA_VISIBLE_DEVICES has {len(chosen)} devices for {launch.slots} ranks in this pod"
            if launch.launcher != "None":
                raise RunFailedError(launch.cause("PodCheckFailed", text))
            yield text
    elif devices:
        listed = len(given) if given and given[0] not in ("all", "none", "void") else 0
        if max(len(devices), listed) < launch.slots:
            yield f"{max(len(devices), listed)} NVIDIA devices for {launch.slots} ranks in this pod: lower slotsPerNode"
    try:
        shm = os.statvfs("/dev/shm")
    except OSError:
        yield "no /dev/shm in the container: DataLoader workers and NCCL need it"
    else:
        size, need = shm.f_blocks * shm.f_frsize, GIB if devices else launch.slots * 70_000_000
        if size < need:
            yield f"/dev/shm has {size >> 20} MiB, {need >> 20} are advised: set spec.sharedMemory"
    if os.path.isdir("/dev/infiniband"):
        locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        if locked != resource.RLIM_INFINITY:
            yield f"RDMA devices, but only {locked >> 10} KiB of memory may be locked (ulimit -l): docs/network.md"
    yield from dso_network.check(os.environ, launch.nodes)


class Probe:
    """Finds the ranks' DeepSpeed with their own interpreter, beside the wait for peers."""

    def __init__(self, launch: LaunchDocument) -> None:
        self.launch = launch
        self.version: str | None = None
        self.done = self.missing = False
        command = [launch.python, "-c", FIND_DEEPSPEED]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)

    def reaped(self, code: int) -> Iterator[str]:
        """The probe has ended: yields warnings."""
        assert self.process.stdout
        self.done, self.process.returncode = True, code
        # What a sitecustomize of the user's prints comes before it; what it starts may keep the pipe open.
        os.set_blocking(self.process.stdout.fileno(), False)
        lines = (self.process.stdout.read() or b"").decode("utf-8", "replace").splitlines()
        answer = (lines or [""])[-1].strip()
        self.process.stdout.close()
        declared = self.launch.deepspeed
        self.missing = code == 0 and answer == "missing"
        if self.missing:
            yield f"{self.launch.python} has no deepspeed: install it, or set spec.training.python"
        elif code == 0 and answer:
            self.version = answer
            if declared and declared != answer:
                yield f"DeepSpeed {answer} is installed; spec.deepspeedVersion says {declared}"
