"""A run goes on with one rank, and with two again, from what the agent has DeepSpeed's converter make universal."""

import json
from typing import Any

import pytest

from deepspeed_operator.dsconfig.versions import SUPPORTED
from dev.versions import rootfs

pytestmark = pytest.mark.timeout(900)
NEWEST = SUPPORTED[-1]


def test_losses_go_on_with_fewer_ranks_and_with_all_again() -> None:
    rootfs.installed(NEWEST)
    said: dict[str, Any] = json.loads(rootfs.output(NEWEST, "universal.py").splitlines()[-1])
    parts = [said[number] for number in "012"]
    for stage in ("1", "2", "3"):
        assert [part[stage]["from"] for part in parts] == [None, "global_step3_universal", "global_step6_universal"]
        assert [part[stage]["steps"] for part in parts] == [3, 6, 9]
        losses = [loss for part in parts for loss in part[stage]["losses"]]
        assert losses == pytest.approx(said["whole"][stage]["losses"], rel=1e-5), stage
