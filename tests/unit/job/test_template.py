"""The pod template as the rest of the code reads it, whatever is in it."""

import pickle
from typing import Any

import pytest

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.job.template import PodTemplate, VolumeSource, pod_template

ONE, OTHER = {"name": "a"}, {"name": "b"}


def spec(template: dict[str, Any] | None = None) -> DeepSpeedJobSpec:
    return DeepSpeedJobSpec.model_validate({"training": {"script": "train.py"}, "template": template})


def parse(*containers: Any, **pod: Any) -> PodTemplate:
    return PodTemplate.parse({"spec": {"containers": list(containers), **pod}})


@pytest.mark.parametrize(
    ("containers", "index"),
    [([], None), ([ONE], 0), ([ONE, OTHER], None), ([ONE, {"name": "trainer"}], 1), (["no container", ONE], 1)],
)
def test_the_trainer_is_the_container_of_that_name_or_the_only_one(containers: list[Any], index: int | None) -> None:
    template = parse(*containers)
    assert template.trainer_index == index
    assert template.trainer == ({} if index is None else containers[index])
    assert template.trainer_path == f"spec.template.spec.containers[{index or 0}]"


WRONG: list[Any] = [None, 7, "text", True, [], {}, [7], {"a": 7}, [{"a": []}], [[{}]]]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_value_of_a_wrong_type_counts_as_absent(wrong: Any) -> None:
    fields = ("resources", "env", "envFrom", "volumeMounts", "securityContext")
    for template in (
        PodTemplate.parse({"spec": wrong, "metadata": wrong}),
        PodTemplate.parse({"spec": {"containers": wrong, "volumes": wrong, "affinity": wrong, "nodeSelector": wrong}}),
        parse(dict.fromkeys(fields, wrong)),
        parse({"resources": {"limits": wrong, "requests": wrong, "claims": wrong}}, volumes=[{"projected": wrong}]),
    ):
        values = [getattr(template, name) for name in vars(PodTemplate) if not name.startswith("_") and name != "parse"]
        assert values
        assert not template.mounts_shared_memory


def test_volumes_name_the_objects_that_they_are_made_from() -> None:
    sources: list[Any] = [
        {"configMap": {"name": "settings"}},
        {"secret": {"name": "key", "optional": True}},
        {"downwardAPI": {}},
    ]
    volumes: list[Any] = [
        {"name": "a", "secret": {"secretName": "token"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "c", "projected": {"sources": sources}},
        {"name": "d", "configMap": {"name": "settings"}},
        {"name": "e", "emptyDir": {}},
        {"name": "f", "csi": {"driver": "any"}},
    ]
    assert parse(volumes=volumes).volume_sources == (
        VolumeSource("Secret", "token"),
        VolumeSource("PersistentVolumeClaim", "data"),
        VolumeSource("ConfigMap", "settings"),
        VolumeSource("volume", "f"),
    )


def test_a_spec_has_one_parsed_template_and_a_copy_with_another_has_another() -> None:
    given = spec({"spec": {"containers": [ONE]}})
    parsed = pod_template(given)
    assert pod_template(given) is parsed
    assert pod_template(given.model_copy(update={"nodes": 2})) is parsed
    assert pod_template(given.model_copy(update={"template": None})).trainer == {}
    assert pod_template(given).trainer == ONE


def test_a_parsed_template_is_no_part_of_the_value_and_goes_with_it_to_another_process() -> None:
    terms = [{"matchExpressions": [{"key": f"label-{number}", "operator": "Exists"} for number in range(500)]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    template = {"spec": {"containers": [ONE], "affinity": affinity}}
    given, other = spec(template), spec(template)
    before = len(pickle.dumps(given))
    parsed = pod_template(given)
    assert [*parsed.demand.labels()] == []
    assert given == other
    assert given.model_dump_json() == other.model_dump_json()
    assert len(pickle.dumps(given)) < before + 500
    received = pickle.loads(pickle.dumps(given))
    assert received.memo == {"spec.template": parsed}
    assert pod_template(received) is received.memo["spec.template"]
