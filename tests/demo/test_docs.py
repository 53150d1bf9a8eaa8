"""The documentation keeps up with the code."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from deepspeed_operator.api.crd import root_schema
from deepspeed_operator.api.names import API_VERSION
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.controller import metrics
from deepspeed_operator.controller.cache import JobCache
from deepspeed_operator.controller.job_metrics import JobMetrics

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
YAML = re.compile(r"^```yaml[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A page may show a whole job, or what is below a field of its spec or status.
FIELDS: dict[str, Any] = root_schema()["properties"]
FRAGMENTS = {**FIELDS["spec"]["properties"], **FIELDS["status"]["properties"], **FIELDS}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained(reason: Reason) -> None:
    assert f"`{reason}`" in (ROOT / "docs/failures.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not missing


def test_readme_shows_the_quickstart_job() -> None:
    job = (ROOT / "examples/quickstart.yaml").read_text().partition("---\n")[0].partition("\n")[2]
    assert f"```yaml\n{job}```\n" in (ROOT / "README.md").read_text()


def unknown(value: object, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The fields that the CRD does not have."""
    if isinstance(value, list):
        for each in cast("list[object]", value):
            yield from unknown(each, schema["items"], path)
    elif isinstance(value, dict) and "properties" in schema:
        for name, child in cast("dict[str, object]", value).items():
            if name not in schema["properties"]:
                yield f"{path}.{name}"
            else:
                yield from unknown(child, schema["properties"][name], f"{path}.{name}")


def test_jobs_in_the_pages_have_fields_that_exist() -> None:
    blocks = [block for page in PAGES for block in YAML.findall(page.read_text())]
    shown: list[Any] = [document for block in blocks for document in yaml.safe_load_all(block)]
    objects = [cast("dict[str, Any]", each) for each in shown if isinstance(each, dict)]
    ours = [
        each for each in objects if each.keys() <= FRAGMENTS.keys() and each.get("apiVersion") in {None, API_VERSION}
    ]
    assert len(ours) >= 8
    assert [path for each in ours for path in unknown(each, {"properties": FRAGMENTS})] == []


def test_every_metric_is_listed() -> None:
    listed = set(re.findall(r"`(deepspeed_operator_\w+)`", (ROOT / "docs/operate.md").read_text()))
    families = [
        each for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase) for each in metric.collect()
    ]
    nobody: Any = SimpleNamespace()
    families += JobMetrics(JobCache(lambda _: None), nobody, nobody, with_loss=True).describe()
    assert listed == {f"{family.name}_info" if family.type == "info" else family.name for family in families}


def test_the_rights_of_the_operator_are_those_of_the_chart() -> None:
    section = (ROOT / "docs/security.md").read_text().partition("## What the operator may do")[2].partition("\n## ")[0]
    table = re.findall(r"^\| ([a-z/, ]+) \| ([a-z ]+) \| ", section, re.MULTILINE)
    listed = {resource: set(verbs.split()) for names, verbs in table for resource in names.split(", ")}
    chart = yaml.safe_load_all((ROOT / "tests/golden/chart/default.yaml").read_text())
    (role,) = (
        each for each in chart if each["kind"] == "ClusterRole" and each["metadata"]["name"].endswith("operator")
    )
    granted: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            granted.setdefault(resource, set()).update(rule["verbs"])
    assert listed == {**granted, "resource": {"verbs"}}
