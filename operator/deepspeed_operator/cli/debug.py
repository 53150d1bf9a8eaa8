"""`dsjob debug`."""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from deepspeed_operator.cli.asking import AgentPod, agent_pods
from deepspeed_operator.cli.kubectl import ClusterError, Kubectl
from deepspeed_operator.cli.kubectl import define as define_job
from deepspeed_operator.cli.numbers import within
from deepspeed_operator.cli.paint import painted

_AT_ONCE: Final = 16
# What differs between two ranks that are at the same place.
_OF_ONE_PROCESS: Final = re.compile(r"\b0x[0-9a-f]+\b|(?<=pid )\d+")


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_job(parser)
    parser.add_argument("--stacks", action="store_true", required=True, help="where every thread of every rank is")
    parser.add_argument("--rank", type=within(0, 10_000_000), metavar="N", help="of this rank alone")
    parser.epilog = (
        "Asks the ranks where they are, while they run on: also those that wait in C code. Ranks at the same place are "
        "shown together, the fewest first. It runs the agent in the pods, for which you need the right to exec."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print where the ranks are, and return how the command ends."""
    cluster = Kubectl.of(arguments)
    job = cluster.job(arguments.name)
    if job.finished:
        raise ClusterError(f"{job.name} is {job.state}: none of its ranks runs")
    pods = agent_pods(cluster, job)
    if not pods:
        raise ClusterError(f"attempt {job.attempt} of {job.name} has no pods: it is {job.state}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(partial(_asked, cluster), pods))
    ranks = [rank for found, _ in answers for rank in found if arguments.rank in {None, rank["rank"]}]
    if ranks:
        print("\n".join(lines(ranks)))
    for pod, (_, failed) in zip(pods, answers, strict=True):
        if failed:
            print(painted(f"{pod.name}: {failed}", "yellow"))
    if not ranks:
        which = "no rank" if arguments.rank is None else f"no rank {arguments.rank}"
        print(f"dsjob: {which} of {job.name} has answered", file=sys.stderr)
    return 0 if ranks else 1


def _asked(cluster: Kubectl, pod: AgentPod) -> tuple[list[Mapping[str, Any]], str]:
    """Return what the agent of a pod tells of its ranks, or why it does not."""
    try:
        return [json.loads(line) for line in pod.asked(cluster, "stacks").splitlines()], ""
    except (ClusterError, ValueError) as error:
        return [], str(error)


def lines(ranks: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the places where ranks are, those with the fewest ranks first, each with the ranks that are there."""
    at: defaultdict[str, list[int]] = defaultdict(list)
    for rank in ranks:
        at["\n".join(_place(rank))].append(rank["rank"])
    for place, members in sorted(at.items(), key=lambda each: (len(each[1]), each[1])):
        yield painted(f"rank{'s' * (len(members) > 1)} {_listed(sorted(members))}", bold=True)
        yield from (f"  {line}" for line in place.splitlines())


def _place(rank: Mapping[str, Any]) -> Iterator[str]:
    yield from _process(rank)
    for child in rank["children"]:
        yield f"its process {_OF_ONE_PROCESS.sub('…', child['command'])}"
        yield from (f"  {line}" for line in _process(child))


def _process(process: Mapping[str, Any]) -> Iterator[str]:
    if process["state"] == "D":
        where = f" in {process['place']}" if process["place"] else ""
        yield f"is in uninterruptible sleep{where} of the kernel, and answers nobody"
    elif not process["stacks"]:
        yield "tells of no stacks: it is no Python program, or has yet to start"
    yield from _OF_ONE_PROCESS.sub("…", process["stacks"]).splitlines()


def _listed(numbers: list[int]) -> str:
    """Write numbers in order as ranges: 0-3, 5."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)
