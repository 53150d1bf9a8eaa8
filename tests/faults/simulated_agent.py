"""Rank 0's agent of a job on simulated nodes: it answers the operator from this machine."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deepspeed_operator.job.ports import ports
from dev.cluster.settings import HOST_ADDRESS


class SimulatedAgent:
    """Tells the state of an attempt, whose ranks have started again in their pods as often as `restart` was called."""

    address = HOST_ADDRESS  # an EndpointSlice takes none of loopback

    def __init__(self, uid: str, attempt: int) -> None:
        self._uid_digest = hashlib.sha256(uid.encode()).hexdigest()
        self._attempt = attempt
        self._round = 1
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(agent.state()).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as the base names it
                """Not on the terminal of the tests."""

        self._server = ThreadingHTTPServer((self.address, ports(uid, attempt).agent), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def restart(self) -> None:
        """Rank 1 fails, and all ranks start again."""
        self._round += 1

    def state(self) -> dict[str, Any]:
        """Return what an agent answers, as far as it is about rounds."""
        failed = {"reason": "RankFailed", "rank": 1, "pod": None, "node": None, "exitCode": None, "signal": 9}
        restarts = self._round - 1
        rounds = {
            "number": self._round,
            "user": 0,
            "infrastructure": restarts,
            "uncounted": 0,
            "repeated": {"key": None, "count": 0},
            "last": {**failed, "time": 1, "signature": ""} if restarts else None,
        }
        own = {"uidDigest": self._uid_digest, "attempt": self._attempt}
        return {"protocol": 3, **own, "round": self._round, "phase": "Running", "rounds": rounds}
