"""World, ports and digest follow from the job alone."""

import json
import math
from collections import Counter
from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.digest import config_digest
from deepspeed_operator.job.ports import FIRST, LAST, ports
from deepspeed_operator.job.world import world_of


def spec_of(limits: Any = None, **fields: Any) -> DeepSpeedJobSpec:
    template = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": limits}}]}}
    return DeepSpeedJobSpec.model_validate({"training": {"script": "a.py"}, "template": template, **fields})


@pytest.mark.parametrize(
    ("limits", "slots"),
    [
        (None, 1),
        ({}, 1),
        ({"cpu": 8, "memory": "1Gi", "example.com/nic": 4}, 1),
        ({"nvidia.com/gpu": 8}, 8),
        ({"nvidia.com/gpu": "8"}, 8),
        ({"nvidia.com/gpu": 0}, 1),
        ({"nvidia.com/gpu": "many"}, 1),
        ({"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": 1}, 3),
        ({"nvidia.com/gpu-h100": 8}, 8),
        ({"nvidia.com/gpumem": 8000, "nvidia.com/hostdev": 2}, 1),
        ({"amd.com/gpu": 4}, 4),
        ({"habana.ai/gaudi": 8}, 8),
        ({"gpu.intel.com/i915": 2}, 2),
        ({"huawei.com/Ascend910": 16}, 16),
        (["nvidia.com/gpu"], 1),
    ],
)
def test_slots_default_to_the_trainers_accelerators(limits: Any, slots: int) -> None:
    world = world_of(spec_of(limits, nodes=3))
    assert (world.nodes, world.slots_per_node, world.size, world.data_parallel) == (3, slots, 3 * slots, 3 * slots)


def test_declared_slots_win() -> None:
    assert world_of(spec_of({"nvidia.com/gpu": 0}, nodes=2, slotsPerNode=4)).size == 8


@pytest.mark.parametrize("template", [None, {}, {"spec": None}, {"spec": []}, {"spec": {"containers": {"a": 1}}}])
def test_a_template_of_any_shape_leaves_one_slot(template: Any) -> None:
    assert world_of(spec_of(template=template)).slots_per_node == 1


def test_sidecars_accelerators_are_not_the_trainers() -> None:
    containers = [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 3}}}, {"name": "trainer"}]
    assert world_of(spec_of(template={"spec": {"containers": containers}})).slots_per_node == 1


def test_ports_are_in_the_range_and_stay() -> None:
    for attempt in range(1, 2000):
        reserved = ports("5b2d1f6c-0000-4000-8000-000000000000", attempt)
        assert FIRST <= min(reserved.all) < max(reserved.all) <= LAST
        assert len(set(reserved.all)) == 2 + len(reserved.masters)
    assert ports("a", 1) == ports("a", 1)


def test_consecutive_attempts_have_different_ports() -> None:
    reserved = [port for attempt in range(1, 101) for port in ports("a", attempt).all]
    assert len(set(reserved)) == len(reserved)


def test_ports_of_different_jobs_are_spread() -> None:
    used = Counter(ports(f"uid-{number}", 1).agent for number in range(1000))
    assert max(used.values()) <= 7


def test_the_digest_is_about_what_the_configuration_says() -> None:
    one, same = json.loads('{"a": 1e-4, "b": {"c": [1, 2]}}'), json.loads('{"b":{"c":[1,2]},  "a":0.0001}')
    assert config_digest(one) == config_digest(same)
    assert config_digest(one) != config_digest({**one, "a": 0.0002})
    assert config_digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert config_digest({"a": math.inf}) != config_digest({"a": math.nan})  # which YAML and hjson can write
