"""`dsjob rerun`."""

import argparse
import re
import sys

from deepspeed_operator.cli.kubectl import Kubectl
from deepspeed_operator.cli.kubectl import define as define_job

NOT_FINISHED = NOT_NEW = 1
_MOST = 64  # characters of a runId


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_job(parser)
    parser.add_argument("--run-id", metavar="ID", help="the new spec.runId; without it, the old one with a number")
    parser.add_argument("--replace", action="store_true", help="also stop a run that still goes on, and start again")
    parser.epilog = (
        "Sets a new spec.runId: the job as spec has it now runs again, in new pods. Ends with 1 if it still runs and "
        "--replace is not given, or if ID is that of the run it has."
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the job again, and return how the command ends."""
    cluster, name = Kubectl.of(arguments), arguments.name
    job = cluster.job(name)
    if not (job.finished or job.refused or arguments.replace):
        print(f"{name} is {job.state}: --replace stops this run and begins another.", file=sys.stderr)
        return NOT_FINISHED
    taken = {job.run_id, *(each.run_id for each in job.attempts)}
    run_id = arguments.run_id if arguments.run_id is not None else next_run_id(job.run_id, taken)
    if run_id == job.run_id:
        print(f"{name} has run {run_id!r} already, which does not run a second time: name another id.", file=sys.stderr)
        return NOT_NEW
    cluster.change(name, {"runId": run_id})
    print(f"{name} runs again as run {run_id!r}: `dsjob wait {name}` says how it ends.")
    return 0


def next_run_id(current: str, taken: set[str]) -> str:
    """Return the id with the next number at its end that no attempt in the job's history had."""
    parts = re.fullmatch(r"(.*?)(\d{0,9})", current, re.DOTALL)
    assert parts is not None, "every text has an end of digits, if an empty one"
    stem, number = parts.group(1), int(parts.group(2) or 1)
    while True:
        number += 1
        joint = "-" if stem and not parts.group(2) and not stem.endswith(("-", "_", ".")) else ""
        ending = f"{joint}{number}"
        following = f"{stem[: _MOST - len(ending)]}{ending}"
        if following not in taken:
            return following
