"""What the ranks print arrives whole, labelled and at once, whatever they print and however they end."""

import time
from collections.abc import Callable

import pytest

from tests.unit.agent.harness import Gang

Make = Callable[..., Gang]


def test_a_line_of_100_mb_passes_without_being_held(gang: Make) -> None:
    script = """
import sys, resource, os
for _ in range(1600):
    sys.stdout.write("x" * 65536)
print()
print("after")
status = open("/proc/%d/status" % os.getppid()).read()
print("agent's peak", [line for line in status.splitlines() if "VmHWM" in line][0].split()[1])
"""
    (ended,) = gang(script=script).run()
    assert ended.code == 0
    assert ended.output.count("x" * 65536) == 1600
    peak = int(ended.output.split("agent's peak ")[1].split()[0])
    assert peak < 64 * 1024, f"{peak} KiB"


def test_long_lines_of_two_ranks_do_not_mix(gang: Make) -> None:
    script = "import os\nfor _ in range(20): print('yz'[int(os.environ['RANK'])] * 200000)"
    (ended,) = gang(slots=2, script=script).run()
    lines = ended.output.splitlines()
    first = [line for line in lines if "yyy" in line]
    second = [line for line in lines if "zzz" in line]
    assert set("".join(first)) == {"y"}
    assert all(line.startswith("[rank 1] ") and set(line[9:]) == {"z"} for line in second)
    assert [sum(map(len, first)), sum(len(line) - 9 for line in second)] == [4_000_000, 4_000_000]


def test_many_lines_are_cheap_and_complete(gang: Make) -> None:
    script = "import os\nfor i in range(100000): print('step', i, 'loss 0.123456789')"
    (ended,) = gang(slots=2, script=script).run()
    for prefix in ("", "[rank 1] "):
        assert f"\n{prefix}step 99999 loss 0.123456789\n" in ended.output
    lines = ended.output.splitlines()
    assert sum(line.startswith("step ") for line in lines) == 100000
    assert sum(line.startswith("[rank 1] step ") for line in lines) == 100000


def test_bytes_that_are_no_text_pass_and_the_message_stays_utf_8(gang: Make) -> None:
    script = "import os, sys; os.write(1, b'\\xff\\xfe\\n' + '漢'.encode() * 3000 + b'\\n'); sys.exit(3)"
    (ended,) = gang(script=script).run()
    assert ended.code == 3
    assert len(ended.message) <= 4000
    assert "漢" * 100 in ended.log_tail


@pytest.mark.parametrize("leftover", ["os.close(1); os.close(2)", "subprocess.Popen(['sleep', '120'])"])
def test_a_closed_or_inherited_pipe_does_not_hold_the_agent(gang: Make, leftover: str) -> None:
    script = f"import os, subprocess, time; print('before', flush=True); {leftover}; time.sleep(0.5)"
    begun = time.monotonic()
    (ended,) = gang(script=script).run()
    assert (ended.code, "before" in ended.output) == (0, True)
    assert time.monotonic() - begun < 60


def test_output_without_a_last_newline_is_not_lost(gang: Make) -> None:
    (ended,) = gang(script="import sys; sys.stdout.write('no newline')").run()
    assert "no newline\n" in ended.output


def test_ranks_go_on_when_nobody_reads_the_agents_output(gang: Make) -> None:
    script = "import os\nfor _ in range(1000): print('z' * 1000)\nopen('finished', 'w')"
    made = gang(script=script)
    running = made.start(wrapper=("sh", "-c", '"$@" | true; cat', "sh"))
    running.wait_for((made.code / "finished").exists)
