"""`dsjob resume`."""

import argparse

from deepspeed_operator.cli.kubectl import Kubectl
from deepspeed_operator.cli.kubectl import define as define_job

NOTHING_TO_DO = 1


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_job(parser)
    parser.epilog = (
        "Takes spec.suspend back: a new attempt of the same run begins, and the program goes on from what it has "
        "saved. Ends with 1 if the job is not suspended."
    )


def run(arguments: argparse.Namespace) -> int:
    """Let the job go on, and return how the command ends."""
    cluster, name = Kubectl.of(arguments), arguments.name
    job = cluster.job(name)
    if not job.suspended:
        again = f" `dsjob rerun {name}` runs it again." if job.finished else ""
        print(f"{name} is {job.state}, and not suspended.{again}")
        return NOTHING_TO_DO
    cluster.change(name, {"suspend": False})
    print(f"{name} goes on: `dsjob wait {name}` says how it ends.")
    return 0
