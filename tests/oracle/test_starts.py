"""Ranks that load different tags train on in real DeepSpeed, with parameters of none; and the agent's hook tells it."""

import json

import pytest

from deepspeed_operator.dsconfig.versions import SUPPORTED
from dev.versions import rootfs


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", [0, 1])
def test_ranks_that_load_different_tags_train_on_wrongly_and_are_told(stage: int) -> None:
    rootfs.installed(SUPPORTED[-1])
    printed = rootfs.output(SUPPORTED[-1], "starts.py", str(stage), "2,2", "2,1", "2,0")
    whole, apart, empty = json.loads(printed.splitlines()[-1])
    assert (whole["words"], whole["wrong"]) == ("", False)
    for each in (apart, empty):
        assert each["wrong"], each
        assert each["totals"] != whole["totals"], "DeepSpeed has come to the same parameters"
    told = "the ranks did not begin from one checkpoint: rank 0 (pod 0) loaded saved/global_step2 (step 2); "
    told += "rank 1 (pod 0) "
    assert apart["words"] == f"{told}loaded saved/global_step1 (step 1)"
    assert empty["words"] == f"{told}found none to load"
