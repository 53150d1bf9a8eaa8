"""What a job gets of the platform team's defaults, and what stays its author's."""

from typing import Any

import pytest

from deepspeed_operator.api.fleet import Fleet, JobDefaults
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.job.fleet_defaults import with_defaults

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
ALL: dict[str, Any] = {
    "image": "registry.example.com/llm:1",
    "network": {"profile": "InfiniBand", "interface": "eth0"},
    "sharedMemory": "16Gi",
    "nodeSelector": {"pool": "h100", "zone": "a"},
    "tolerations": [GPU],
    "priorityClassName": "training",
    "queueName": "team-a",
    "failurePolicy": {"maxRestarts": 5, "maxInfrastructureRestarts": 50},
}
PATHS = [
    "spec.image",
    "spec.sharedMemory",
    "spec.template.spec.nodeSelector",
    "spec.template.spec.tolerations",
    "spec.template.spec.priorityClassName",
    "spec.scheduling.queueName",
    "spec.network.profile",
    "spec.network.interface",
    "spec.failurePolicy.maxRestarts",
    "spec.failurePolicy.maxInfrastructureRestarts",
]


def job(labels: dict[str, str] | None = None, **spec: Any) -> DeepSpeedJob:
    metadata = {"name": "a", "labels": labels or {}}
    given = {"nodes": 2, "training": {"script": "train.py"}, **spec}
    return DeepSpeedJob.model_validate({"metadata": metadata, "spec": given})


def filled(defaults: dict[str, Any], /, **spec: Any) -> tuple[dict[str, Any], list[str]]:
    """Return what of spec is set beside nodes and training, and the paths of what was added."""
    full, added = with_defaults(job(**spec), JobDefaults.model_validate(defaults))
    said = full.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return {key: value for key, value in said.items() if key not in {"nodes", "training"}}, (
        added.paths if added is not None else []
    )


def test_a_job_that_says_nothing_gets_everything() -> None:
    template = {
        "spec": {
            "nodeSelector": {"pool": "h100", "zone": "a"},
            "tolerations": [GPU],
            "priorityClassName": "training",
        }
    }
    assert filled(ALL) == (
        {
            "image": "registry.example.com/llm:1",
            "network": {"profile": "InfiniBand", "interface": "eth0"},
            "sharedMemory": "16Gi",
            "template": template,
            "scheduling": {"queueName": "team-a"},
            "failurePolicy": {"maxRestarts": 5, "maxInfrastructureRestarts": 50},
        },
        PATHS,
    )


def test_what_the_job_says_wins_and_the_rest_is_added_beside_it() -> None:
    own: dict[str, Any] = {
        "image": "mine:1",
        "network": {"profile": "Auto"},
        "sharedMemory": "1Gi",
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "nodeSelector": {"pool": "mine"},
                "tolerations": [{"key": "mine"}, GPU],
                "priorityClassName": "high",
            },
        },
        "scheduling": {"queueName": "mine"},
        "failurePolicy": {"maxInfrastructureRestarts": 20},
    }
    said, paths = filled(ALL, **own)
    template = {
        **own["template"],
        "spec": {**own["template"]["spec"], "nodeSelector": {"pool": "mine", "zone": "a"}},
    }
    assert said == {
        **own,
        "network": {"profile": "Auto", "interface": "eth0"},
        "template": template,
        "failurePolicy": {"maxRestarts": 5, "maxInfrastructureRestarts": 20},
    }
    assert paths == [
        "spec.template.spec.nodeSelector",
        "spec.network.interface",
        "spec.failurePolicy.maxRestarts",
    ]


def test_nothing_is_added_where_nothing_is_left_open() -> None:
    same = job(image="mine:1")
    full, added = with_defaults(same, JobDefaults(image="other"))
    assert full is same
    assert added is None


def test_the_job_itself_is_not_changed() -> None:
    mine = job(template={"spec": {"nodeSelector": {"a": "b"}, "tolerations": []}})
    before = mine.model_dump_json()
    with_defaults(mine, JobDefaults.model_validate(ALL))
    assert mine.model_dump_json() == before


@pytest.mark.parametrize(
    ("defaults", "own"),
    [
        ({"image": "other"}, {"template": {"spec": {"containers": [{"name": "trainer", "image": "mine"}]}}}),
        (
            {"sharedMemory": "1Gi"},
            {
                "template": {
                    "spec": {
                        "containers": [{"name": "trainer", "volumeMounts": [{"name": "a", "mountPath": "/dev/shm"}]}]
                    }
                }
            },
        ),
        ({"queueName": "other"}, {"labels": {"kueue.x-k8s.io/queue-name": "mine"}}),
        ({"network": {"profile": "InfiniBand"}}, {"nodes": 1}),
        # What is no pod template is refused as its author wrote it.
        ({"nodeSelector": {"a": "b"}}, {"template": {"spec": []}}),
        ({"nodeSelector": {"a": "b"}}, {"template": {"spec": {"nodeSelector": ["a"]}}}),
        ({"tolerations": [GPU]}, {"template": {"spec": {"tolerations": "all"}}}),
    ],
)
def test_a_default_keeps_off_what_is_said_elsewhere(defaults: dict[str, Any], own: dict[str, Any]) -> None:
    mine = job(**own)
    assert with_defaults(mine, JobDefaults.model_validate(defaults)) == (mine, None)


def test_a_null_in_the_template_says_nothing() -> None:
    said, paths = filled({"nodeSelector": {"a": "b"}}, template={"spec": {"nodeSelector": None}})
    assert said["template"] == {"spec": {"nodeSelector": {"a": "b"}}}
    assert paths == ["spec.template.spec.nodeSelector"]


def test_what_a_run_has_makes_the_same_job_again() -> None:
    full, added = with_defaults(job(), JobDefaults.model_validate(ALL))
    assert added is not None
    kept = type(added).model_validate_json(added.model_dump_json(by_alias=True, exclude_none=True))
    assert with_defaults(job(), kept) == (full, added)


def test_a_namespace_wins_over_the_install_field_by_field() -> None:
    fleet = Fleet.model_validate(
        {
            "defaults": ALL,
            "namespaces": {
                "team-b": {
                    "defaults": {
                        "network": {"profile": "RoCE"},
                        "nodeSelector": {"pool": "b200"},
                        "tolerations": [{"key": "b200"}],
                        "failurePolicy": {"maxRestarts": 0},
                    }
                }
            },
        }
    )
    assert fleet.defaults_of("team-a") == JobDefaults.model_validate(ALL)
    named = {
        **ALL,
        "network": {"profile": "RoCE", "interface": "eth0"},
        "nodeSelector": {"pool": "b200", "zone": "a"},
        "tolerations": [{"key": "b200"}, GPU],
        "failurePolicy": {"maxRestarts": 0, "maxInfrastructureRestarts": 50},
    }
    assert fleet.defaults_of("team-b") == JobDefaults.model_validate(named)
