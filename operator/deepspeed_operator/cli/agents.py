"""The agents of one job on this machine: started, watched, and ended with all that they started."""

import contextlib
import ctypes
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from deepspeed_operator.api.untyped import Json, object_at

_AGENT: Final = Path(__file__).parents[1] / "agent"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_POLL_SECONDS: Final = 0.1
_LONGEST: Final = 1 << 20  # bytes of an answer
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class LocalAgents:
    """Agents write to our own standard output, so that a rank's lines pass through one process, as in a pod."""

    def __init__(self, environments: Sequence[Mapping[str, str]]) -> None:
        self.stopped_by = 0
        self._kills = False
        libc = ctypes.CDLL(None)
        # What outlives its agent comes to us, to be ended; and the agents end even where we are killed.
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._stop)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-S", "-u", str(_AGENT)],
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is ours to pass on
                preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),  # noqa: PLW1509
            )
            for environment in environments
        ]

    def wait(self, look: Callable[[], None]) -> None:
        """Wait until all have ended; `look` is called ten times a second, until they begin to end."""
        ending = False
        while None in (codes := [process.poll() for process in self.processes]):
            if self.stopped_by and not ending:
                ending = True
                self._signal(signal.SIGTERM)
            if self._kills:
                self._signal(signal.SIGKILL)
            if not ending and any(code is not None and code < 0 for code in codes):
                # One was killed, and its peers would find out only after their fence's seconds.
                ending = True
                self._signal(signal.SIGTERM)
            if not ending:
                look()
            time.sleep(_POLL_SECONDS)
        _end_orphans()

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._kills = self.stopped_by != 0
        self.stopped_by = self.stopped_by or number

    def _signal(self, number: int) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


def _end_orphans() -> None:
    """End what is left, after all agents have ended: children of ours that we did not start."""
    while left := _children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(int(stat.parent.name))
    return found


def state_of(host: str, port: int, token: str) -> Json | None:
    """Return what an agent says of itself; None while it does not answer."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/state", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        answer: Any = json.loads(response.read(_LONGEST))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    else:
        # An agent that does not know this token, or no agent at all, says nothing of itself.
        return answer if response.status == 200 and "ranks" in object_at(answer) else None
    finally:
        connection.close()
