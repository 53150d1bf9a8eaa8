"""Requests to the API server, as JSON."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


class ApiError(RuntimeError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Api:
    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        self._token: str = config["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        # The cluster is on this machine: a proxy in the environment is not for it.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)
        )

    def request(self, method: str, path: str, body: object = None, *, patch: str = "merge", timeout: float = 10) -> Any:
        """The answer's JSON (its text where it is none).

        ApiError is what the server refused, OSError a server that is not there.
        """
        kind = f"application/{patch}-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._server + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode()) from None
        return json.loads(text) if text.startswith(("{", "[")) else text

    def found(self, path: str) -> bool:
        """Whether the object exists, or the check passes; False too while the server is not there."""
        try:
            self.request("GET", path)
        except (ApiError, OSError):
            return False
        return True
