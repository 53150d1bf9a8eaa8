"""`dsjob suspend`."""

import argparse

from deepspeed_operator.cli.kubectl import Kubectl
from deepspeed_operator.cli.kubectl import define as define_job

NOTHING_TO_DO = 1


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_job(parser)
    parser.epilog = (
        "Sets spec.suspend: the pods get SIGTERM and their grace period to save, and give their GPUs back. A GitOps "
        "pipeline that owns spec.suspend sets it back: change it there. Ends with 1 if there is nothing to suspend."
    )


def run(arguments: argparse.Namespace) -> int:
    """Suspend the job, and return how the command ends."""
    cluster, name = Kubectl.of(arguments), arguments.name
    job = cluster.job(name)
    if job.suspended or job.finished:
        print(f"{name} is {job.state}: there is nothing to suspend.")
        return NOTHING_TO_DO
    cluster.change(name, {"suspend": True})
    print(f"{name} is being suspended: its pods end. `dsjob resume {name}` begins a new attempt.")
    return 0
