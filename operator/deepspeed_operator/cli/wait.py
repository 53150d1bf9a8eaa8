"""`dsjob wait`."""

import argparse
import sys
from typing import Final

from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.kubectl import Kubectl
from deepspeed_operator.cli.kubectl import define as define_job
from deepspeed_operator.cli.numbers import positive

COMPLETE, FAILED, INVALID, TIMED_OUT = 0, 1, 3, 124
_ENDS: Final = {"Complete": COMPLETE, "Failed": FAILED}


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    define_job(parser)
    parser.add_argument("--timeout", type=positive, metavar="SECONDS", help="how long at most; without it, as it takes")
    parser.epilog = (
        "Prints each state that the job comes to. Ends with 0 once the job is Complete, 1 if it Failed, 3 if it is "
        "Invalid, 124 after --timeout, and 2 if the job is not there, is deleted, or cannot be read at first. A "
        "suspended job is waited for, and so is an API server that does not answer any more."
    )


def run(arguments: argparse.Namespace) -> int:
    """Wait for the job's end, and return how the command ends."""
    before = ""
    try:
        for job in Kubectl.of(arguments).watch(arguments.name, arguments.timeout):
            if not job.current:  # what status says is about the spec before
                continue
            line = state_line(job)
            if line != before:
                print(line, flush=True)
            before = line
            if job.finished:
                return _ENDS[job.state]
            if job.refused:
                return INVALID
    except TimeoutError:
        print(f"dsjob: {arguments.name} has not come to its end within {arguments.timeout:g} s", file=sys.stderr)
        return TIMED_OUT
    raise AssertionError("a watch ends with an exception alone")


def state_line(job: JobView) -> str:
    """Return where the job is, and why, in one line."""
    state = "Invalid" if job.refused else job.state
    words = " ".join(job.message.split("\n", 1)[0].split())
    return f"{job.name}: {state}{f': {words}' if words else ''}"
