"""A program that stands for kubectl: a job, its pods and their logs, which a test changes while they are followed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepspeed_operator.api.names import LABEL_ATTEMPT, LABEL_INDEX

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]

# Watches tell the last object first, then what follows; a byte more in `cuts` breaks all watches and streams there are.
_KUBECTL = """\
#!{python}
import http.server, json, os, pathlib, signal, socketserver, sys, time, urllib.parse
here = pathlib.Path(__file__).parent
words = [word for word in sys.argv[1:] if not word.startswith("-")]
options = [word for word in sys.argv[1:] if word.startswith("-")]

def cuts():
    return (here / "cuts").stat().st_size

def watch(file):
    (here / f"watch-{{os.getpid()}}").touch()
    begun, told = cuts(), max(0, len((here / file).read_text().splitlines()) - 1)
    if file == "pods":
        told = 0
    while cuts() == begun:
        lines = (here / file).read_text().splitlines(keepends=True)
        for line in lines[told:]:
            if not line.endswith("\\n"):
                break
            print(line, end="", flush=True)
            told += 1
        time.sleep(0.01)
    sys.exit("error: unexpected EOF")

class Logs(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        if (here / "down").exists():  # as kubectl does of each request that fails; nobody may have to read it
            print("Error while proxying request: connection refused; " * 2000, file=sys.stderr, flush=True)
    def address_string(self):
        return "here"
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        pod = url.path.split("/")[6]
        with (here / "asked").open("a") as asked:
            asked.write(f"{{pod}} {{url.query}}\\n")
        log = here / "logs" / pod
        if (here / "down").exists() or not log.exists():
            body = json.dumps({{"message": "the server is down" if log.exists() else "not found"}}).encode()
            self.send_response(502 if log.exists() else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        begun, at, since = cuts(), 0, query.get("sinceTime", "")
        if "tailLines" in query:
            lines = log.read_bytes().splitlines(keepends=True)
            at = len(b"".join(lines[:max(0, len(lines) - int(query["tailLines"]))]))
        while True:
            over = query["follow"] == "false" or (here / "logs" / (pod + ".ended")).exists()
            text = log.read_bytes()[at:]
            for line in text.splitlines(keepends=True):
                at += len(line)
                if line[:19] >= since[:19].encode():
                    self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(line), line))
            if cuts() != begun:
                self.close_connection = True
                if (here / "cuts").read_bytes()[-1:] == b"c":  # as if it had come to its end
                    self.wfile.write(b"0\\r\\n\\r\\n")
                return
            if over:
                self.wfile.write(b"0\\r\\n\\r\\n")
                return
            time.sleep(0.01)

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 100

if words[0] == "proxy":
    path = next(each for each in options if each.startswith("--unix-socket=")).partition("=")[2]
    server = Server(path, Logs)
    (here / "proxy").write_text(str(os.getpid()))
    print("Starting to serve on", path, flush=True)
    server.serve_forever()
if (here / "down").exists():
    sys.exit("The connection to the server was refused")
if "--watch" in options:
    watch("pods" if words[1] == "pods" else "job")
elif words[1] == "pods":
    newest = {{}}
    for event in map(json.loads, (here / "pods").read_text().splitlines()):
        newest[event["object"]["metadata"]["name"]] = event
    print(json.dumps({{"items": [each["object"] for each in newest.values() if each["type"] != "DELETED"]}}))
else:
    print(json.dumps(json.loads((here / "job").read_text().splitlines()[-1])["object"]))
"""


class FollowedJob:
    """The job `pretrain` with two ranks a pod, as a cluster tells of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "logs").mkdir()
        for name in ("cuts", "pods", "job", "asked"):
            (directory / name).touch()
        program = directory / "kubectl"
        program.write_text(_KUBECTL.format(python=sys.executable))
        program.chmod(0o755)

    def job(self, state: str, attempt: int = 1, *, kind: str = "MODIFIED", uid: str = "1", **status: Any) -> None:
        number: dict[str, Any] = {"number": attempt, "phase": "Ended" if state in {"Complete", "Failed"} else state}
        told = {"observedGeneration": 1, "state": state, "run": {"world": {"slotsPerNode": 2}}, "attempt": number}
        metadata = {"name": "pretrain", "namespace": "team", "uid": uid, "generation": 1}
        self._tell("job", kind, {"metadata": metadata, "status": {**told, **status}})

    def pod(self, name: str, state: str = "running", *, kind: str = "MODIFIED", uid: str = "") -> None:
        """Tell of a pod; `state` is that of its container, and `uid` another than that of the first of its name."""
        _, attempt, index, *_ = name.split("-")
        metadata = {
            "name": name,
            "uid": uid or name,
            "namespace": "team",
            "labels": {LABEL_ATTEMPT: attempt, LABEL_INDEX: index},
            "annotations": {"kubectl.kubernetes.io/default-container": "trainer"},
        }
        states: dict[str, dict[str, Json]] = {"sidecar": {"running": {}}, "trainer": {state: {}}}
        statuses = [{"name": container, "state": each} for container, each in states.items()]
        self._tell("pods", kind, {"metadata": metadata, "status": {"containerStatuses": statuses}})

    def write(self, pod: str, *lines: str) -> None:
        """Let a pod write lines, each with its time before it."""
        with (self.directory / "logs" / pod).open("a") as log:
            log.write("".join(f"{line}\n" for line in lines))

    def end(self, pod: str) -> None:
        (self.directory / "logs" / f"{pod}.ended").touch()
        self.pod(pod, "terminated")

    def cut(self, *, clean: bool = False) -> None:
        """Break all watches and streams; `clean`: streams end as if all had been said."""
        with (self.directory / "cuts").open("a") as cuts:
            cuts.write("c" if clean else "a")

    def down(self, *, down: bool = True) -> None:
        """Let nothing be answered any more, or again."""
        if down:
            (self.directory / "down").touch()
        else:
            (self.directory / "down").unlink()

    def asked(self) -> list[str]:
        """Return which logs were asked for, and how."""
        return (self.directory / "asked").read_text().splitlines()

    def proxy_runs(self) -> bool:
        return _runs((self.directory / "proxy").read_text())

    def watches_run(self) -> bool:
        begun = [each.name.removeprefix("watch-") for each in self.directory.glob("watch-*")]
        assert len(begun) > 1, "of the job and of its pods"
        return any(map(_runs, begun))

    def _tell(self, file: str, kind: str, body: dict[str, Any]) -> None:
        with (self.directory / file).open("a") as told:
            told.write(json.dumps({"type": kind, "object": body}) + "\n")


def _runs(pid: str) -> bool:
    return (Path("/proc") / pid / "stat").exists()


class Dsjob:
    """A `dsjob` that runs, and what it has printed so far."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._out, self._err = directory / "out", directory / "err"
        path = {"PATH": f"{directory}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "operator")}
        command = [sys.executable, "-m", "deepspeed_operator.cli.main", *arguments]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(command, env={**os.environ, **path}, stdout=out, stderr=err)

    @property
    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def errors(self) -> str:
        return self._err.read_text()

    def wait_for(self, met: Callable[["Dsjob"], bool]) -> None:
        until = time.monotonic() + 60
        while not met(self):
            assert time.monotonic() < until, (self.lines, self.errors)
            assert self.process.poll() is None, (self.lines, self.errors)
            time.sleep(0.02)
