"""The chart's rules and dashboards; tests/unit/test_monitoring.py says what they name."""

from pathlib import Path

import yaml

from tests.e2e.test_chart import CHART, DEFAULT, objects, template


def test_rules_and_dashboards_are_rendered_as_they_are_written(helm: Path) -> None:
    runbooks, labels = "https://wiki.example.com/deepspeed", {"release": "prometheus"}
    rule = {"enabled": True, "labels": labels, "runbooks": runbooks}
    values = {**DEFAULT, "metrics": {"prometheusRule": rule, "dashboards": {"enabled": True}}}
    rendered = objects(template(helm, values).stdout)
    (rules,) = (document for document in rendered if document["kind"] == "PrometheusRule")
    written = (CHART / "files/rules.yaml").read_text().replace("RUNBOOKS", runbooks)
    assert rules["spec"] == yaml.safe_load(written)
    assert rules["metadata"]["labels"].items() >= labels.items()
    (dashboards,) = (document for document in rendered if document["metadata"]["name"].endswith("-dashboards"))
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboards["data"] == {path.name: path.read_text() for path in (CHART / "files/dashboards").iterdir()}
