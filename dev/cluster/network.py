"""The network between the machine and its nodes: one bridge, a veth pair for each node, routes to the pods.

No filter rule is touched. Pods have point-to-point links into their node, so that every packet passes the node's
service rules; they reach each other, the machine and nothing beyond it.
"""

import json

from dev.cluster.processes import run
from dev.cluster.settings import BRIDGE, HOST_ADDRESS, MAX_NODES, node_address, pod_range


def bridge_up() -> None:
    if BRIDGE not in _links():
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    run(["ip", "address", "replace", f"{HOST_ADDRESS}/24", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])


def bridge_down() -> None:
    for link in _links():
        if link == BRIDGE or link.startswith(f"{BRIDGE}-"):
            run(["ip", "link", "delete", link])


def connect(number: int, pid: int) -> None:
    """Gives the network namespace of `pid` the address and the routes of node `number`."""
    link = f"{BRIDGE}-{number}"
    if link in _links():
        run(["ip", "link", "delete", link])
    run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid)])
    run(["ip", "link", "set", link, "master", BRIDGE, "up"])
    run(["ip", "route", "replace", pod_range(number), "via", node_address(number)])
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    others = [
        f"route add {pod_range(other)} via {node_address(other)}" for other in range(MAX_NODES) if other != number
    ]
    commands = ["link set lo up", f"address add {node_address(number)}/24 dev eth0", "link set eth0 up"]
    commands.append(f"route add default via {HOST_ADDRESS}")
    run([*inside, "ip", "-batch", "-"], stdin="\n".join([*commands, *others]))
    run([*inside, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])


def set_connected(number: int, *, connected: bool) -> None:
    """Plugs a running node's cable in or out."""
    run(["ip", "link", "set", f"{BRIDGE}-{number}", "up" if connected else "down"])
    if connected:
        run(["ip", "route", "replace", pod_range(number), "via", node_address(number)])


def pod_network(number: int) -> dict[str, object]:
    """The CNI configuration of node `number`."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": pod_range(number)}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}


def _links() -> list[str]:
    return [str(link["ifname"]) for link in json.loads(run(["ip", "-json", "link", "show"]))]
