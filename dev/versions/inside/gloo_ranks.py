"""Ranks of a script on this machine, which meet by gloo."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

_SHOWN = 3000  # characters of the errors' end


def run_ranks(script: str, arguments: Sequence[str], ranks: int, directory: str, **variables: str) -> str:
    """Run so many processes of a script, each with its RANK, until all have ended; return what rank 0 said of errors.

    `directory` holds their temporary files; `variables` are added to their environment.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "LOCAL_SIZE": str(ranks)}
    given = {**os.environ, **world, "OMP_NUM_THREADS": "1", "USE_LIBUV": "0", "TMPDIR": directory, **variables}
    started = [
        subprocess.Popen(
            [sys.executable, "-u", script, *arguments],
            env={**given, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(ranks)
    ]
    _, errors = started[0].communicate()
    for each in started:
        each.wait()
    return errors[-_SHOWN:]
