"""A directory of checkpoints that the next pods would not find is told before anything runs."""

from typing import Any

import pytest

from deepspeed_operator.api.untyped import Json
from deepspeed_operator.lint.checkpoint_volume import checkpoint_volume_findings
from tests.unit.reconcile.simulation import job

CLAIM: Json = {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}
SCRATCH: Json = {"name": "scratch", "emptyDir": {}}
OWN: Json = {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}}
DISK: Json = {"name": "disk", "hostPath": {"path": "/mnt/data"}}
MOUNTS = [
    {"name": "claim", "mountPath": "/data"},
    {"name": "scratch", "mountPath": "/data/scratch/"},
    {"name": "own", "mountPath": "/own"},
    {"name": "disk", "mountPath": "/disk"},
]


def findings(path: str, **spec: Any) -> list[str]:
    container = {"name": "trainer", "volumeMounts": MOUNTS}
    template: Json = {"spec": {"containers": [container], "volumes": [CLAIM, SCRATCH, OWN, DISK]}}
    made = job(**{"checkpoint": {"path": path}, "template": template, "failurePolicy": {}, **spec})
    return [f"{each.level.value} {each.path}: {each.message}" for each in checkpoint_volume_findings(made.spec)]


@pytest.mark.parametrize("path", ["/data", "/data/run/1", "/data/./scratches", "s3://bucket/run", "$(WHERE)/run"])
def test_what_outlives_the_pods_or_is_not_known_is_left_alone(path: str) -> None:
    assert findings(path) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/data/scratch/run", "on volume scratch, an emptyDir volume, which ends with its pod"),
        ("/data/scratch", "on volume scratch"),
        ("/own/run", "on volume own, an ephemeral volume"),
        ("/disk/run", "on volume disk, the node's own /mnt/data, unless all nodes mount the same there"),
        ("/database", "on no volume, but in the container's own file system"),
        ("checkpoints", "on no volume"),
    ],
)
def test_what_ends_with_a_pod_or_stays_with_a_node_is_a_warning(path: str, words: str) -> None:
    (said,) = findings(path)
    assert said.startswith(f"warning spec.checkpoint.path: {path} is {words}")


def test_an_argument_is_named_where_it_says_the_path() -> None:
    made = job(training={"script": "train.py", "args": ["--output_dir", "/out"]}, failurePolicy={})
    assert [each.path for each in checkpoint_volume_findings(made.spec)] == ["spec.training.args[0]"]


def test_a_run_that_never_begins_again_needs_no_volume() -> None:
    assert findings("/disk", failurePolicy={"maxRestarts": 0, "maxInfrastructureRestarts": 0}) == []


def test_a_job_that_does_not_say_where_it_saves_is_left_alone() -> None:
    assert list(checkpoint_volume_findings(job(failurePolicy={}).spec)) == []
