"""What docs/fleet.md shows a platform team is what the operator takes."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from deepspeed_operator.api.fleet import FailurePolicyDefaults, JobDefaults, JobLimits, NetworkDefaults
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.settings import settings_from
from deepspeed_operator.job.fleet_defaults import with_defaults
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.lint.fleet_limits import limit_findings

PAGE = (Path(__file__).parents[3] / "docs/fleet.md").read_text()
DEFAULTS = PAGE.partition("## Limits")[0]
EXAMPLE, LIMITS = re.findall(r"^```yaml\n(fleet:\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def job(**spec: Any) -> DeepSpeedJob:
    given = {"nodes": 2, "training": {"script": "train.py"}, **spec}
    return DeepSpeedJob.model_validate({"metadata": {"name": "pretrain"}, "spec": given})


def test_its_example_is_taken() -> None:
    fleet = settings_from(["--fleet", json.dumps(yaml.safe_load(EXAMPLE)["fleet"])], {}).fleet
    of_team, added = with_defaults(job(network={"profile": "Auto"}), fleet.defaults_of("team-a"))
    assert added is not None
    assert of_team.queue_name == "team-a"
    assert of_team.spec.failure_policy is not None
    policy = of_team.spec.failure_policy
    assert (policy.max_restarts, policy.max_infrastructure_restarts) == (3, 50)
    assert "spec.network.profile" not in added.paths
    _, of_others = with_defaults(job(), fleet.defaults_of("team-b"))
    assert of_others is not None
    assert "spec.image" not in of_others.paths


def test_its_paths_are_what_such_a_job_shows() -> None:
    said: list[str] = json.loads(PAGE.partition("{.status.run.defaults.paths}'\n")[2].partition("\n")[0])
    fleet = settings_from(["--fleet", json.dumps(yaml.safe_load(EXAMPLE)["fleet"])], {}).fleet
    own = {"network": {"interface": "eth1"}, "sharedMemory": "1Gi"}
    selects = {"spec": {"nodeSelector": {"example.com/pool": "mine"}}}
    _, added = with_defaults(job(**own, template=selects), fleet.defaults_of("team-b"))
    assert added is not None
    assert added.paths == said


def test_it_lists_every_default() -> None:
    listed = {each.partition(".")[0] for each in re.findall(r"^\| `([\w.]+)` \| `spec", DEFAULTS, re.MULTILINE)}
    models = (JobDefaults, NetworkDefaults, FailurePolicyDefaults)
    names, network, _ = ({each.alias for each in model.model_fields.values()} for model in models)
    assert listed == names
    assert {each.partition(".")[2] for each in re.findall(r"`(network\.\w+)` \| `spec", DEFAULTS)} == network


def test_a_job_beyond_its_limits_is_told_as_it_shows() -> None:
    fleet = settings_from(["--fleet", json.dumps(yaml.safe_load(LIMITS)["fleet"])], {}).fleet
    metadata = {"name": "pretrain", "namespace": "team-a"}
    large = DeepSpeedJob.model_validate({"metadata": metadata, "spec": {"nodes": 128, "training": {"script": "a.py"}}})
    (found,) = limit_findings(large, Installation("", fleet=fleet))
    assert f"1 error, nothing was created: {found}\n" in PAGE


def test_it_lists_every_limit() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \| [^|]*\|$", PAGE.partition("## Limits")[2], re.MULTILINE))
    assert listed == {each.alias for each in JobLimits.model_fields.values()}
