"""What to start in this pod: one process for each rank or one launcher of ranks, its command and its environment."""

from __future__ import annotations

import os
import re
from typing import Mapping

from dso_descendants import MARK
from dso_launch import HOSTFILE, LaunchDocument, expand

# DeepSpeed's own command line, but for one thing: it exits 0 when the launcher below it was killed by a signal.
DEEPSPEED_CLI = """\
import subprocess, sys
from deepspeed.launcher.runner import main
wait = subprocess.Popen.wait
def checked(self, timeout=None):
    code = wait(self, timeout)
    if code is not None and code < 0 and "deepspeed.launcher.launch" in self.args:
        sys.exit(f"ChildProcessError: deepspeed.launcher.launch was killed by signal {-code}" if code != -15 else 143)
    return code
subprocess.Popen.wait = checked
sys.exit(main())
"""


RESUME_FROM = "RESUME_FROM"
_RESUME_FROM = f"$({RESUME_FROM})"
_PYTORCHJOBS = re.compile(r"\$[({]?(WORLD_SIZE|RANK)\b")


class ProcessSpec:
    """One process to start: a rank, or a launcher of ranks (rank None if it starts several)."""

    def __init__(self, launch: LaunchDocument, number: int, local: int, extra: Mapping[str, str]) -> None:
        ranks = launch.launcher == "Ranks"
        self.rank = launch.index * launch.slots + local if ranks or launch.slots == 1 else None
        self.prefix = f"[rank {self.rank}] " if ranks and self.rank else ""
        self.ours = {**environment(launch, number, local), **extra}
        self.environment = {**self.ours, **os.environ}
        self.launch = launch
        self.resume_from("")

    def resume_from(self, path: str) -> None:
        """Let its arguments name the checkpoint that it goes on from; empty: there is none."""
        if asks_for_checkpoint(self.launch):
            self.environment[RESUME_FROM] = os.environ.get(RESUME_FROM, path)
        words = command(self.launch, self.environment)
        if not self.environment.get(RESUME_FROM):
            words = without_checkpoint(words)
        self.argv = [expand(word, self.environment) for word in words]


def asks_for_checkpoint(launch: LaunchDocument) -> bool:
    return any(_RESUME_FROM in word for word in [*launch.program, *launch.args])


def without_checkpoint(words: list[str]) -> list[str]:
    """Leave out what would name no checkpoint: programs take an empty text for the name of one."""
    kept: list[str] = []
    for word in words:
        if word == _RESUME_FROM:
            if kept and kept[-1].startswith("-") and "=" not in kept[-1]:
                kept.pop()  # the option whose value it is
        elif not word.endswith("=" + _RESUME_FROM):
            kept.append(word)
    return kept


def specs(launch: LaunchDocument, number: int, extra: Mapping[str, str]) -> list[ProcessSpec]:
    """The pod's processes in the round with this number. What the container has set wins over `extra`, too."""
    return [
        ProcessSpec(launch, number, local, extra) for local in range(launch.slots if launch.launcher == "Ranks" else 1)
    ]


def command(launch: LaunchDocument, env: Mapping[str, str]) -> list[str]:
    python = [launch.python, "-u"]
    if launch.launcher == "DeepSpeed":
        world = ["--num_nodes", str(launch.nodes), "--num_gpus", str(launch.slots), "--node_rank", str(launch.index)]
        master = ["--master_addr", env["MASTER_ADDR"], "--master_port", env["MASTER_PORT"]]
        kind = {"script": [], "module": ["--module"], "command": ["--no_python", "--no_local_rank"]}[launch.kind]
        cli = [*python, "-c", DEEPSPEED_CLI, "--no_ssh", "--hostfile", HOSTFILE, *world, *master, *kind]
        return [*cli, *launch.program, *launch.args]
    if launch.launcher == "Torchrun":
        world = ["--nnodes", str(launch.nodes), "--node_rank", str(launch.index), "--nproc_per_node", str(launch.slots)]
        master = ["--master_addr", env["MASTER_ADDR"], "--master_port", env["MASTER_PORT"]]
        torchrun = [*python, "-m", "torch.distributed.run", *world, *master, *["--module"] * (launch.kind == "module")]
        return [*torchrun, *launch.program, *launch.args]
    start = {"script": python, "module": [*python, "-m"], "command": []}[launch.kind]
    return [*start, *launch.program, *launch.args]


def environment(launch: LaunchDocument, number: int, local: int) -> dict[str, str]:
    """What we set for a child; a variable that the container already has wins over these."""
    node, nodes, slots = str(launch.index), str(launch.nodes), str(launch.slots)
    master = {"MASTER_ADDR": launch.hosts[0], "MASTER_PORT": str(launch.master_port(number))}
    env = {
        **master,
        MARK: str(number),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": str(max(1, cpus() // launch.slots)),
        **integration(launch),
    }
    if launch.launcher == "None":
        world = {"NNODES": nodes, "NODE_RANK": node, "NPROC_PER_NODE": slots, **master}
        env.update(world, **{"PET_" + name: value for name, value in world.items()})
        if any(_PYTORCHJOBS.search(word) for word in [*launch.program, *launch.args]):
            # A PyTorchJob's names of the pods' number and of this one. Some launchers read them with another meaning.
            env.update(WORLD_SIZE=nodes, RANK=node)
        return env
    env.update(GROUP_RANK=node, NODE_RANK=node, LOCAL_WORLD_SIZE=slots)
    if launch.launcher == "Ranks":
        env.update(
            RANK=str(launch.index * launch.slots + local),
            LOCAL_RANK=str(local),
            WORLD_SIZE=str(launch.nodes * launch.slots),
            LOCAL_SIZE=slots,
            CROSS_RANK=node,
            CROSS_SIZE=nodes,
            TORCHELASTIC_RUN_ID=f"{launch.job}-{launch.attempt}",
            TORCHELASTIC_RESTART_COUNT=str(launch.attempt - 1 + number - launch.round),
            TORCHELASTIC_ERROR_FILE=error_file(launch, number, local),
        )
    return env


def integration(launch: LaunchDocument) -> dict[str, str]:
    if not launch.config:
        return {}
    # Of ACCELERATE_* only these two: a precision or ZeRO setting beside the file is a conflict to Accelerate.
    accelerate = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": launch.config}
    lightning = {"PL_DEEPSPEED_CONFIG_PATH": launch.config}
    extra = {"Accelerate": accelerate, "Lightning": lightning}.get(launch.integration, {})
    return {"DEEPSPEED_CONFIG": launch.config, **extra}


def error_file(launch: LaunchDocument, number: int, local: int) -> str:
    directory = os.environ.get("TMPDIR", "/tmp")
    return f"{directory}/deepspeed-operator-{launch.uid}-{launch.attempt}-{number}-{launch.index}-{local}.json"


def cpus() -> int:
    available = len(os.sched_getaffinity(0))
    quota, period = [*first_words("/sys/fs/cgroup/cpu.max"), "100000"][:2]
    if not quota:
        quota = first_words("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")[0]
        period = first_words("/sys/fs/cgroup/cpu/cpu.cfs_period_us")[0] or "100000"
    return min(available, int(quota) // int(period)) if quota.isdigit() else available


def first_words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split() or [""]
    except OSError:
        return [""]  # another cgroup version, or none
