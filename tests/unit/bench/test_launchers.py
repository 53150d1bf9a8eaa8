"""What `dsjob run` costs beside DeepSpeed's launcher, as measured on two GPUs: the bars of docs/run.md."""

import statistics
from pathlib import Path
from typing import Any

from bench.gpu.tables import lines_of

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "bench/gpu/results"


def found(kind: str, file: str) -> list[Any]:
    return [each[kind] for each in lines_of(RESULTS, file) if kind in each]


def test_a_job_of_ours_is_as_fast_as_one_of_deepspeeds_launcher() -> None:
    runs = found("runs", "launchers")
    assert len(runs) >= 5
    assert min(run["steps"] for pair in runs for run in pair.values()) >= 50
    assert statistics.median(found("ratio", "launchers")) >= 0.99


def test_ten_thousand_log_lines_a_second_cost_a_step_less_than_a_hundredth() -> None:
    noisy = found("noise", "noise")
    assert noisy
    assert min(each["linesPerSecond"] for each in noisy) > 9_900
    assert max(each["cost"] for each in noisy) < 0.01


def test_environments_differ_by_what_the_table_lists_alone() -> None:
    """Each row of docs/run.md that begins with variables in backticks."""
    rows = [line for line in (ROOT / "docs/run.md").read_text("utf-8").splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in row.split("|")[1].replace("`", "").replace(" ", "").split(",")}
    differing = {name for each in [*found("environment", "launchers"), *found("environment", "noise")] for name in each}
    assert differing
    assert {name for name in differing if not name.startswith("DEEPSPEED_OPERATOR_")} <= listed
