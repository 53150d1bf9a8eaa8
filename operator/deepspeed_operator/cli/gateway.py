"""Logs of pods through one `kubectl proxy`: a kubectl for each pod of a large gang would take gigabytes."""

import http.client
import json
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode

from deepspeed_operator.cli.kubectl import ClusterError, ForbiddenError, GoneError, Kubectl

_LOGS: Final = r"^/api/v1/namespaces/[^/]+/pods/[^/]+/log$"
_LONGEST: Final = 1 << 16  # bytes of a refusal
_FILES: Final = 1 << 16  # a pod of a large gang takes one, and a shell allows for 1,024
# However this process ends: its end of the pipe is closed then.
_UNTIL_WE_END: Final = 'cat >/dev/null; kill "$0"; rm -r "$1"'


class Gateway:
    """`kubectl proxy` for logs alone, on a socket in a directory that only its user can enter."""

    def __init__(self, cluster: Kubectl) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError):  # a system that has another limit beside this one
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (_FILES if most == resource.RLIM_INFINITY else min(most, _FILES), most)
            )
        self._directory = tempfile.mkdtemp(prefix="dsjob-")
        self._socket, self._words = f"{self._directory}/api", Path(self._directory, "words")
        # A context's server may have a path of its own, as Rancher's have.
        options = (f"--unix-socket={self._socket}", "--append-server-path", f"--accept-paths={_LOGS}")
        # It writes a line for each request that fails, and would wait for a pipe that nobody reads.
        with self._words.open("wb") as words:
            self._proxy = subprocess.Popen(
                cluster.command("proxy", *options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words
            )
        self._guard = subprocess.Popen(
            ["sh", "-c", _UNTIL_WE_END, str(self._proxy.pid), self._directory],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us
        )
        assert self._proxy.stdout is not None
        if not self._proxy.stdout.readline():  # "Starting to serve on …"
            self._proxy.wait()
            said = self._words.read_text(encoding="utf-8", errors="replace").strip()
            self._end()
            raise ClusterError(said or "kubectl proxy ended at once")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def log(self, namespace: str, pod: str, query: Mapping[str, object]) -> http.client.HTTPResponse:
        """Return a pod's log as it comes.

        Raises GoneError where there is no such pod, ForbiddenError, and ClusterError.
        """
        connection = _Connection(self._socket)
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log?{urlencode(query)}"
            connection.request("GET", path, headers={"Connection": "close"})
            response = connection.getresponse()
            if response.status == http.HTTPStatus.OK:
                return response
            words = _message(response.read(_LONGEST).decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ClusterError(str(error) or type(error).__name__) from error
        connection.close()
        kinds = {http.HTTPStatus.NOT_FOUND: GoneError, http.HTTPStatus.FORBIDDEN: ForbiddenError}
        raise kinds.get(http.HTTPStatus(response.status), ClusterError)(words)

    def _end(self) -> None:
        self._proxy.terminate()
        self._proxy.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._guard.kill()
        self._guard.wait()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def _message(body: str) -> str:
    """Return the words of a Status of Kubernetes, or the body where it is none: a proxy's on the way."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.strip() or "no answer"
