"""Warm interpreters: the ranks of a later round are forked from a process that has imported what they import.

Of the seconds from a rank's start to its first step most are imports. The process that saves them is dso_forkserver.py,
run by the ranks' own interpreter once their first steps show what they import. Whenever anything speaks against it the
ranks start as always, and the agent says why.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import pkgutil
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from typing import Any, Callable, Mapping, Sequence

from dso_ranks import ProcessSpec, first_words

FILES = ("dso_forkserver.py", "dso_forkchild.py", "dso_preload.py")
# Measured with torch, deepspeed and transformers: 0.85 GiB.
NEEDED_BYTES = 2 << 30
CHECK_SECONDS = 5.0
FORK_SECONDS = 30.0  # for all ranks of a pod; one takes 0.02, and on a machine that has no time for it much more
ROOM = "." * 4096
MOST_RANKS = 126  # a message carries 253 descriptors
WORDS = 4096


class ColdStartError(Exception):
    """Why the ranks cannot be forked."""


class WarmInterpreter:
    """The process, from its start to its end."""

    def __init__(self, spec: ProcessSpec, imports: Mapping[str, Any]) -> None:
        """Start it with a rank's interpreter and environment. Raises OSError."""
        self.directory = tempfile.mkdtemp(prefix="deepspeed-operator-warm-")
        self.ready = False
        self.heard = b""
        site = os.path.join(self.directory, "site")
        os.mkdir(site)
        files = {name: pkgutil.get_data(__name__, name) or b"" for name in FILES}
        files["preload.json"] = json.dumps({**imports, "argv": spec.argv}).encode()
        files["site/sitecustomize.py"] = b""
        for name, data in files.items():
            with open(os.path.join(self.directory, name), "wb") as file:
                file.write(data)
        users = spec.environment["PYTHONPATH"].rpartition(":")[0]
        environment = {**spec.environment, "PYTHONPATH": f"{users}:{site}" if users else site}
        self.connection, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [spec.argv[0], "-u", os.path.join(self.directory, FILES[0]), str(theirs.fileno()), ROOM],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            theirs.close()
        self.connection.setblocking(False)

    def answer(self) -> dict[str, Any] | None:
        """What it says once it has imported: whether it can fork ranks, and what it holds. None until then."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self.heard += self.connection.recv(WORDS)
        return json.loads(self.heard) if self.heard.endswith(b"\n") else None

    def fork(self, specs: Sequence[ProcessSpec], outputs: Sequence[int]) -> list[int]:
        """Return the process ids of the ranks, which are children of this process. Raises ColdStartError."""
        controls = [socket.socketpair() for _ in specs]
        try:
            request = {"cwd": os.getcwd(), "ranks": [{"argv": s.argv, "environment": s.environment} for s in specs]}
            descriptors = [fd for output, (_, theirs) in zip(outputs, controls) for fd in (output, theirs.fileno())]
            data = json.dumps(request).encode()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            until = time.monotonic() + FORK_SECONDS
            try:
                self.connection.settimeout(FORK_SECONDS)
                self.connection.sendmsg([struct.pack("!I", len(data))], rights)
                self.connection.sendall(data)
            except OSError as error:
                raise ColdStartError(f"the warm interpreter is gone: {error.strerror or error}") from error
            for _, theirs in controls:
                theirs.close()
            return self.let_go([ours for ours, _ in controls], until)
        finally:
            for ours, theirs in controls:
                # A rank that was not let go ends by itself.
                ours.close()
                theirs.close()

    @staticmethod
    def let_go(controls: Sequence[socket.socket], until: float) -> list[int]:
        words: list[str] = []
        for control in controls:
            control.settimeout(max(0.01, until - time.monotonic()))
            try:
                word = control.recv(WORDS).decode("utf-8", "replace")
            except OSError as error:
                raise ColdStartError(f"no rank was forked within {FORK_SECONDS:.0f} s") from error
            if not word.isdigit():
                raise ColdStartError(word[1:] or "the warm interpreter ended")
            words.append(word)
        for control in controls:
            control.sendall(b"g")
        return [int(word) for word in words]

    def end(self) -> None:
        self.connection.close()
        self.process.returncode = -signal.SIGKILL  # the agent takes the ends of all its children itself
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)


def room() -> int:
    """Bytes of memory that are free, or can be freed, in this container and on its node."""
    limits = [("/sys/fs/cgroup", "memory.max", "memory.current", ""),
              ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")]  # fmt: skip
    free: list[int] = [fields("/proc/meminfo").get("MemAvailable:", 0) << 10]
    for directory, limit, usage, prefix in limits:
        with contextlib.suppress(OSError, ValueError):  # another cgroup version, or no limit
            stat = fields(os.path.join(directory, "memory.stat"))
            cache = stat.get(prefix + "inactive_file", 0) + stat.get(prefix + "active_file", 0)
            bounds = [int(first_words(os.path.join(directory, name))[0]) for name in (limit, usage)]
            free.append(bounds[0] - bounds[1] + cache)
    return min(free)


def fields(path: str) -> dict[str, int]:
    """A file of a name and a number on each line."""
    with open(path, encoding="ascii") as file:
        return {line[0]: int(line[1]) for line in map(str.split, file) if len(line) > 1 and line[1].isdigit()}


class WarmInterpreters:
    """The pod's fork server: when there is one, and whether the next ranks come from it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.wanted = True  # until something speaks against it for good
        self.say = say
        self.server: WarmInterpreter | None = None
        self.why_cold = ""  # once there was a reason; it is said where the ranks then start
        self.checked = 0.0
        self.failures = 0

    @property
    def lacks_a_server(self) -> bool:
        return self.wanted and self.server is None

    def prepare(self, spec: ProcessSpec, imports: Mapping[str, Any]) -> None:
        """Begin to import these modules, for ranks like this one."""
        if not self.lacks_a_server or not spec.environment.get("PYTHONPATH"):
            return
        free = room()
        if free < NEEDED_BYTES:
            self.give_up(f"{free / (1 << 30):.1f} GiB of memory are free, of {NEEDED_BYTES >> 30} GiB")
            return
        try:
            self.server, self.why_cold = WarmInterpreter(spec, imports), ""
        except OSError as error:
            self.give_up(f"{error.strerror}: {error.filename}")

    def give_up(self, why: str) -> None:
        self.wanted = False
        self.why_cold = why
        self.end()

    def look(self) -> None:
        """Hear what the server says, and end it where memory gets short."""
        now = time.monotonic()
        if self.server is None or now < self.checked + (CHECK_SECONDS if self.server.ready else 0):
            return
        self.checked = now
        if not self.server.ready:
            answer = self.server.answer()
            if answer and answer["refusal"]:
                self.give_up(answer["refusal"])
                self.say(f"no warm interpreter: {self.why_cold}")
            elif answer:
                self.server.ready = True
                held = answer["bytes"] / (1 << 30)
                self.say(f"warm interpreter: {answer['modules']} modules imported for a next start, {held:.2f} GiB")
        elif room() < NEEDED_BYTES // 4:
            self.give_up("memory got short")

    def fork(self, specs: Sequence[ProcessSpec], outputs: Sequence[int]) -> list[int] | None:
        """Start the ranks from the server; None where they have to start cold, for a reason that is said."""
        self.look()
        why = self.why_cold
        if self.server is not None and not why:
            why = "" if self.server.ready else "the warm interpreter had not imported all yet"
            if len(specs) > MOST_RANKS:
                why = f"{len(specs)} ranks are more than {MOST_RANKS}"
            try:
                if not why:
                    return self.server.fork(specs, outputs)
            except ColdStartError as error:
                why = str(error)
                self.end()
        if why:
            self.say(f"the ranks start with cold interpreters: {why}")
        return None

    def failed(self) -> None:
        """Ranks that were forked have failed before their first step: it may be the fork."""
        self.failures += 1
        self.end()
        why = "a rank that was forked from a warm one failed before its first step"
        if self.failures > 1:
            self.give_up(f"{why}, for the second time")
        else:
            self.why_cold = why

    def reaped(self, pid: int, code: int) -> bool:
        if self.server is None or self.server.process.pid != pid:
            return False
        self.server.process.returncode = code
        self.give_up(f"the warm interpreter ended with {code}")
        return True

    def end(self) -> None:
        if self.server is not None:
            self.server.end()
            self.server = None
