"""A training that saves when it is told to end, and goes on from there; it waits after half of its steps for `go`.

Argument: the number of its steps. What its ranks do is in a file that all of its pods share.
"""

import os
import signal
import sys
import time
from pathlib import Path

SHARED = Path("/shared")


def main() -> None:
    rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RUN_ID"].rpartition("-")[2]
    saved, steps = SHARED / f"saved-{rank}", int(sys.argv[1])
    journal = os.open(SHARED / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    step = int(saved.read_text()) if saved.exists() else 0

    def write(what: str) -> None:
        os.write(journal, f"{time.time():.3f} {attempt} {rank} {what}\n".encode())

    def save(*_: object) -> None:
        time.sleep(2)  # as a checkpoint takes its time
        saved.write_text(str(step))
        write(f"saved {step}")
        sys.exit(143)

    signal.signal(signal.SIGTERM, save)
    while step < steps:
        while step == steps // 2 and not (SHARED / "go").exists():
            time.sleep(0.1)
        step += 1
        write(f"step {step}")


main()
