"""Command line: python -m dev.cluster up | down | status | …"""

import argparse
import json
import sys
import time

from dev.cluster import build
from dev.cluster.cluster import Cluster
from dev.cluster.processes import CommandError


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dev.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring the cluster up, or do nothing if it is")
    up.add_argument("--nodes", type=int, default=2)
    commands.add_parser("down", help="take it down; programs and images stay in the cache")
    commands.add_parser("status", help="what runs, as JSON; exit code 1 if the cluster is not whole")
    commands.add_parser("build", help="build the programs and print their directory")
    commands.add_parser("registry", help="start the registry and print the address to push to")
    commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    for name, help_text in (
        ("kill-node", "end every process of a node at once"),
        ("start-node", "boot a node again"),
        ("disconnect-node", "pull a node's network cable"),
        ("connect-node", "plug it in again"),
    ):
        commands.add_parser(name, help=help_text).add_argument("node")
    load = commands.add_parser("load", help="give images to every node")
    load.add_argument("images", nargs="+", metavar="NAME_OR_ARCHIVE", help="an image of the registry's, or an archive")
    kwok = commands.add_parser("kwok", help="add simulated nodes, or take them away")
    kwok.add_argument("nodes", type=int, help="how many in all; 0 takes them away")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    cluster = Cluster()
    started = time.monotonic()
    match arguments.command:
        case "up":
            cluster.up(arguments.nodes)
            print(f"{', '.join(cluster.nodes)} up in {time.monotonic() - started:.1f} s")
            print(f"export KUBECONFIG={cluster.kubeconfig}")
        case "down":
            cluster.down()
        case "status":
            status = cluster.status()
            print(json.dumps(status, indent=2))
            return 0 if status["running"] else 1
        case "build":
            build.install_packages()
            print(build.build(cluster.layout))
        case "registry":
            print(cluster.start_registry())
        case "kubeconfig":
            print(cluster.kubeconfig)
        case "load":
            for image in arguments.images:
                cluster.load_image(image)
        case "kwok" if arguments.nodes:
            print(*cluster.kwok(arguments.nodes))
        case "kwok":
            cluster.kwok_stop()
        case node_command:
            getattr(cluster, node_command.replace("-", "_"))(arguments.node)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CommandError, TimeoutError, ValueError) as error:
        sys.exit(f"{error}")
