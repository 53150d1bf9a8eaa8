"""Requests to the API server, as JSON."""

import json
from pathlib import Path
from typing import Any

from urllib3 import PoolManager
from urllib3.exceptions import HTTPError


class ApiError(RuntimeError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Api:
    """It keeps its connections: a handshake costs more than most answers."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        self._token: str = config["users"][0]["user"]["token"]
        # The cluster is on this machine: a proxy in the environment is not for it, nor is it read.
        self._pool = PoolManager(ca_certs=cluster["certificate-authority"], maxsize=8, retries=False)

    def request(self, method: str, path: str, body: object = None, *, patch: str = "merge", timeout: float = 10) -> Any:
        """The answer's JSON (its text where it is none).

        ApiError is what the server refused, OSError a server that is not there.
        """
        kind = f"application/{patch}-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        try:
            response = self._pool.request(method, self._server + path, body=data, headers=headers, timeout=timeout)
        except HTTPError as error:
            raise OSError(f"{method} {path}: {error}") from error
        text = response.data.decode()
        if response.status >= 400:
            raise ApiError(response.status, text)
        return json.loads(text) if text.startswith(("{", "[")) else text

    def found(self, path: str) -> bool:
        """Whether the object exists, or the check passes; False too while the server is not there."""
        try:
            self.request("GET", path)
        except (ApiError, OSError):
            return False
        return True
