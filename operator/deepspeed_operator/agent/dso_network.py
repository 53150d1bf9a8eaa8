"""What the container says of the network, by variables or NCCL's settings files, beside what this pod has.

An image may bake in names of the cluster that it was made for. The libraries fail on them in words that do not say so,
or choose an interface that reaches nobody.
"""

from __future__ import annotations

import os
import re
import socket
from typing import Iterator, Mapping, MutableMapping

from dso_launch import LaunchDocument

INTERFACES, ADAPTERS = "/sys/class/net", "/sys/class/infiniband"
ROUTES = "/proc/net/route"
GLOO = "GLOO_SOCKET_IFNAME"
DEFAULT = "00000000"


def nccl_settings(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Each variable of NCCL, and of gloo's interface, with where it is set: the first place counts to NCCL, too."""
    found = {name: (value, "") for name, value in environ.items() if name.startswith("NCCL_") or name == GLOO}
    own = environ.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf")
    for path in (own, "/etc/nccl.conf"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                pairs = re.findall(r"^\s*(NCCL_\w+)\s*=\s*(\S+)", file.read(1 << 16), re.MULTILINE)
        except OSError:
            continue
        for name, value in pairs:
            found.setdefault(name, (value, path))
    return found


def check(environ: Mapping[str, str], nodes: int) -> Iterator[str]:
    """Yields warnings."""
    settings, here = nccl_settings(environ), names_in(INTERFACES)
    for name in filter(None, settings.get(GLOO, ("", ""))[0].split(",")):
        if name not in here:
            yield f"no network interface {name} in this pod, which has {', '.join(here)}: {GLOO} names it"
    for variable, kind, there in (
        ("NCCL_SOCKET_IFNAME", "network interface", here),
        ("NCCL_IB_HCA", "RDMA adapter", names_in(ADAPTERS)),
    ):
        value, path = settings.get(variable, ("", ""))
        if not value:
            continue
        said = f"{variable}={value[:64]}{f' ({path})' if path else ''}"
        if not value.startswith("^"):
            if not any(matches(value, name) for name in there):
                yield f"{said} is no {kind} of this pod, which has {', '.join(there) or 'none'}"
        elif nodes > 1 and "lo" in there and not matches(value[1:], "lo"):
            yield f"{said} lets loopback in, which reaches no other pod: it must leave out lo, too"


def matches(listed: str, name: str) -> bool:
    """As NCCL compares: a name is a prefix unless the list begins with =; a port after it does not matter here."""
    exact = listed.startswith("=")
    names = [each.partition(":")[0] for each in listed.lstrip("=").split(",") if each]
    return any(each == name if exact else name.startswith(each) for each in names)


def names_in(directory: str) -> list[str]:
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []


def name_interface(environ: MutableMapping[str, str], launch: LaunchDocument) -> str:
    """Set gloo's interface where its own choice would be loopback; returns what was done, in words.

    gloo takes the address of the host's name. With hostNetwork that is the node's name, which many a node's own
    /etc/hosts has beside 127.0.1.1. Pods of `dsjob run` are on loopback, and there it is right.
    """
    if launch.nodes == 1 or environ.get(GLOO) or launch.hosts[0].startswith("127."):
        return ""
    host = socket.gethostname()
    if reaches_others(host):
        return ""
    interface, trouble = default_interface(), f"the name of this host, {host}, is one of loopback"
    if not interface:
        return f"{trouble}, which gloo would use: set spec.network.interface"
    environ[GLOO] = interface
    return f"{trouble}: {GLOO} is set to {interface}, that of the default route; spec.network.interface names another"


def reaches_others(host: str) -> bool:
    """Whether gloo's choice, the first address of the host's name that can be bound, is none of loopback."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False  # PyTorch takes loopback then
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as tried:
                tried.bind(address)
        except OSError:
            continue
        return not (str(address[0]).startswith("127.") or address[0] == "::1")
    return False


def default_interface() -> str:
    """The interface of the IPv4 default route with the lowest metric; empty where there is none."""
    try:
        with open(ROUTES, encoding="ascii") as file:
            routes = [line.split() for line in file.read().splitlines()[1:]]
    except OSError:
        return ""
    found = [(int(route[6]), route[0]) for route in routes if len(route) > 7 and route[1] == route[7] == DEFAULT]
    return min(found)[1] if found else ""
