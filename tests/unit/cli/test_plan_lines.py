"""What `dsjob plan` says so that a newcomer knows what it means, and what --apply writes."""

import json
from typing import Any

import pytest
import yaml

from tests.unit.cli.command import dsjob
from tests.unit.cli.plans import CONFIG, job, line, recorded, selector, shown, sources


@pytest.mark.parametrize("memory", ["40Gi", "60Gi"])
def test_apply_writes_the_smallest_change(memory: str) -> None:
    long = job(gpuMemory=memory, model={"sequenceLength": 4096})
    found, out = recorded(long), line(shown(long), "The smallest change")
    number = found["smallestChangeNumber"]
    if "activation checkpointing in the script" in found["smallestChange"]:
        assert (number, "--apply" in out) == (None, False)
        return
    assert out.endswith(f": {found['smallestChange']} (--apply {number} writes it)")
    written = dsjob("plan", "-", "--apply", number, stdin=long).stdout
    path, value = found["smallestChange"].partition(" with ")[0].split(": ")
    inside: Any = yaml.safe_load(written)["spec"]["dsConfig"]
    for key in path.split("."):
        inside = inside[key]
    assert json.dumps(inside) == value


def test_of_what_may_fit_and_what_is_unknown_the_plan_says_why() -> None:
    out = shown(json.dumps(CONFIG), "--parameters", "7e9", "--slots", 8, "--gpu-memory", 40)
    assert "  may fit: as predicted, or within the prediction's error of 10%" in out
    unsaid = job(template=selector("NVIDIA-A100-SXM4-40GB"), model={"activationCheckpointing": None})
    assert "  unknown: too large as predicted, and what is assumed could need less" in shown(unsaid)
    sure = shown(job(template=selector("NVIDIA-A100-SXM4-80GB")))
    assert "  may fit: " not in sure
    assert "  unknown: " not in sure


def test_an_offloaded_optimizer_is_deepspeeds_for_the_host() -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    for name, expected in (("AdamW", "DeepSpeedCPUAdam"), ("Lion", "DeepSpeedCPULion")):
        config = {**CONFIG, "optimizer": {"type": name}, "zero_optimization": zero}
        assert sources(recorded(json.dumps(config), "--parameters", "7e9"))["optimizer"][0] == expected
    own = {**CONFIG, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}, "zero_optimization": zero}
    assert sources(recorded(json.dumps(own), "--parameters", "7e9"))["optimizer"][0] == "torch.optim.AdamW"


def test_one_rank_and_little_traffic_are_written_as_such() -> None:
    assert ": 1 × 1 rank, " in shown(json.dumps(CONFIG), "--parameters", "1M")
    assert sources(recorded(json.dumps(CONFIG), "--parameters", "1M"))["ranks"][1] == "Assumed"
    assert "ranks" not in sources(recorded(json.dumps(CONFIG), "--parameters", "1M", "--slots", 1))
    out = shown(json.dumps(CONFIG), "--parameters", "1M", "--slots", 2)
    assert "2.00 MB  parameters after the step" in out
    assert "0.00 GB" not in out


def test_overlap_comm_makes_a_step_shorter_at_most_and_costs_no_advice() -> None:
    config = {**CONFIG, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 16}
    overlapping = {**config, "zero_optimization": {"stage": 2, "overlap_comm": True}}
    options = ("--parameters", "3e9", "--nodes", 2, "--network", 1)
    plain, found = (recorded(json.dumps(each), *options) for each in (config, overlapping))
    assert found["step"]["seconds"] == pytest.approx(plain["step"]["seconds"])
    assert found["step"]["unproven"] == []
    assert 0 < found["step"]["hidden"] <= found["step"]["communication"]
    assert plain["step"]["hidden"] == 0
    out = shown(json.dumps(overlapping), *options)
    least, most = found["step"]["seconds"] - found["step"]["hidden"], found["step"]["seconds"]
    assert line(out, f"Time of a step: {least:.3g} to {most:.3g} s, ")
    assert line(out, "overlap_comm may hide up to ")
    assert len(found["alternatives"]) > 1
    for each in found["alternatives"]:
        same = [other for other in plain["alternatives"] if other["change"] == each["change"]]
        assert all(each["gain"] <= other["gain"] + 0.001 for other in same)
