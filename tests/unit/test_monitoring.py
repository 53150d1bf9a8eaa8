"""Rules and dashboards of the chart: what they name exists, and what an alert links to is there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.status import State
from deepspeed_operator.controller import metrics
from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.job_metrics import JobMetrics

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/deepspeed-operator"
RULES: dict[str, Any] = yaml.safe_load((CHART / "files/rules.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARDS = sorted((CHART / "files/dashboards").glob("*.json"))
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "info": ("_info",), "gauge": ("",)}
PAIRS = {"(": ")", "[": "]", "{": "}"}


def served() -> set[str]:
    """The names of all samples that a replica may serve."""
    nobody: Any = SimpleNamespace()
    jobs = JobMetrics(JobCache(lambda _: None), nobody, nobody, with_loss=True)
    families = [*REGISTRY.collect(), *jobs.describe()]
    return {family.name + suffix for family in families for suffix in SUFFIXES.get(family.type, ("",))}


def targets(dashboard: Path) -> Iterator[tuple[str, str]]:
    """Yield each panel's title with each of its expressions."""
    board = json.loads(dashboard.read_text())
    for panel in board["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    yield from ((each["name"], each["query"]) for each in board["templating"]["list"] if each["type"] == "query")


EXPRESSIONS = [
    *((rule["alert"], rule["expr"]) for rule in ALERTS),
    *(each for dashboard in DASHBOARDS for each in targets(dashboard)),
]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_every_metric_that_is_asked_for_is_served(where: str, expression: str) -> None:
    assert metrics.LEADER is not None
    named = set(re.findall(r"\bdeepspeed_operator_\w+", expression))
    assert named, where
    assert named <= served()
    opened: list[str] = []
    for sign in re.sub(r'"[^"]*"', "", expression):
        if sign in PAIRS:
            opened.append(PAIRS[sign])
        elif sign in PAIRS.values():
            assert opened.pop() == sign, expression
    assert not opened, expression


@pytest.mark.parametrize(("label", "known"), [("state", {*State, "New"}), ("reason", {*Reason})])
def test_every_state_and_reason_that_is_asked_for_exists(label: str, known: set[str]) -> None:
    asked = re.findall(rf'\b{label}[=!]~?"([^"]+)"', " ".join(expression for _, expression in EXPRESSIONS))
    assert asked
    assert {value for each in asked for value in each.split("|")} <= known


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_every_alert_has_a_runbook_that_is_there(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert {"summary", "description", "runbook_url"} == set(rule["annotations"])
    anchors = [line.removeprefix("### ").lower() for line in (ROOT / "docs/operate.md").read_text().splitlines()]
    assert rule["annotations"]["runbook_url"].removeprefix("RUNBOOKS#") in anchors


def test_every_alert_and_panel_is_named_once() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))
    for dashboard in DASHBOARDS:
        board = json.loads(dashboard.read_text())
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
        assert len(set(places)) == len(places)


def test_every_metric_of_the_registry_is_on_a_dashboard_or_in_a_rule() -> None:
    shown = " ".join(expression for _, expression in EXPRESSIONS)
    own = {each.name for each in REGISTRY.collect() if each.name.startswith("deepspeed_operator_")}
    assert [name for name in sorted(own) if name not in shown] == []
