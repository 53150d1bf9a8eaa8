"""On which nodes a pod may land, by the rules of Kubernetes' scheduler."""

from typing import Any

import pytest

from deepspeed_operator.job.node_selection import LabelledNode, demand_of

NODE = LabelledNode("gpu-7", {"pool": "gpu", "zone": "a", "gpus": "8", "odd": "eight"})


def demanded(selector: Any = None, *terms: dict[str, Any]) -> Any:
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}} if terms else None
    return {"nodeSelector": selector, "affinity": affinity}


def by(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(operator: str, name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}


@pytest.mark.parametrize(
    ("pod", "admitted"),
    [
        ({}, True),
        (demanded(), True),
        (demanded({"pool": "gpu"}), True),
        (demanded({"pool": "gpu", "zone": "b"}), False),
        (demanded({"rack": "1"}), False),
        (demanded(None, by("zone", "In", "b", "a")), True),
        (demanded(None, by("zone", "In", "b")), False),
        (demanded(None, by("zone", "NotIn", "b")), True),
        (demanded(None, by("rack", "NotIn", "1")), True),
        (demanded(None, by("zone", "NotIn", "a")), False),
        (demanded(None, by("zone", "Exists")), True),
        (demanded(None, by("rack", "Exists")), False),
        (demanded(None, by("rack", "DoesNotExist")), True),
        (demanded(None, by("zone", "DoesNotExist")), False),
        (demanded(None, by("gpus", "Gt", "7")), True),
        (demanded(None, by("gpus", "Gt", "8")), False),
        (demanded(None, by("gpus", "Lt", "9")), True),
        (demanded(None, by("odd", "Gt", "7")), False),
        (demanded(None, by("rack", "Lt", "7")), False),
        (demanded(None, by("zone", "Resembles", "a")), False),
        (demanded(None, by("zone", "In", "b"), by("pool", "Exists")), True),
        (demanded({"pool": "cpu"}, by("zone", "In", "a")), False),
        (demanded(None, {**by("zone", "In", "a"), **named("In", "gpu-8")}), False),
        (demanded(None, named("In", "gpu-7")), True),
        (demanded(None, named("NotIn", "gpu-7")), False),
        (demanded(None, {}), False),
    ],
)
def test_a_node_is_admitted(pod: Any, admitted: bool) -> None:
    assert demand_of(pod).admits(NODE) is admitted


@pytest.mark.parametrize("affinity", [7, [], {"nodeAffinity": []}])
def test_what_is_no_affinity_demands_nothing(affinity: Any) -> None:
    assert demand_of({"affinity": affinity}).admits(NODE)
