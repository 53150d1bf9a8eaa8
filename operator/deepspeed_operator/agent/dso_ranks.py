"""The processes of this pod: their commands, their environment, their end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import Any, Iterator, Mapping

from dso_cause import launcher_code, signature, unwritable
from dso_output import Output, Stream
from dso_plan import HOSTFILE, Plan, expand
from dso_words import legible, rank_of

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


_PYTORCHJOBS = re.compile(r"\$[({]?(WORLD_SIZE|RANK)\b")


class Spec:
    """What to start as one child: a rank, or a launcher of ranks (rank None if it starts several)."""

    def __init__(self, plan: Plan, local: int, extra: Mapping[str, str]) -> None:
        ranks = plan.launcher == "Ranks"
        self.rank = plan.index * plan.slots + local if ranks or plan.slots == 1 else None
        self.prefix = f"[rank {self.rank}] " if ranks and self.rank else ""
        self.ours = {**environment(plan, local), **extra}
        self.environment = {**self.ours, **os.environ}
        self.argv = [expand(word, self.environment) for word in command(plan, self.environment)]


def specs(plan: Plan, extra: Mapping[str, str]) -> list[Spec]:
    return [Spec(plan, local, extra) for local in range(plan.slots if plan.launcher == "Ranks" else 1)]


def command(plan: Plan, env: Mapping[str, str]) -> list[str]:
    python = [plan.python, "-u"]
    if plan.launcher == "DeepSpeed":
        world = ["--num_nodes", str(plan.nodes), "--num_gpus", str(plan.slots), "--node_rank", str(plan.index)]
        master = ["--master_addr", env["MASTER_ADDR"], "--master_port", env["MASTER_PORT"]]
        kind = {"script": [], "module": ["--module"], "command": ["--no_python", "--no_local_rank"]}[plan.kind]
        cli = [*python, "-c", DEEPSPEED_CLI, "--no_ssh", "--hostfile", HOSTFILE, *world, *master, *kind]
        return [*cli, *plan.program, *plan.args]
    start = {"script": python, "module": [*python, "-m"], "command": []}[plan.kind]
    return [*start, *plan.program, *plan.args]


def environment(plan: Plan, local: int) -> dict[str, str]:
    """What we set for a child; a variable that the container already has wins over these."""
    node, nodes, slots = str(plan.index), str(plan.nodes), str(plan.slots)
    master = {"MASTER_ADDR": plan.hosts[0], "MASTER_PORT": str(plan.master_port)}
    env = {
        **master,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": str(max(1, cpus() // plan.slots)),
        **integration(plan),
    }
    if plan.launcher == "None":
        world = {"NNODES": nodes, "NODE_RANK": node, "NPROC_PER_NODE": slots, **master}
        env.update(world, **{"PET_" + name: value for name, value in world.items()})
        if any(_PYTORCHJOBS.search(word) for word in [*plan.program, *plan.args]):
            # A PyTorchJob's names of the pods' number and of this one. Some launchers read them with another meaning.
            env.update(WORLD_SIZE=nodes, RANK=node)
        return env
    env.update(GROUP_RANK=node, NODE_RANK=node, LOCAL_WORLD_SIZE=slots)
    if plan.launcher == "Ranks":
        env.update(
            RANK=str(plan.index * plan.slots + local),
            LOCAL_RANK=str(local),
            WORLD_SIZE=str(plan.nodes * plan.slots),
            LOCAL_SIZE=slots,
            CROSS_RANK=node,
            CROSS_SIZE=nodes,
            TORCHELASTIC_RUN_ID=f"{plan.job}-{plan.attempt}",
            TORCHELASTIC_RESTART_COUNT=str(plan.attempt - 1),
            TORCHELASTIC_ERROR_FILE=error_file(plan, local),
        )
    return env


def integration(plan: Plan) -> dict[str, str]:
    if not plan.config:
        return {}
    # Of ACCELERATE_* only these two: a precision or ZeRO setting beside the file is a conflict to Accelerate.
    accelerate = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": plan.config}
    lightning = {"PL_DEEPSPEED_CONFIG_PATH": plan.config}
    extra = {"Accelerate": accelerate, "Lightning": lightning}.get(plan.integration, {})
    return {"DEEPSPEED_CONFIG": plan.config, **extra}


def error_file(plan: Plan, local: int) -> str:
    directory = os.environ.get("TMPDIR", "/tmp")
    return f"{directory}/deepspeed-operator-{plan.uid}-{plan.attempt}-{plan.index}-{local}.json"


def cpus() -> int:
    available = len(os.sched_getaffinity(0))
    quota, period = [*first_words("/sys/fs/cgroup/cpu.max"), "100000"][:2]
    if not quota:
        quota = first_words("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")[0]
        period = first_words("/sys/fs/cgroup/cpu/cpu.cfs_period_us")[0] or "100000"
    return min(available, int(quota) // int(period)) if quota.isdigit() else available


def out_of_memory_kills() -> int:
    """How often the kernel has killed in this container's cgroup (v2, else v1)."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        words = first_words(path)
        if "oom_kill" in words:
            return int(words[words.index("oom_kill") + 1])
    return 0


def first_words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split() or [""]
    except OSError:
        return [""]  # another cgroup version, or none


class Child:
    __slots__ = ("code", "process", "spec", "stream")

    def __init__(self, spec: Spec, process: subprocess.Popen[bytes], stream: Stream) -> None:
        self.spec, self.process, self.stream = spec, process, stream
        self.code: int | None = None


class Ranks:
    def __init__(self, plan: Plan, output: Output) -> None:
        self.plan = plan
        self.output = output
        self.children: list[Child] = []
        self.oom_kills = out_of_memory_kills()

    def start(self, specs: list[Spec]) -> None:
        for spec in specs:
            process = subprocess.Popen(
                spec.argv,
                env=spec.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            assert process.stdout
            stream = self.output.add(os.dup(process.stdout.fileno()), spec.prefix)
            process.stdout.close()
            self.children.append(Child(spec, process, stream))
        self.output.start()

    def reaped(self, pid: int, code: int) -> Child | None:
        for child in self.children:
            if child.process.pid == pid and child.code is None:  # an orphan may get the number of a rank that has ended
                child.code = child.process.returncode = code
                return child
        return None

    def running(self) -> bool:
        return any(child.code is None for child in self.children)

    def groups(self) -> Iterator[int]:
        """Process groups that still have a member: a launcher may be gone before its ranks are."""
        for child in self.children:
            try:
                os.killpg(child.process.pid, 0)
            except OSError:
                continue
            yield child.process.pid

    def signal(self, number: int) -> None:
        for group in self.groups():
            with contextlib.suppress(ProcessLookupError):  # its last member ended meanwhile
                os.killpg(group, number)

    def end(self) -> None:
        """Nothing that a rank left behind outlives the agent; it may hold a pipe open."""
        self.signal(signal.SIGKILL)
        for child in self.children:
            self.output.drain(child.stream, finish=True)

    def failure(self, child: Child) -> dict[str, Any]:
        self.output.drain(child.stream)
        tail, rank = child.stream.tail, child.spec.rank
        code = launcher_code(child.code or 0, tail) if self.plan.launcher == "DeepSpeed" else child.code or 0
        oom = code == -signal.SIGKILL and out_of_memory_kills() > self.oom_kills
        text = signature(code, tail, child.spec.ours.get("TORCHELASTIC_ERROR_FILE"), oom)
        barred = unwritable(text)
        text = f"{barred}: {text}" if barred else text
        ended = {"signal": -code} if code < 0 else {"exitCode": code}
        return self.plan.cause("RankFailed", text, rank=rank_of(legible(tail)) if rank is None else rank, **ended)

    def states(self) -> list[dict[str, Any]]:
        return [{"rank": c.spec.rank, "pid": c.process.pid, "exitCode": c.code} for c in self.children]
