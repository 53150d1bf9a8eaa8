"""The processes that the agent starts: their pipes, their groups, their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, Iterator

from dso_cause import finding_of, launcher_code, unwritable
from dso_launch import LaunchDocument
from dso_output import Output, Stream
from dso_ranks import ProcessSpec, first_words
from dso_stuck import state
from dso_words import legible, rank_of

if TYPE_CHECKING:
    from dso_warm import WarmInterpreters


def out_of_memory_kills() -> int:
    """How often the kernel has killed in this container's cgroup (v2, else v1)."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        words = first_words(path)
        if "oom_kill" in words:
            return int(words[words.index("oom_kill") + 1])
    return 0


def memory_used(cgroup: str = "/sys/fs/cgroup") -> str:
    """The most memory that this container held, beside its limit (v2, else v1); empty where the kernel does not say."""
    names = (("memory.peak", "memory.max"), ("memory/memory.max_usage_in_bytes", "memory/memory.limit_in_bytes"))
    for pair in names:
        used, limit = (first_words(f"{cgroup}/{name}")[0] for name in pair)
        if used.isdigit() and limit.isdigit():
            return f"it used {int(used) / 2**30:.1f} of its {int(limit) / 2**30:.1f} GiB"
    return ""


class Forked:
    """A rank that the pod's warm interpreter has forked: a child of this process, which Python did not start."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None


class Child:
    __slots__ = ("code", "ended", "process", "spec", "stopped", "stream")

    def __init__(self, spec: ProcessSpec, process: subprocess.Popen[bytes] | Forked, stream: Stream) -> None:
        self.spec, self.process, self.stream = spec, process, stream
        self.code: int | None = None
        self.ended: float | None = None  # when
        self.stopped = False  # it ran when it was told to end


class Processes:
    """Processes of one kind in this pod, the ranks or those of a preflight, each the leader of a group of its own."""

    def __init__(self, launch: LaunchDocument, output: Output) -> None:
        self.launch = launch
        self.output = output
        self.children: list[Child] = []
        self.oom_kills = out_of_memory_kills()

    def fork(self, specs: list[ProcessSpec], warm: WarmInterpreters) -> bool:
        """Start them from the warm interpreter; False where they have to be started cold."""
        pipes = [os.pipe() for _ in specs]
        pids = warm.fork(specs, [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        if pids is None:
            for read, _ in pipes:
                os.close(read)
            return False
        for spec, pid, (read, _) in zip(specs, pids, pipes):
            self.children.append(Child(spec, Forked(pid), self.output.add(read, spec.prefix)))
        self.output.start()
        return True

    def start(self, specs: list[ProcessSpec]) -> None:
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
                child.ended = time.monotonic()
                return child
        return None

    def running(self) -> bool:
        return any(child.code is None for child in self.children)

    def groups(self) -> Iterator[int]:
        """Process groups that still have a member: a launcher may be gone before its ranks are.

        What has left them for a session of its own is among the agent's descendants.
        """
        for child in self.children:
            try:
                os.killpg(child.process.pid, 0)
            except OSError:
                continue
            yield child.process.pid

    def stop(self) -> None:
        """Tell all that run to end."""
        for child in self.children:
            child.stopped = child.code is None and state(child.process.pid) not in ("", "Z")
        self.signal(signal.SIGTERM)

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
        code = launcher_code(child.code or 0, tail) if self.launch.launcher == "DeepSpeed" else child.code or 0
        out_of_memory = out_of_memory_kills() > self.oom_kills
        found = finding_of(code, tail, child.spec.ours.get("TORCHELASTIC_ERROR_FILE"), out_of_memory)
        used = memory_used() if found.reason == "HostOutOfMemory" else ""
        text = f"{found.text}: {used}" if used else found.text
        barred = unwritable(text)
        text = f"{barred}: {text}" if barred else text
        more: dict[str, Any] = {"signal": -code} if code < 0 else {"exitCode": code}
        if found.others:
            more["candidates"] = found.others
        named = rank_of(legible(tail), found.text) if rank is None else rank
        return self.launch.cause(found.reason, text, rank=named, **more)

    def states(self) -> list[dict[str, Any]]:
        return [{"rank": c.spec.rank, "pid": c.process.pid, "exitCode": c.code} for c in self.children]
