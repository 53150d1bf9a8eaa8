"""The report of NCCL, or RCCL, about its connections: a parser of the lines of its INIT and NET subsystems.

A channel's line names ranks of a communicator without saying which one, but for RCCL's. It is taken to be the one that
the same thread spoke of last, else the youngest whose ranks and nodes fit: connections may be made by later threads.
"""

from __future__ import annotations

import re
from typing import Any, Iterator

# A program may make communicators for ever: what is kept is bounded, and the first of each kind is kept.
MAX_PROCESSES, MAX_COMMS, MAX_LINKS, MAX_DEVICES, MAX_REPORTED = 128, 64, 1024, 64, 300

_LINE = re.compile(r":(\d+):(\d+) (?:\[\d+\] )?NCCL INFO (.*)")
_COMM = re.compile(r"\bcomm (\S+) rank (\d+) n[rR]anks (\d+)(?: nNodes (\d+))?(.*)")
_COMM_ID = re.compile(r"commId (0x[1-9a-f][0-9a-f]*)")
_SPLIT = re.compile(r"parent (\S+) (?:(?:splitCount|childCount) (\d+) )?color (-?\d+)")
_PLACE = r"(\d+)(?:\[[^\]]*\])?"
_CHANNEL = re.compile(
    rf"Channel \d+(?:/\d+)? : {_PLACE} -> {_PLACE} (?:\[(send|receive)\] )?via (.+?)(?: comm (\S+) nRanks \d+)?$"
)
_COLLNET = re.compile(r"CollNet \d+/\d+ : \d+ \[(?:send|receive)\] via COLLNET/([^/]+)/(\d+)")
_NET = re.compile(r"NET/(.+?)/(\d+)(?:\(\d+\))?(/GDRDMA)?(?:\(PCI\))?(?:/Shared)?$")
_USING = re.compile(r"NET/(\w+) ?: Using(( \[\d+\]\S+)+)")
_DEVICE = re.compile(r"\[(\d+)\]([^\s:]+)(?::\d+/(\w+))?")
_MERGED = re.compile(r"NET/(\w+) : Made virtual device \[(\d+)\] name=(\S+)")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;-]+)")
_VERSION = re.compile(r"\b([NR]CCL version)\s*:? (\S+)")
_SOCKET_PROVIDERS = ("tcp", "sockets", "udp", "net")


def kind(uses: str, device: str) -> str:
    """P2P, SHM, Socket, IB, OFI, or Plugin for a network that only its name is known of."""
    first, _, rest = uses.partition("/")
    network = rest.split("/")[0].lower()
    if first == "COLLNET" or (first == "NET" and network.startswith(("ib", "gib"))):
        return "IB"
    if first != "NET":
        return first
    if "libfabric" in network or "ofi" in network:
        return "Socket" if device.partition(";")[0] in _SOCKET_PROVIDERS else "OFI"
    return "Socket" if network == "socket" else "Plugin"


class Comm:
    __slots__ = ("identity", "nodes", "rank", "size")

    def __init__(self, identity: str, rank: int, size: int, nodes: int) -> None:
        self.identity, self.rank, self.size, self.nodes = identity, rank, size, nodes

    def fits(self, own: int, other: int, uses: str) -> bool:
        if self.rank != own or other >= self.size:
            return False
        if not self.nodes or uses.startswith("P2P/MNNVL"):
            return True
        return self.nodes > 1 if uses.startswith("NET") else self.nodes < self.size


class Process:
    """One process that uses the library."""

    def __init__(self) -> None:
        self.comms: dict[str, Comm] = {}  # by address; the youngest last
        self.spoken: dict[str, Comm] = {}  # by thread
        self.links: dict[tuple[Comm | None, int, str, str], None] = {}
        self.devices: dict[tuple[str, str], str] = {}
        self.provider = ""
        self.version = ""

    def take(self, thread: str, text: str) -> bool:
        """Take a line; return whether it was about a connection or the library."""
        if " via " in text:
            return self._channel(thread, text)
        match = _COMM.search(text)
        if match:
            return self._comm(thread, match)
        match = _VERSION.search(text)
        if match and not self.version:
            self.version = f"{match[1][0]}CCL {match[2]}"
            return True
        return self._network(text)

    def _comm(self, thread: str, match: re.Match[str]) -> bool:
        address, rank, size, nodes, more = match.groups()
        if more.endswith("COMPLETE") and "Init" not in more:
            return False  # it was destroyed
        known = self.comms.pop(address, None)
        if known is None or "Init START" in more:
            known = Comm(self._identity(more), int(rank), int(size), 0)
        known.nodes = int(nodes or known.nodes)
        if len(self.comms) < MAX_COMMS:
            self.comms[address] = known
        if len(self.spoken) < MAX_COMMS or thread in self.spoken:
            self.spoken[thread] = known
        return True

    def _identity(self, more: str) -> str:
        """The same on every rank of the communicator."""
        match = _COMM_ID.search(more)
        if match:
            return match[1]
        match = _SPLIT.search(more)
        if not match:
            return ""
        parent = self.comms.get(match[1])
        return f"{parent.identity}/{match[2]}/{match[3]}"[:64] if parent and parent.identity else ""

    def _channel(self, thread: str, text: str) -> bool:
        match = _COLLNET.search(text)
        if match:
            network, device = match.groups()
            return self._link(self.spoken.get(thread), -1, f"COLLNET/{network}", self._device("IB", device))
        match = _CHANNEL.search(text)
        if not match:
            return False
        source, target, direction, way, address = match.groups()
        own, other = int(source), int(target)
        if direction == "receive":
            own, other = other, own
        net = _NET.match(way)
        if net:
            uses, device = f"NET/{net[1]}{net[3] or ''}", self._device(net[1], net[2])
        else:
            uses, device = "/".join(re.split(r"[/ ]", way)[:2]), ""
        comms = [self.comms.get(address or ""), self.spoken.get(thread), *reversed(list(self.comms.values()))]
        comm = next((comm for comm in comms if comm and comm.fits(own, other, uses)), None)
        return self._link(comm, other, uses[:64], device)

    def _link(self, comm: Comm | None, other: int, uses: str, device: str) -> bool:
        link = (comm, other, uses, device)
        if link in self.links or len(self.links) >= MAX_LINKS:
            return False
        self.links[link] = None
        return True

    def _device(self, network: str, number: str) -> str:
        if self.provider and ("ibfabric" in network or "OFI" in network):
            return self.provider
        family = "IB" if network.startswith("IB") else network
        return self.devices.get((family, number), number[:8])

    def _network(self, text: str) -> bool:
        using, merged = _USING.search(text), _MERGED.search(text)
        if using:
            for number, name, fabric in _DEVICE.findall(using[2]):
                self._name(using[1], number, f"{name} ({fabric})" if fabric else name)
        if merged:
            self._name(*merged.groups())
        provider = _PROVIDER.search(text)
        if provider:
            self.provider = provider[1][:32]
        return False

    def _name(self, network: str, number: str, name: str) -> None:
        if len(self.devices) < MAX_DEVICES:
            self.devices[network, number] = name[:48]


class Log:
    """The report of all processes of this pod."""

    def __init__(self) -> None:
        self.processes: dict[tuple[str, str], Process] = {}

    def take(self, source: str, line: str) -> bool:
        match = _LINE.search(line)
        if not match:
            return False
        pid, thread, text = match.groups()
        process = self.processes.get((source, pid))
        if process is None:
            if len(self.processes) >= MAX_PROCESSES:
                return False
            process = self.processes[source, pid] = Process()
        return process.take(thread, text)

    def report(self) -> dict[str, Any]:
        """What rank 0's agent needs of this pod, in a few KB: its ranks of each communicator, and their links.

        A link is [communicator, peer's rank, way, device]; the first of each way comes first, so that none is cut off.
        """
        comms: dict[tuple[str, int], list[int]] = {}
        links: dict[tuple[str, int, int, str, str], None] = {}
        version = ""
        for process in self.processes.values():
            version = version or process.version
            for comm, other, uses, device in process.links:
                identity, size = (comm.identity, comm.size) if comm else ("", 0)
                links[identity, size, other, uses, device] = None
                ranks = comms.setdefault((identity, size), [])
                if comm and comm.rank not in ranks:
                    ranks.append(comm.rank)
        kept = list(comms)[:MAX_COMMS]
        places = {key: place for place, key in enumerate(kept)}
        ordered = list(_first_of_each_way(links))[:MAX_REPORTED]
        return {
            "version": version[:64],
            "comms": [[*key, comms[key][:64]] for key in kept],
            "links": [[places[key[:2]], *key[2:]] for key in ordered if key[:2] in places],
        }


def _first_of_each_way(links: dict[tuple[str, int, int, str, str], None]) -> Iterator[tuple[str, int, int, str, str]]:
    first = {link[3:]: link for link in reversed(list(links))}
    yield from first.values()
    chosen = set(first.values())
    yield from (link for link in links if link not in chosen)
