"""The side of the measuring process: one question on stdin, answers as JSON lines on a pipe of their own."""

# pyright: basic, reportMissingImports=false

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any


def run(answer: Callable[[dict[str, Any]], Iterable[dict[str, Any]]]) -> None:
    """Wait for the question, with everything imported by now, then send what rank 0 has to say."""
    asked: dict[str, Any] = json.loads(sys.stdin.readline())
    os.environ["MASTER_PORT"] = str(asked.pop("port"))
    failed = False
    try:
        for each in answer(asked):
            _send(each)
    except Exception as error:
        traceback.print_exc()
        _send({"error": f"{type(error).__name__}: {error}"[:1000]})
        failed = True
    sys.stderr.flush()
    # A peer may wait for it in a collective: nothing is torn down in order.
    os._exit(failed)


def _send(answer: dict[str, Any]) -> None:
    os.write(int(os.environ["BENCH_ANSWERS"]), (json.dumps(answer) + "\n").encode())
