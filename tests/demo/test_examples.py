"""The examples hold together: what is embedded is the file beside it, and each job is what its text promises."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.job import DeepSpeedJob
from dev.demo.embed import EXAMPLES, PROGRAMS, embedded


def documents(path: Path) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(path.read_text())}


@pytest.mark.parametrize("name", PROGRAMS)
def test_manifest_embeds_its_program(name: str) -> None:
    path, program = EXAMPLES / name, (EXAMPLES / PROGRAMS[name]).read_text()
    assert documents(path)["ConfigMap"]["data"]["train.py"] == program
    assert path.read_text() == embedded(path.read_text(), program), "run `make generate`"
    assert f"# The program, as in examples/{PROGRAMS[name]}.\n" in path.read_text()


def test_second_example_differs_from_the_first_in_name_and_launcher_only() -> None:
    first, second = (documents(EXAMPLES / name) for name in ("quickstart.yaml", "quickstart-deepspeed-launcher.yaml"))
    assert first["ConfigMap"] == second["ConfigMap"]
    assert second["DeepSpeedJob"]["spec"]["training"].pop("launcher") == "DeepSpeed"
    assert first["DeepSpeedJob"]["spec"] == second["DeepSpeedJob"]["spec"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_example_is_a_job_with_a_configuration(path: Path) -> None:
    job = DeepSpeedJob.model_validate(documents(path)["DeepSpeedJob"])
    assert job.spec.ds_config


def test_quickstart_job_is_short() -> None:
    job, _, _ = (EXAMPLES / "quickstart.yaml").read_text().partition("---\n")
    assert len(job.splitlines()) <= 20
