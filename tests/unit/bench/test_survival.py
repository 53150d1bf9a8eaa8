"""What a run on GPUs told before it ended, or when it hung, as docs/gpu.md shows it."""

from typing import Any

import pytest

from bench.gpu.cases import CASES, named
from bench.gpu.survival import evidence
from bench.gpu.survival_tables import hung, progress, told

SECONDS = 0.5
MICRO = named("told-1").configuration().micro
# As 2204.02311 counts them of a Llama of 1,345,423,360 parameters and 24 layers of 2048: its embedding, too.
FLOPS = MICRO * 1024 * (6 * 1_345_423_360 + 12 * 24 * 2048 * 1024)
ENDED: dict[str, Any] = {
    "case": "told-1",
    "progress": {
        "source": "DeepSpeedEngine",
        "step": 60,
        "secondsSinceUpdate": 0.1,
        "samplesPerSecond": 2 * MICRO / SECONDS,
        "stepSeconds": {"median": SECONDS, "p95": SECONDS},
    },
    "measured": {
        "steps": 20,
        "stepSeconds": 2 * SECONDS,
        "microBatch": MICRO,
        "accumulation": 1,
        "stage": 1,
        "precision": "bf16",
        "device": "NVIDIA H200",
        "deviceMemory": 150_000_000_000,
    },
    "timed": {"step_seconds": [SECONDS] * 59, "flops": FLOPS},
    "saving": 0.4,
    "saved": 11.25,
    "ended": 12.5,
    "savedAtEnd": "saved at step 62, 1 s before the end",
    "checkpoint": {"sizeBytes": 18_800_000_000},
}
LOG = [
    "[deepspeed-operator] hang: rank 0, process 40, state R, phase Step after step 5",
    "[deepspeed-operator] Thread 0x00007ff449dcfb80 (most recent call first):",
    '[deepspeed-operator]   File "/usr/lib/python3.12/threading.py", line 7 in wait',
    "[deepspeed-operator] Current thread 0x00007ff449dcfb81 (most recent call first):",
    '[deepspeed-operator]   File "/site/torch/cuda/__init__.py", line 1083 in synchronize',
    '[deepspeed-operator]   File "/work/bench/gpu/inside/survived.py", line 28 in main',
    "[deepspeed-operator] [rank 1] hang: rank 1, process 41, state T, in do_signal_stop of the kernel",
    "[deepspeed-operator]   no stack: it does not answer",
]


def test_a_rank_told_to_end_is_shown_with_its_seconds() -> None:
    assert list(told([ENDED])) == [("1", "25", "0.4", "11.2", "12.5", "18.8", f"`{ENDED['savedAtEnd']}`")]


def test_progress_tells_what_the_scripts_own_clock_does() -> None:
    """Though its plan was corrected by first steps that took twice as long."""
    status, script = progress([ENDED])
    assert status[2:4] == script[2:4] == ("0.500", f"{2 * MICRO * 1024 / SECONDS:.0f}")
    assert float(status[4].split()[0]) == pytest.approx(float(script[4].split()[0]), rel=0.01)


def test_the_evidence_is_each_ranks_state_and_where_its_main_thread_is() -> None:
    first, second = evidence(LOG)
    assert first == {
        "rank": 0,
        "state": "hang: rank 0, process 40, state R, phase Step after step 5",
        "threads": 2,
        "frames": ["cuda/__init__.py:1083 synchronize", "inside/survived.py:28 main"],
    }
    assert (second["rank"], second["threads"], second["frames"]) == (1, 0, [])


def test_a_hang_is_shown_with_its_limit_and_the_ranks_whose_stacks_it_has() -> None:
    record = {"reported": 16.04, "words": "rank 1 is in survived.py:90 (asleep)", "evidence": evidence(LOG)}
    rows = list(hung([{"case": "collective", "stepping": 51.26, **record}, {"case": "learned", **record}]))
    assert rows[0][1:] == ("3", "15", "16.0", f"`{record['words']}`", "0", "51.3")
    assert (rows[1][2], rows[1][-1]) == ("learned", "–")


def test_a_limit_is_learned_only_where_enough_steps_are_made() -> None:
    assert [each.name for each in CASES if each.how != "told" and each.steps >= 16] == ["learned"]
