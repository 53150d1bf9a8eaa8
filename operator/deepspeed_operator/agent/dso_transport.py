"""How the ranks really talk to each other: NCCL's report is asked for, followed, and summarised for the gang."""

from __future__ import annotations

import glob
import os
import shutil
import socket
import tempfile
import threading
import time
from typing import Any, Callable, Iterable, Mapping

from dso_launch import LaunchDocument
from dso_nccl import Log, kind
from dso_network import nccl_settings

ASKED = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
NAMES = (*ASKED, "NCCL_DEBUG_FILE")
EVERY_SECONDS = 1.0
PIECE = 1 << 18
READ_BYTES = 4 << 20  # of one file: a rank writes some 10 KB for each communicator
KEPT_BYTES = 8 << 20  # on disk, of a file of ours
LINE = 4096
MAX_FILES = 128
UNSEEN = "NCCL wrote nothing about connections: the ranks may use another library, such as gloo or MPI."


class ReportSource:
    """Where this pod's NCCL writes: files of ours if the user asked for nothing, else where the user's lines go."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environment: dict[str, str] = {}
        self.directory: str | None = None
        self.pattern: str | None = None
        self.note = UNSEEN
        set_here = nccl_settings(environ)
        asked = {name: set_here[name][0] for name in NAMES if set_here.get(name, ("",))[0]}
        if not asked:
            self._ask()
        elif asked.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
            given = ", ".join(f"{name}={value[:64]}" for name, value in asked.items())
            self.note = f"The container sets {given}: NCCL tells its connections with NCCL_DEBUG=INFO, or none set."
        else:
            file = asked.get("NCCL_DEBUG_FILE", "")
            host = glob.escape(socket.gethostname().split(".")[0])
            in_the_output = not file or file.startswith("/dev/std")
            self.pattern = None if in_the_output else glob.escape(file).replace("%h", host).replace("%p", "*")

    def _ask(self) -> None:
        try:
            self.directory = tempfile.mkdtemp(prefix="deepspeed-operator-nccl-")
        except OSError as error:
            self.note = f"No directory for NCCL's report: {error.strerror}."
            return
        self.environment = {**ASKED, "NCCL_DEBUG_FILE": os.path.join(self.directory, "nccl.%h.%p")}
        self.pattern = os.path.join(glob.escape(self.directory), "*")


class Tail:
    """A file that grows, read in pieces up to a limit."""

    def __init__(self) -> None:
        self.offset = 0
        self.rest = b""

    def read(self, path: str, ours: bool) -> list[str]:
        try:
            with open(path, "rb") as file:
                if ours and os.fstat(file.fileno()).st_blocks * 512 > KEPT_BYTES:
                    os.truncate(path, 0)  # its writer goes on behind a hole
                if self.offset >= READ_BYTES:
                    return []
                file.seek(self.offset)
                data = file.read(PIECE)
        except OSError:
            return []
        self.offset += len(data)
        *lines, rest = (self.rest + data).split(b"\n")
        self.rest = rest[-LINE:]
        return [line[:LINE].decode("utf-8", "replace") for line in lines]


class TransportWatch(threading.Thread):
    """Follows the report of this pod's ranks; `changed` gets each new state of it."""

    def __init__(self, source: ReportSource, changed: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(name="transport", daemon=True)
        self.source, self.changed = source, changed
        self.log = Log()
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.tails: dict[str, Tail] = {}
        self.began = time.time() - 1
        self.news = False
        self.quiet = 0
        self.tapped = 0
        self.report: dict[str, Any] | None = None

    def run(self) -> None:
        self.poll()
        # Connections are made when a communicator is first used; then there is nothing to see for hours.
        while not self.ended.wait(EVERY_SECONDS if self.quiet < 30 else 5 * EVERY_SECONDS):
            self.poll()

    def poll(self) -> None:
        """Read what was written since."""
        with self.lock:
            try:
                self._read()
            except Exception as error:
                self._give_up(error)

    def _read(self) -> None:
        for path in glob.glob(self.source.pattern) if self.source.pattern else ():
            ours = self.source.directory is not None
            if path not in self.tails and (len(self.tails) >= MAX_FILES or not (ours or self._is_new(path))):
                continue
            for line in self.tails.setdefault(path, Tail()).read(path, ours):
                self.news = self.log.take(path, line) or self.news
        self.quiet += 1
        if self.news:
            self.news, self.quiet = False, 0
            self.report = self.log.report()
            self.changed(self.report)

    def _give_up(self, error: Exception) -> None:
        """A defect of the guard must not end a training."""
        self.source.pattern, self.tapped = None, READ_BYTES
        self.source.note = f"The agent could not read NCCL's report: {type(error).__name__}: {error}"[:300]

    def _is_new(self, path: str) -> bool:
        """The user's files may be kept from run to run."""
        try:
            return os.path.isfile(path) and os.stat(path).st_mtime >= self.began
        except OSError:
            return False

    def take(self, text: bytes) -> None:
        """A tap on the ranks' output, where a user who asked NCCL for its report may see it."""
        if self.tapped >= READ_BYTES or b" NCCL INFO " not in text:
            return
        self.tapped += len(text)
        with self.lock:
            try:
                for line in text.split(b"\n"):
                    self.news = self.log.take("output", line[:LINE].decode("utf-8", "replace")) or self.news
            except Exception as error:
                self._give_up(error)

    def end(self) -> None:
        self.ended.set()
        if self.source.directory:
            shutil.rmtree(self.source.directory, ignore_errors=True)


def summary(launch: LaunchDocument, reports: Mapping[int, dict[str, Any]], over: bool, note: str) -> dict[str, Any]:
    """What each pair of nodes, and the ranks of a node, use; equal pairs make one entry.

    `reports` are those of the nodes, by index; `note` is the message where they tell nothing. `over`: a step, or the
    program, has ended, so that no further report is to be expected.
    """
    ways: dict[tuple[bool, str], dict[str, Any]] = {}
    pairs: set[tuple[int, int]] = set()
    owners = _owners(reports)
    for node, report in reports.items():
        for comm, rank, uses, device in report["links"]:
            identity, size, _ = report["comms"][comm]
            other = owners.get((identity, rank)) if identity else None
            if other is None and size == launch.nodes * launch.slots and rank >= 0:
                other = rank // launch.slots
            if other is None and not uses.startswith(("NET", "COLLNET")):
                other = node  # memory is shared within a node
            between = launch.nodes > 1 and other != node
            way = ways.setdefault(
                (between, uses), {"uses": uses, "kind": kind(uses, device), "devices": set(), "pairs": set()}
            )
            way["devices"].add(device)
            if other is not None:
                way["pairs"].add((min(node, other), max(node, other)))
                pairs.update(way["pairs"] if between else ())
    links = [_link(between, way, pairs) for (between, _), way in sorted(ways.items(), reverse=True)]
    kinds = {link["kind"] for link in links if link["between"] == ("Nodes" if launch.nodes > 1 else "Ranks")}
    known = kinds.pop() if len(kinds) == 1 else "Mixed" if kinds else ""
    versions = [report["version"] for report in reports.values() if report["version"]]
    result: dict[str, Any] = {"state": known or ("Unknown" if over else "Pending"), "links": links[:8]}
    if versions:
        result["library"] = versions[0]
    if not known and (over or note != UNSEEN):
        result["message"] = note
    return result


def _owners(reports: Mapping[int, dict[str, Any]]) -> dict[tuple[str, int], int]:
    return {
        (identity, rank): node
        for node, report in reports.items()
        for identity, _, ranks in report["comms"]
        for rank in (ranks if identity else ())
    }


def _link(between: bool, way: Mapping[str, Any], pairs: Iterable[tuple[int, int]]) -> dict[str, Any]:
    link = {"between": "Nodes" if between else "Ranks", "uses": way["uses"], "kind": way["kind"]}
    link["devices"] = sorted(device for device in way["devices"] if device)[:16]
    if between and way["pairs"]:
        link["pairs"] = len(way["pairs"])
        if way["pairs"] != pairs:
            link["nodes"] = [f"{low}-{high}" for low, high in sorted(way["pairs"])[:16]]
    return link


def those_on(kinds: Iterable[str], transport: Mapping[str, Any]) -> str:
    """Who uses one of these kinds of transport, in words; empty if nobody does."""
    for link in transport["links"]:
        if link["kind"] in kinds:
            where = f"nodes {', '.join(link['nodes'])}" if "nodes" in link else "all nodes that are connected"
            devices = f" ({', '.join(link['devices'])})" if link["devices"] else ""
            return f"{where if link['between'] == 'Nodes' else 'ranks of a node'} use {link['uses']}{devices}"
    return ""


def brief(transport: Mapping[str, Any]) -> dict[str, Any]:
    """The summary for a termination message, which has room for little."""
    links = [
        {**each, "devices": each["devices"][:4], "nodes": each.get("nodes", [])[:4]} for each in transport["links"]
    ]
    short = {**transport, "links": links[:3]}
    return short if len(str(short)) < 500 else {"state": transport["state"], "links": []}
