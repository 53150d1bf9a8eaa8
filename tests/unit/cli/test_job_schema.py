"""What a real API server refuses (tests/e2e/test_crd.py), dsjob refuses without one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.api.crd import constraints, root_schema
from deepspeed_operator.cli import job_schema as schema
from deepspeed_operator.cli.job_schema import schema_findings
from deepspeed_operator.cli.rules import HOLDS, is_transition
from tests.e2e.full_job import FULL
from tests.e2e.test_crd import CONSTRAINTS, RULES, breaking, edited, spec_of

OF_SPEC = [constraint for constraint in CONSTRAINTS if constraint[0].startswith("spec")]


@pytest.mark.parametrize(("path", "kind", "bound"), OF_SPEC)
def test_a_spec_that_breaks_a_constraint(path: str, kind: str, bound: Any) -> None:
    said = schema_findings(breaking(path, kind, bound))
    assert path.replace("[]", "[0]") in [finding.path for finding in said]
    assert all(finding.fix for finding in said if not finding.message.startswith("set exactly"))


@pytest.mark.parametrize(("body", "message"), RULES)
def test_a_job_that_breaks_a_rule(body: dict[str, Any], message: str) -> None:
    assert [finding for finding in schema_findings(body) if str(finding).startswith(message)]


def test_the_committed_constraints_are_those_of_the_models() -> None:
    committed = Path(schema.__file__).with_name("constraints.json").read_text()
    assert json.loads(committed) == constraints(), "run `make generate`"


def test_no_rule_is_missing() -> None:
    rules: list[str] = []
    pending: list[Any] = [root_schema()]
    while pending:
        node = pending.pop()
        rules += [rule["rule"] for rule in node.get("x-kubernetes-validations", [])]
        pending += [*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])]
    assert {rule for rule in rules if not is_transition(rule)} == set(HOLDS)


@pytest.mark.parametrize(
    "body",
    [
        FULL,
        spec_of(),
        spec_of(nodes=None, image=None, training={"script": "a.py", "module": None, "args": None}),
        {**spec_of(), "metadata": {"generateName": "a-"}},
        spec_of(dsConfig={"z": 1, "a": {"b": [1.5, None, "auto"]}}),
        spec_of(sharedMemory=1024),
    ],
)
def test_a_job_that_the_server_takes_has_no_findings(body: dict[str, Any]) -> None:
    assert schema_findings(body) == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec.nodes", "2", 'must be a whole number, not "2"'),
        ("spec.nodes", True, "must be a whole number, not true"),
        ("spec.nodes", 1.5, "must be a whole number, not 1.5"),
        ("spec.suspend", "true", 'must be true or false, not "true"'),
        ("spec.training.args", ["a", 1], "must be a string, not 1"),
        ("spec.training.args", [None], "must be a string, not null"),
        ("spec.training", [], "must be an object, not []"),
        ("spec.image", {}, "must be a string, not {}"),
        ("spec.sharedMemory", True, "must be a quantity, not true"),
        ("spec.sharedMemory", 1.5, "must be a quantity, not 1.5"),
        ("spec.dsConfig", "{}", 'must be an object, not "{}"'),
        ("spec.deepspeedVersion", "0.19.8\n", "does not match"),
        ("spec.training.luncher", "Ranks", "not a field of spec.training: kubectl refuses it."),
    ],
)
def test_a_value_of_the_wrong_type(path: str, value: Any, message: str) -> None:
    said = schema_findings(edited(FULL, path, value))
    assert [finding for finding in said if finding.path.startswith(path) and message in finding.message]


def test_the_nearest_field_or_word_is_offered() -> None:
    said = schema_findings(spec_of(nods=1, training={"script": "a", "launcher": "deepspeed"}))
    assert [finding.fix for finding in said] == ["Write DeepSpeed.", "Did you mean nodes?"]


def test_everything_is_said_at_once() -> None:
    said = schema_findings({"metadata": {"name": "A"}, "spec": {"nodes": 0, "training": {"args": "x"}, "x": 1}})
    assert len(said) == 4
    assert all(re.fullmatch(r"[\w.]+", finding.path) for finding in said)
