"""This machine: its devices, its free ports, and the directory where the agents find what a pod would mount."""

import re
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deepspeed_operator.api.names import TOKEN_FILE
from deepspeed_operator.api.status import World
from deepspeed_operator.job.accelerators import CPU
from deepspeed_operator.job.ports import Ports

DEVICES: Final = "CUDA_VISIBLE_DEVICES"
_NONE: Final = frozenset({"-1", "NoDevFiles"})
_FILE_NAME: Final = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]+")  # as the API server checks the keys of a ConfigMap


class TooFewDevicesError(Exception):
    """The nodes of the job cannot all have devices of their own."""


def nvidia_devices() -> int:
    """Return how many NVIDIA devices the machine shows."""
    return sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path("/dev").iterdir())


def accelerator(environ: Mapping[str, str], requested: str | None) -> str | None:
    """Return what the ranks will run on, in DeepSpeed's words; `requested`: what the job's template would give them."""
    return environ.get("DS_ACCELERATOR") or (CPU if requested == "cuda" and not devices(environ) else requested)


def devices(environ: Mapping[str, str]) -> list[str]:
    """Return the visible NVIDIA devices: the user's list, else all."""
    if DEVICES not in environ:
        return [str(number) for number in range(nvidia_devices())]
    listed = [entry.strip() for entry in environ[DEVICES].split(",") if entry.strip()]
    return [] if _NONE & set(listed[:1]) else listed


def divide_devices(world: World, visible: list[str]) -> list[str] | None:
    """Return each node's CUDA_VISIBLE_DEVICES; None where nothing needs to be divided."""
    if world.nodes == 1 or not visible:
        return None
    if len(visible) < world.size:
        raise TooFewDevicesError(
            f"{world.nodes} nodes with {world.slots_per_node} ranks each need {world.size} GPUs, and "
            f"{len(visible)} are visible. Choose --nodes and --slots, or set {DEVICES}= to train without."
        )
    slots = world.slots_per_node
    return [",".join(visible[node * slots : (node + 1) * slots]) for node in range(world.nodes)]


def are_free(ports: Ports) -> bool:
    """Say whether nobody listens on these ports on any address."""
    for port in ports.all:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an old connection's end does not count
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


class Directory:
    """What a pod would find mounted: the job's files for all nodes, and a workspace for each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.job = root / "etc"
        self.files = root / "files"

    def node(self, index: int) -> Path:
        """Return where a node keeps what is its own."""
        return self.root / f"node-{index}"

    def workspace(self, index: int) -> Path:
        """Return the working directory of a job with training.files."""
        return self.node(index) / "workspace"

    def message(self, index: int) -> Path:
        """Return where the agent says why it ended."""
        return self.node(index) / "termination-log"

    def write(self, nodes: int, job: Mapping[str, str], token: str, files: Mapping[str, str] | Path | None) -> None:
        """Write everything; what an earlier run left in the workspaces stays, as on a volume."""
        shutil.rmtree(self.job, ignore_errors=True)
        self.job.mkdir(parents=True)
        secret = self.job / TOKEN_FILE
        secret.touch(mode=0o600)  # others of this machine reach the agents' ports, too
        secret.write_text(token, encoding="utf-8")
        for name, text in job.items():
            (self.job / name).write_text(text, encoding="utf-8")
        if isinstance(files, Path):
            self.files = files
        elif files is not None:
            self.files.mkdir(exist_ok=True)
            for name, text in files.items():
                if not _FILE_NAME.fullmatch(name):
                    raise ValueError(f"{name!r} is no key of a ConfigMap")
                (self.files / name).write_text(text, encoding="utf-8")
        for index in range(nodes):
            self.workspace(index).mkdir(parents=True, exist_ok=True)
            self.message(index).unlink(missing_ok=True)


def remove_traces(uid: str) -> None:
    """Remove what torch wrote about exceptions of this run: the agents have read it."""
    for path in Path(tempfile.gettempdir()).glob(f"deepspeed-operator-{uid}-*.json"):
        path.unlink(missing_ok=True)
