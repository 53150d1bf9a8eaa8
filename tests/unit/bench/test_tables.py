"""The tables of bench/gpu count what the documents claim."""

from pathlib import Path
from typing import Any

import pytest

from bench.gpu import tables
from bench.gpu.configurations import TABLES

ROOT = Path(__file__).parents[3]
LARGE = {each.name: each.record() for each in (*TABLES["timing"](), *TABLES["memory"]())}


def timed(name: str, seconds: float, fabric: str = "tcp8") -> dict[str, Any]:
    return {
        **LARGE[name],
        "fabric": fabric,
        "median": seconds,
        "step_seconds": [seconds],
        "samples_per_second": 8 * LARGE[name]["accumulation"] / seconds,
    }


def predicted(name: str, seconds: float) -> dict[str, Any]:
    return {"fabric": "tcp8", "name": name, "seconds": seconds, "uncalibrated": seconds}


def test_pairs_that_are_measured_apart_must_be_ordered() -> None:
    measured = [timed("large-s0-g1", 1.0), timed("large-s1-g1", 2.0), timed("large-s2-g1", 2.1)]
    expected = [predicted("large-s0-g1", 1.1), predicted("large-s1-g1", 1.0), predicted("large-s2-g1", 1.9)]
    assert list(tables.timing(measured, expected))[-4:] == [
        "",
        "3 × step time: median error 10.0%, worst 50.0%.",
        "Pairs more than 10 % apart: 2, ordered right: 1.",
        "Not foreseen: large-s0-g1 before large-s1-g1.",
    ]


def test_the_articles_gain_is_divided_between_accumulation_and_zero() -> None:
    seconds = {"large-s0-g1": 0.2, "large-s0-g4": 0.5, "large-s2-g1": 0.25, "large-s2-g4": 0.6}
    measured = [timed(name, each, "nvlink") for name, each in seconds.items()]
    assert list(tables.article(measured))[2] == "| nvlink | 40.00 | 64.00 | 32.00 | 53.33 | +33% | +60% | -17% |"


def test_rounds_of_a_configuration_are_one_measurement() -> None:
    rounds = [timed("large-s0-g1", 1.0), timed("large-s1-g1", 2.0), timed("large-s0-g1", 1.2)]
    found = tables.pooled(rounds)
    assert [(each["name"], each["median"], each["runs"]) for each in found] == [
        ("large-s0-g1", 1.1, [1.0, 1.2]),
        ("large-s1-g1", 2.0, [2.0]),
    ]


def test_the_recipe_stands_beside_what_was_advised_instead() -> None:
    measured = tables.pooled([timed("large-s2-g4", 6.0), timed("large-s0-g4", 2.5), timed("large-s0-g4", 1.5)])
    advice = {"fabric": "tcp8", "advice": 1, "name": "large-s0-g4", "gain": 3.3}
    assert list(tables.recipe(measured, [predicted("large-s2-g4", 6.6), advice]))[2:] == [
        "| tcp8 | large-s2-g4 |  | 6.000 | 5.33 |  |  |  |",
        "| tcp8 | large-s0-g4 | 1 | 2.500 1.500 | 16.00 | ×3.00 | ×3.30 | +10.0% |",
    ]


def test_traffic_is_compared_by_collective() -> None:
    size = 1_345_423_360 * 2
    traffic = [
        {"collective": "all_reduce", "group": [0, 1], "calls": 3, "bytes": size},
        {"collective": "all_gather_into_tensor", "group": [0, 1], "calls": 1, "bytes": size * 2},
    ]
    rows = list(tables.traffic([{**LARGE["large-s1-g1"], "traffic": traffic}]))
    assert rows[2] == "| large-s1-g1 | all-gather | 1 | 5381.7 | 2690.8 | -50.00% |"
    assert rows[3] == "| large-s1-g1 | all-reduce | 3 | 2690.8 | 2690.8 | +0.00% |"


def test_deepspeeds_own_estimate_stands_beside_ours() -> None:
    measured = {
        **LARGE["large-s2-g4"],
        "peak": 30 * 2**30,
        "phase": "backward",
        "reserved": 31 * 2**30,
        "outside": 2**31,
    }
    row = list(tables.memory([measured]))[2]
    # 2 Ψ + 18 Ψ ÷ 2 ranks.
    assert row.endswith("| 13.78 (-54%) |")


def test_a_configuration_that_ran_out_of_memory_says_so() -> None:
    failed = {**LARGE["large-s0-g1"], "error": "OutOfMemoryError: CUDA out of memory\nmore"}
    assert list(tables.memory([failed]))[2] == "| large-s0-g1 | OutOfMemoryError: CUDA out of memory |"


@pytest.mark.parametrize("page", ["docs/gpu.md", "docs/memory.md", "docs/oracle.md"])
def test_the_documents_show_what_was_measured_and_what_is_predicted(page: str) -> None:
    """`python -m bench.gpu.tables --write PAGE` mends it."""
    written = (ROOT / page).read_text("utf-8")
    assert "<!-- end -->" in written
    assert tables.filled(written, tables.tables_below(ROOT / "bench/gpu/results")) == written


RECORDS = [
    each
    for path in sorted((ROOT / "bench/gpu/results").rglob("*.jsonl"))
    for each in tables.lines(path.read_text("utf-8"))
    if "traffic" in each
]


@pytest.mark.parametrize("name", sorted({each["name"] for each in RECORDS}))
def test_nccl_is_given_what_is_predicted(name: str) -> None:
    """Payload by collective, in calls above 64 KiB of one step, on every fabric and machine."""
    for record in (each for each in RECORDS if each["name"] == name):
        measured = tables.payload_of(record)
        expected = tables.expected_traffic(record, record.get("nodes", 1)).payload()
        assert expected == {collective: pytest.approx(size, rel=0.01) for collective, (_, size) in measured.items()}
