"""A rank is killed within a save of DeepSpeed's own: which tag is complete, and that DeepSpeed then goes on."""

import json
from typing import Any

import pytest

from deepspeed_operator.dsconfig.versions import SUPPORTED
from dev.versions import rootfs

pytestmark = pytest.mark.timeout(900)
NEWEST = SUPPORTED[-1]
TORN = {"rank 1 has still to write", "within rank 1's last file"}


def test_a_run_goes_on_wherever_a_save_was_cut_off() -> None:
    rootfs.installed(NEWEST)
    said: dict[str, Any] = json.loads(rootfs.output(NEWEST, "checkpoints.py").splitlines()[-1])
    assert said["found"], said["errors"]
    for each in said["found"]:
        torn, written = each["point"] in TORN, each["point"] == "all is written"
        assert each["named"] == ("global_step2" if torn or written else "global_step1"), each
        assert bool(each["missing"]) == bool(each["said"]) == torn, each
        assert each["mended"] == each["path"] == ("global_step2" if written else "global_step1"), each
        assert each["steps"] == (3 if written else 2), "one step after the one that it went on from"
    assert {(each["stage"], each["point"]) for each in said["found"]} >= {
        (stage, at) for stage in (1, 2, 3) for at in TORN
    }
    assert [each.partition(":")[0] for each in said["unmended"]] == ["loaded", "FileNotFoundError"], said["unmended"]
