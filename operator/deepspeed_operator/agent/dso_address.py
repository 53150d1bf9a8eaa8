"""Addresses in what gloo, NCCL and torch's stores print about a lost peer: a person knows ranks and pods."""

from __future__ import annotations

import contextlib
import fcntl
import re
import socket
import struct
from typing import Iterable, Mapping

SIOCGIFADDR = 0x8915
INET6 = "/proc/net/if_inet6"
MOST = 32
# [10.0.0.7]:29500 of gloo, 10.0.0.7<41234> of NCCL, with IPv6 and an interface's name after % alike.
_ADDRESS = re.compile(
    r"(?P<bracket>\[)?(?P<address>(?:::ffff:)?\d+(?:\.\d+){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?:%\w+)?"
    r"(?(bracket)\](?::\d+)?|(?:<\d+>|:\d+)?)"
)


def own_addresses() -> list[str]:
    """Of all interfaces of this pod but the loopback: the ranks may use another one than the agent."""
    addresses: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                reply = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                addresses.append(socket.inet_ntoa(reply[20:24]))
    with contextlib.suppress(OSError), open(INET6, encoding="ascii") as file:
        addresses += [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])) for line in file]
    return [address for address in addresses if not address.startswith("127.") and address != "::1"][:MOST]


def name_addresses(text: str, owners: Mapping[str, str]) -> str:
    """The text with the owners' names in place of their addresses, ports included."""

    def name(match: re.Match[str]) -> str:
        owner = owners.get(canonical(match["address"]))
        if owner is None:
            return match[0]
        return f"({owner})" if match["bracket"] else owner

    return _ADDRESS.sub(name, text)


def owners(pods: Iterable[tuple[str, str, Iterable[str]]]) -> dict[str, str]:
    """By address what it is called: `pods` as name, node, addresses. One that pods of a node share is the node's."""
    names: dict[str, set[str]] = {}
    nodes: dict[str, set[str]] = {}
    for name, node, addresses in pods:
        for address in map(canonical, addresses):
            names.setdefault(address, set()).add(name)
            nodes.setdefault(address, set()).add(f"node {node}")
    owned = {address: names[address] if len(names[address]) == 1 else nodes[address] for address in names}
    return {address: owner.pop() for address, owner in owned.items() if len(owner) == 1}


def canonical(address: str) -> str:
    """The one way to write it; empty if it is none. An IPv4 address within IPv6 is itself."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, address)
        except OSError:
            continue
        mapped = len(packed) == 16 and packed.startswith(bytes(10) + b"\xff\xff")
        return socket.inet_ntop(socket.AF_INET, packed[12:]) if mapped else socket.inet_ntop(family, packed)
    return ""
