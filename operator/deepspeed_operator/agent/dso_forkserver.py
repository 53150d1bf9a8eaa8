"""Runs in the ranks' own interpreter: imports what they import, and forks the ranks of each round from itself.

The agent starts it with a socket, argument 1; argument 2 only makes room for what ps shows of a rank. preload.json
beside this file says what to import. Each message is a round's ranks, with two descriptors each: the output, and a
socket on which the rank tells its process id and waits to be let go. A rank is forked twice, so that it is a child of
the agent, which takes what is orphaned, and not of this process, which may be gone before it.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import sys
import time
from typing import Any

import dso_forkchild
from dso_preload import Preload

MOST_DESCRIPTORS = 253  # of one message: SCM_MAX_FD
LENGTH = struct.Struct("!I")


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message, and the descriptors that came with it; None where the agent is gone."""
    size = array.array("i").itemsize
    head, ancillary, _, _ = connection.recvmsg(
        LENGTH.size, socket.CMSG_SPACE(MOST_DESCRIPTORS * size), socket.MSG_CMSG_CLOEXEC
    )
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) // size * size])
    if len(head) < LENGTH.size:
        return None
    (left,) = LENGTH.unpack(head)
    parts: list[bytes] = []
    while left:
        parts.append(connection.recv(min(left, 1 << 16)))
        if not parts[-1]:
            return None
        left -= len(parts[-1])
    return json.loads(b"".join(parts)), list(descriptors)


def resident() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class ForkServer:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def serve(self) -> dso_forkchild.Program | None:
        """Returns the program in each forked rank, and None in the server, once the agent has closed the socket."""
        with open(os.path.join(dso_forkchild.HERE, "preload.json"), encoding="utf-8") as file:
            what: dict[str, Any] = json.load(file)
        argv: list[str] = what["argv"]
        own = getattr(sys.modules.get("sitecustomize"), "__file__", None)
        preload = Preload(what["modules"], what["changed"], dso_forkchild.Program(argv).own)
        if own and os.path.dirname(os.path.abspath(own)) != dso_forkchild.PLACEHOLDER:
            preload.refusal = f"{own} runs as an interpreter starts"
        told = {"refusal": preload.refusal, "modules": len(sys.modules), "bytes": resident()}
        self.connection.sendall(json.dumps(told).encode() + b"\n")
        while not preload.refusal:
            request = receive(self.connection)
            if request is None:
                break
            program = self.fork(preload, *request)
            if program is not None:
                return program
        return None

    def fork(self, preload: Preload, request: dict[str, Any], descriptors: list[int]) -> dso_forkchild.Program | None:
        ranks = request["ranks"]
        programs = [dso_forkchild.Program(rank["argv"]) for rank in ranks]
        refusal = "it would be in another directory" if request["cwd"] != os.getcwd() else ""
        refusal = refusal or next(filter(None, (preload.differs(rank["environment"]) for rank in ranks)), "")
        refusal = refusal or preload.hidden(programs[0].directory) or preload.outdated()
        if not (programs[0].module or os.path.isfile(programs[0].script)):
            refusal = refusal or f"{programs[0].script} is no file"
        if refusal:
            os.write(descriptors[1], f"!{refusal}".encode("utf-8", "replace"))
        else:
            middle = forked()
            if middle == 0:
                middle = os.getpid()
                for index, program in enumerate(programs):
                    if os.fork() == 0:
                        self.connection.close()
                        output, control = descriptors[2 * index : 2 * index + 2]
                        for other in {*descriptors} - {output, control}:
                            os.close(other)
                        while os.getppid() == middle:
                            time.sleep(0.001)
                        started(preload, program, ranks[index]["environment"], output, control)
                        return program
                os._exit(0)
            os.waitpid(middle, 0)
        for descriptor in descriptors:
            os.close(descriptor)
        return None


def forked() -> int:
    """os.fork(); -1 where it has worked, but PYTHONWARNINGS makes an error of the warning that there are threads."""
    try:
        return os.fork()
    except DeprecationWarning:
        return -1


def started(
    preload: Preload, program: dso_forkchild.Program, environment: dict[str, str], output: int, control: int
) -> None:
    """Become the rank; tell the agent its process id, and wait until it lets all ranks go."""
    try:
        dso_forkchild.become(program, environment, preload.set, output)
        os.write(control, str(os.getpid()).encode())
        if os.read(control, 1) != b"g":
            os._exit(1)
        os.close(control)
    except BaseException as error:
        os.write(control, f"!{type(error).__name__}: {error}".encode("utf-8", "replace"))
        os._exit(1)


if __name__ == "__main__":
    program = ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
    if program is not None:
        try:
            program.run()
        except BaseException as raised:
            dso_forkchild.without_ours(raised)
            raise
