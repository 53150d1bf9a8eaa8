"""An operator process of a test's own, that can be stopped, killed and continued."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

COMMAND = Path(sys.executable).with_name("deepspeed-operator")
Lease = tuple[int, int, int]  # duration, renew deadline and retry period in seconds
# For a test that waits for another leader: one that a busy machine lets wait loses it too, and rightly ends.
SHORT_LEASE: Lease = (8, 6, 1)
# For whom it would cost more than a hand-over to lose it: a process that starts anew with its name has it at once.
LONG_LEASE: Lease = (120, 100, 1)


class Replica:
    """Serves one namespace."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        directory: Path,
        identity: str = "one",
        lease: Lease = LONG_LEASE,
    ) -> None:
        duration, deadline, period = lease
        self._kubeconfig = kubeconfig
        self._log = directory / f"operator-{identity}.log"
        self._port = _free_port()
        self._arguments = [
            f"--namespace={namespace}",
            f"--watch-namespaces={namespace}",
            f"--identity={identity}",
            "--http-host=127.0.0.1",
            f"--http-port={self._port}",
            f"--lease-duration={duration}",
            f"--renew-deadline={deadline}",
            f"--retry-period={period}",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text()

    def start(self, *arguments: str, wait: bool = True) -> None:
        """Start the process; with `wait`, return when it leads."""
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [COMMAND, *self._arguments, *arguments], env=environment, stdout=log, stderr=log
            )
        if wait:
            self.eventually(lambda: self.get("/readyz")[1] == "leading", 30)

    def get(self, path: str) -> tuple[int, str]:
        """Ask the process; status 0 if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=2) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, line: str) -> float:
        """Return a sample of /metrics by its full name; 0 if there is none."""
        found = [each for each in self.get("/metrics")[1].splitlines() if each.startswith(f"{line} ")]
        return float(found[0].split()[-1]) if found else 0.0

    def jobs(self, state: str) -> float:
        """Return how many jobs are in this state, as it tells Prometheus."""
        lines = [each for each in self.get("/metrics")[1].splitlines() if each.startswith("deepspeed_operator_jobs{")]
        return sum(float(each.split()[-1]) for each in lines if f'state="{state}"' in each)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 60) -> int:
        """Return the exit code of a process that is about to end."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the operator did not end within {seconds} s:\n{self.log}") from None

    def stop(self) -> int:
        self.send(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """Leave nothing behind, whatever state the process is in."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def eventually(self, holds: Callable[[], object], seconds: float, *, every: float = 0.05) -> None:
        """Wait for something; show the log if it does not come."""
        eventually(holds, seconds, lambda: self.log[-6000:], every=every)


def eventually(
    holds: Callable[[], object], seconds: float, report: Callable[[], object] = str, *, every: float = 0.05
) -> None:
    """Wait until something holds, three times as long on a busy machine."""
    end = time.monotonic() + 3 * seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {3 * seconds} s: {report()}")
        time.sleep(every)


def processes_of(pid: int) -> list[int]:
    """Return the process and those that it has started, and they."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
