"""How soon the ranks run: from the start of the agent's process to its rank's first line, waiting for peers apart.

That is more than what is asked (from the agent's first instruction to the rank's exec), by twice an interpreter's
start-up: an upper bound. Of two pods the one that starts last counts: until then the other one waits. The agent runs as
it is delivered, an archive of sources that the interpreter compiles at every start.
"""

import argparse
import base64
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from deepspeed_operator.delivery import agent_archive
from tests.unit.agent.harness import Gang, interpreters

TARGET_SECONDS = 0.3
SCRIPT = "import time; print('rank runs at', time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)"


def once(nodes: int, python: str, directory: Path) -> float:
    agent = directory / "agent"
    agent.write_bytes(base64.b64decode(agent_archive()))
    gang = Gang(directory, nodes=nodes, script=SCRIPT, python=python, agent=agent)
    try:
        running = [gang.start(index) for index in range(nodes - 1)]
        for each in running:
            each.wait_for(lambda each=each: each.ask("/livez") == 200)
        begun = time.monotonic()
        running.append(gang.start(nodes - 1))
        outputs = [each.end().output for each in running]
    finally:
        gang.close()
    return max(float(output.split("rank runs at ")[1].split()[0]) for output in outputs) - begun


def bare(python: str) -> float:
    """What any start of a program from an interpreter costs: python, then python."""
    begun = time.monotonic()
    code = f"import os, sys; os.execv(sys.executable, [sys.executable, '-u', '-c', {SCRIPT!r}])"
    output = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    return float(output.split("rank runs at ")[1]) - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--python", default=interpreters()[0])
    arguments = parser.parse_args()
    base = statistics.median(bare(arguments.python) for _ in range(arguments.runs))
    print(f"{arguments.python}: bare start of a program {base * 1000:.0f} ms")
    worst = 0.0
    for nodes in (1, 2):
        with tempfile.TemporaryDirectory() as directory:
            times: list[float] = []
            for run in range(arguments.runs):
                (Path(directory) / str(run)).mkdir()
                times.append(once(nodes, arguments.python, Path(directory) / str(run)))
        median = statistics.median(times)
        worst = max(worst, median)
        print(
            f"{nodes} pod(s): median {median * 1000:.0f} ms, {min(times) * 1000:.0f} to {max(times) * 1000:.0f} ms,"
            f" {median / base:.1f} × the bare start"
        )
    verdict = "within" if worst <= TARGET_SECONDS else "over"
    print(f"median of {arguments.runs}: {worst:.3f} s, {verdict} the target of {TARGET_SECONDS} s")
    return 0 if worst <= TARGET_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
