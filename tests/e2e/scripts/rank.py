"""A rank without torch: it does what its arguments say, one after the other.

An argument is [RANK:]ACTION[=VALUE]; with a rank it is for that rank alone.
"""

import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path


def slow_sigterm(seconds: str) -> None:
    """End that many seconds after SIGTERM, as a rank that saves a checkpoint does."""

    def save_and_exit(*_: object) -> None:
        time.sleep(float(seconds))
        sys.exit(0)

    signal.signal(signal.SIGTERM, save_and_exit)
    print("slow on SIGTERM", flush=True)


def fail(message: str) -> None:
    raise ValueError(message)


def allocate(mebibytes: str) -> None:
    """Use memory page by page: the kernel counts what is written, not what is asked for."""
    hoard = bytearray()
    for _ in range(int(mebibytes)):
        hoard += b"\1" * 2**20


def kill_once(number: str) -> None:
    """Die by this signal, but not again in the same container."""
    mark = Path("/tmp/killed-once")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), int(number))


def fail_anew(message: str) -> None:
    """Fail in other words each time, and not in other numbers alone."""
    fail(message + " " + "".join(random.choices("ghijklmnopq", k=12)))


def sleep_at_first(seconds: str) -> None:
    """Sleep in the run's first round alone."""
    if os.environ["DEEPSPEED_OPERATOR_ATTEMPT"] == os.environ["DEEPSPEED_OPERATOR_ROUND"] == "1":
        time.sleep(float(seconds))


def import_module(name: str) -> None:
    __import__(name)


ACTIONS: dict[str, Callable[[str], object]] = {
    "allocate": allocate,
    "exit": lambda code: sys.exit(int(code)),
    "import": import_module,
    "kill-once": kill_once,
    "raise-anew": fail_anew,
    "kill": lambda number: os.kill(os.getpid(), int(number)),
    "print": print,
    "raise": fail,
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "sleep-at-first": sleep_at_first,
    "slow-sigterm": slow_sigterm,
}


def main() -> None:
    rank = os.environ["RANK"]
    print(f"rank {rank} of {os.environ['WORLD_SIZE']} in {os.environ['DEEPSPEED_OPERATOR_POD']}", flush=True)
    for argument in sys.argv[1:]:
        step = re.fullmatch(r"(?:(\d+):)?([-a-z]+)(?:=(.*))?", argument, re.DOTALL)
        if step is None:
            raise SystemExit(f"not an action: {argument}")
        if step[1] in {None, rank}:
            ACTIONS[step[2]](step[3])


if __name__ == "__main__":
    main()
