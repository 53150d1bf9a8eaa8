"""Every golden file holds a job and, below it, the objects that we make of it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.job.image import given_accelerator
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.job.world import world_of
from deepspeed_operator.lint.template_rules import template_findings
from deepspeed_operator.reconcile.admission.configuration import Configuration, configuration
from deepspeed_operator.reconcile.observe.observed import Facts, Observed, content_of
from deepspeed_operator.render.attempt import Attempt
from tests.unit.render.yaml_text import to_yaml

GOLDEN = Path(__file__).parents[2] / "golden"
MARK = "# Rendered from the above; `make generate` writes it again.\n"
CASES = sorted(GOLDEN.glob("*.yaml"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
INSTALLATION = Installation("UEsFBg==", "registry.example.com/worker:1", "0.19.8")


def rendered(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Render attempt 3 of the first document; a second one is the ConfigMap with its configuration."""
    job = DeepSpeedJob.model_validate(written[0])
    key = job.spec.ds_config_from.key if job.spec.ds_config_from is not None else None
    given = {document["metadata"]["name"]: content_of(document["data"], key, NOW) for document in written[1:]}
    source = configuration(Observed(job, (), Facts(config_maps=given), NOW))
    assert source is None or isinstance(source, Configuration)
    given = given_accelerator(job.spec, INSTALLATION)
    world = world_of(job.spec).model_copy(update={"accelerator": given})
    attempt = Attempt(job, 3, world, source.text if source else None, INSTALLATION)
    indices = range(job.spec.nodes)
    addresses = {index: f"10.244.0.{index + 5}" for index in indices}
    pods = [attempt.pod(index) for index in indices]
    return [attempt.service(), attempt.config_map(), attempt.secret(), *pods, *attempt.endpoint_slices(addresses)]


def hold(path: Path, request: pytest.FixtureRequest, made: Callable[[str], list[dict[str, Any]]]) -> None:
    """Compare what is below the mark of a golden file with what is made of the text above it."""
    written, mark, expected = path.read_text().partition(MARK)
    assert mark, "a golden file has its mark"
    actual = to_yaml(made(written))
    if request.config.getoption("--update-golden"):
        path.write_text(written + MARK + actual)
    else:
        assert actual == expected


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_rendered_objects_are_the_golden_ones(path: Path, request: pytest.FixtureRequest) -> None:
    hold(path, request, lambda written: rendered(list(yaml.safe_load_all(written))))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_jobs_of_golden_files_are_accepted(path: Path) -> None:
    job = DeepSpeedJob.model_validate(next(iter(yaml.safe_load_all(path.read_text()))))
    assert not [str(finding) for finding in template_findings(job.spec, INSTALLATION) if finding.level == "error"]
