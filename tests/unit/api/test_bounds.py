"""What is too large is refused: all of it at once, by its path, and at no cost that grows with it."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from deepspeed_operator.api.bounds import LARGEST, excess, free_parts, weight, without_free_parts
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.bodies import Bodies
from deepspeed_operator.controller.marker import Marker

POD = "spec.template.spec"
TRAINER = f"{POD}.containers[0]"


def nested(depth: int, *, lists: bool = False) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


def spec_of(pod: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"training": {"script": "train.py"}, "template": {"spec": pod or {}}, **more}


def paths(spec: dict[str, Any]) -> list[str]:
    return [finding.path for finding in excess(free_parts(spec))]


LARGE: list[tuple[dict[str, Any], str]] = [
    ({"containers": [{"name": "trainer", "env": [{"name": "A"}] * 1001}]}, f"{TRAINER}.env"),
    ({"containers": [{"name": "trainer"}] * 51}, f"{POD}.containers"),
    ({"initContainers": [{"name": "a"}] * 51}, f"{POD}.initContainers"),
    ({"volumes": [{"name": "a"}] * 201}, f"{POD}.volumes"),
    ({"tolerations": [{}] * 1001}, f"{POD}.tolerations"),
    ({"affinity": nested(60)}, "spec.template"),
    ({"affinity": nested(9000, lists=True)}, "spec.template"),
    ({"nodeSelector": {"a": "x" * LARGEST}}, "spec.template"),
    ({"nodeSelector": {"a": "é" * (LARGEST // 2)}}, "spec.template"),
    ({"nodeSelector": {str(number): 1 for number in range(100_000)}}, "spec.template"),
]


@pytest.mark.parametrize(("pod", "where"), LARGE)
def test_what_of_a_template_is_too_large(pod: dict[str, Any], where: str) -> None:
    assert paths(spec_of(pod)) == [where]


def test_what_fits_is_not_refused() -> None:
    containers = [{"name": f"c{number}", "env": [{"name": "A"}] * 300} for number in range(20)]
    assert paths(spec_of({"containers": containers, "volumes": [{}] * 200}, dsConfig={"a": [0] * 5000})) == []
    assert paths(spec_of(dsConfig=nested(40), model={"fromConfig": {"a": "x" * (LARGEST - 100)}})) == []


def test_everything_is_said_at_once_with_what_to_do() -> None:
    pod: dict[str, Any] = {"containers": [{"env": [{}] * 1001}], "volumes": [{}] * 201}
    spec = spec_of(pod, dsConfig={"a": "x" * LARGEST}, model={"fromConfig": nested(60)})
    found = excess(free_parts(spec))
    assert [each.path for each in found] == [
        f"{POD}.volumes",
        f"{TRAINER}.env",
        "spec.dsConfig",
        "spec.model.fromConfig",
    ]
    assert all(each.fix.startswith("Write ") for each in found)
    assert not any(free_parts(without_free_parts(spec)).values())


def test_a_job_is_read_without_what_is_too_large_and_says_so() -> None:
    body = {
        "metadata": {"name": "a", "uid": "u"},
        "spec": spec_of({"x": [{}] * 450_000}),
        "status": {"warnings": 3},
    }
    job, size = Bodies(Marker(None)).job(body)
    assert job.spec.template is None
    assert job.status.warnings == 3
    assert [each.path for each in job.excess] == [f"{POD}.x", "spec.template"]
    assert size < 10_000
    usual = spec_of({"containers": [{"name": "trainer"}]})
    assert Bodies(Marker(None)).job({**body, "spec": usual})[0].spec.template == usual["template"]


def test_no_field_of_a_job_can_say_that_it_was_read_without_something() -> None:
    said = {"metadata": {"name": "a"}, "spec": spec_of(), "_excess": ["a"], "excess": ["a"]}
    assert DeepSpeedJob.model_validate(said).excess == ()


def test_the_weight_is_about_the_memory_that_a_value_takes() -> None:
    for text in ("[" + "{}," * 10_000 + "0]", json.dumps(dict.fromkeys(map(str, range(10_000)))), '["xyz"]'):
        parsed: Any = json.loads(text)
        assert 0.3 < weight(parsed) / _memory(parsed) < 3
    assert weight(nested(5000)) > 0


def _memory(value: Any) -> int:
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = [part for item in cast("dict[str, Any]", value).items() for part in item]
    elif isinstance(value, list):
        inner = cast("list[Any]", value)
    return sys.getsizeof(cast("object", value)) + sum(_memory(each) for each in inner)


def test_the_examples_are_far_from_every_bound() -> None:
    for path in Path("examples").glob("*.yaml"):
        assert path.stat().st_size < LARGEST // 10
