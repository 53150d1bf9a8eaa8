"""A rank without GPU that writes what NCCL wrote elsewhere, to where NCCL would write it.

Arguments: a log in which `### node N` begins the lines of a node, and the seconds to stay.
"""

import os
import re
import sys
import time
from pathlib import Path


def main() -> None:
    parts = re.split(r"^### node \d+\n", Path(sys.argv[1]).read_text(), flags=re.MULTILINE)
    target = os.environ["NCCL_DEBUG_FILE"].replace("%h", os.uname().nodename).replace("%p", str(os.getpid()))
    Path(target).write_text(parts[1 + int(os.environ["NODE_RANK"])])
    print("first collective", time.time(), flush=True)
    time.sleep(float(sys.argv[2]))


if __name__ == "__main__":
    main()
