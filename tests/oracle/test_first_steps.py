"""The agent's hook in real DeepSpeed: it measures what a program itself measures, and tells which engine it made."""

import json
from typing import Any

import pytest

from deepspeed_operator.plan.traffic.unproven import PROVEN_VERSIONS
from dev.versions import rootfs


def trained(version: str, hooked: str) -> dict[str, Any]:
    """Two ranks, of which these have the hook."""
    rootfs.installed(version)
    return json.loads(rootfs.output(version, "first_steps.py", hooked).splitlines()[-1])


@pytest.mark.parametrize("version", PROVEN_VERSIONS)
def test_the_hook_measures_what_the_program_does_and_tells_its_world_and_engine(version: str) -> None:
    found = trained(version, "01")
    assert found["codes"] == [0, 0]
    measured, own = found["measured"], found["rank0"]
    assert [measured[name] for name in ("steps", "microBatch", "accumulation", "stage", "precision")] == [
        20,
        1,
        2,
        2,
        "fp32",
    ]
    assert measured["stepSeconds"] == pytest.approx(own["own"], rel=0.05)
    assert measured["allReduce"]["ranks"] == 2
    assert measured["allReduce"]["points"][0][0] == 64 << 10
    assert all(seconds > 0 for _, seconds in measured["allReduce"]["points"])
    assert own == {**own, "steps": 22, "wrapped": False, "hooked": [True, True], "path": []}
    joined = [report for report in found["reports"] if "group" in report and "engine" not in report]
    assert sorted((report["rank"], report["world"], report["certain"]) for report in joined) == [
        (0, 2, True),
        (1, 2, True),
    ]
    assert [report["stepped"] for report in found["reports"] if "stepped" in report] == [True, True]
    (engine,) = [report["engine"] for report in found["reports"] if "engine" in report]
    assert engine == {
        "world": 2, "stage": 2, "precision": "fp32", "microBatch": 1, "accumulation": 2, "trainBatch": 4,
        "optimizer": "AdamW", "ownOptimizer": True, "ownScheduler": False,
    }  # fmt: skip


def test_where_only_some_ranks_have_it_no_collective_is_added_and_they_train() -> None:
    found = trained(PROVEN_VERSIONS[-1], "0")
    assert found["codes"] == [0, 0]
    assert found["measured"]["allReduce"] is None
    assert found["measured"]["stepSeconds"] == pytest.approx(found["rank0"]["own"], rel=0.05)
