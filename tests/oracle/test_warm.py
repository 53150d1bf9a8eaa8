"""Real DeepSpeed in ranks that were forked from a warm interpreter: it computes what it computes in new ones."""

import json
from typing import Any

import pytest

from deepspeed_operator.dsconfig.versions import SUPPORTED
from dev.versions import rootfs

pytestmark = pytest.mark.timeout(900)
NEWEST = SUPPORTED[-1]


@pytest.mark.parametrize("stage", ["1", "3"])
def test_losses_after_a_warm_restart_are_those_after_a_cold_one_to_the_last_digit(stage: str) -> None:
    rootfs.installed(NEWEST)
    found: dict[str, Any] = json.loads(rootfs.output(NEWEST, "warm.py", stage).splitlines()[-1])
    assert "forked" in found, found
    ranks = [*found["first"], *found["cold"], *found["forked"]]
    # The output first: of a long dictionary pytest shows only the ends.
    assert [rank["output"] for rank in ranks if rank["code"]] == []
    assert len(ranks) == 6
    (said,) = found["said"]
    assert said.startswith("warm interpreter: ")
    for cold, forked in zip(found["cold"], found["forked"], strict=True):
        assert len(cold["losses"]) == 4
        assert forked["losses"] == cold["losses"]
        assert forked["imports"] < cold["imports"] / 10
    assert found["first"][0]["losses"] != found["cold"][0]["losses"], "a checkpoint was loaded"
