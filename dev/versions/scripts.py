"""Runs scripts of `inside` with a version that is imported once: by a server, which forks itself for each of them."""

import atexit
import json
import os
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TextIO

from dev.versions import rootfs


@dataclass(frozen=True)
class Script:
    """A script that runs; it reads until `stdin` is closed."""

    stdin: TextIO
    stdout: TextIO


@contextmanager
def running(version: str, script: str, *arguments: str, quiet: bool = False) -> Generator[Script]:
    """Run a script, and wait for its end. Its stderr is this process's, or if `quiet` nowhere.

    Raises subprocess.CalledProcessError where it ends with another code than 0.
    """
    theirs_in, stdin = os.pipe()
    stdout, theirs_out = os.pipe()
    code, theirs_code = os.pipe()
    stderr = os.open(os.devnull, os.O_WRONLY) if quiet else os.dup(2)
    asked = json.dumps({"script": script, "arguments": arguments})
    given = [theirs_in, theirs_out, stderr, theirs_code]
    socket.send_fds(_server(version), [asked.encode()], given)
    for each in given:
        os.close(each)
    with os.fdopen(stdin, "w") as written, os.fdopen(stdout) as read, os.fdopen(code) as ended:
        yield Script(written, read)
        written.close()
        read.read()  # a script whose answers nobody reads would not end
        said = ended.read()
    if said != "0":
        raise subprocess.CalledProcessError(int(said or -1), script)


def output(version: str, script: str, *arguments: str, given: str = "") -> str:
    """Return what a script printed that was given this on stdin."""
    with running(version, script, *arguments) as process:
        process.stdin.write(given)
        process.stdin.close()
        return process.stdout.read()


@cache
def _server(version: str) -> socket.socket:
    """Start a version's server, which ends with this process."""
    rootfs.installed(version)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        rootfs.command(version, "fork_server.py"), stdin=theirs.fileno(), stdout=subprocess.DEVNULL
    )
    theirs.close()

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours
