"""A training that saves after each step, and writes into a file that all pods share who makes which step, and when.

An argument is the number of its last step. Where a file `allocate-RANK` is beside that one, the rank takes memory
until it is killed.
"""

import os
import sys
import time
from pathlib import Path

SHARED = Path("/shared")
STEP_SECONDS = 0.25


def main() -> None:
    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RUN_ID"].rpartition("-")[2]
    saved = SHARED / f"saved-{rank}"
    journal = os.open(SHARED / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(what: str) -> None:
        life = f"{attempt}.{os.environ['DEEPSPEED_OPERATOR_ROUND']}"
        os.write(journal, f"{time.time():.3f} {life} {rank} {what}\n".encode())

    write("exec")
    step = int(saved.read_text() or 0) if saved.exists() else 0
    while step < int(sys.argv[1]):
        time.sleep(STEP_SECONDS)
        step += 1
        write(f"step {step}")
        print(f"step={step}, skipped=0, lr=[0.1]", flush=True)
        saved.write_text(str(step))
        if (SHARED / f"allocate-{rank}").exists():
            (SHARED / f"allocate-{rank}").unlink()
            hoard = [bytearray(b"\1" * 2**20) for _ in range(4096)]
            print(len(hoard))
    write("end")


main()
