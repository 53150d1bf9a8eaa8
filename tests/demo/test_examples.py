"""The examples hold together: what is embedded is the file beside it, and each job is what its text promises."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.job import DeepSpeedJob
from tests.demo.embed import EMBEDDING, EXAMPLES, embedded


def documents(path: Path) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(path.read_text())}


@pytest.mark.parametrize("path", EMBEDDING, ids=lambda path: path.name)
def test_manifest_embeds_train_py(path: Path) -> None:
    program = (EXAMPLES / "train.py").read_text()
    assert documents(path)["ConfigMap"]["data"]["train.py"] == program
    assert path.read_text() == embedded(path.read_text(), program), "run `make generate`"


def test_second_example_differs_from_the_first_in_name_and_launcher_only() -> None:
    first, second = (documents(path) for path in EMBEDDING)
    assert first["ConfigMap"] == second["ConfigMap"]
    assert second["DeepSpeedJob"]["spec"]["training"].pop("launcher") == "DeepSpeed"
    assert first["DeepSpeedJob"]["spec"] == second["DeepSpeedJob"]["spec"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_example_is_a_job_with_a_configuration(path: Path) -> None:
    job = DeepSpeedJob.model_validate(documents(path)["DeepSpeedJob"])
    assert job.spec.ds_config


def test_quickstart_job_is_short() -> None:
    job, _, _ = EMBEDDING[0].read_text().partition("---\n")
    assert len(job.splitlines()) <= 20
