"""The fleet as the operator is told it: strictly what its models know, and as the chart's schema has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepspeed_operator.api.crd import structural
from deepspeed_operator.api.fleet import Fleet, FleetRules
from deepspeed_operator.api.network import NetworkProfile
from deepspeed_operator.controller.settings import settings_from

CHART = Path(__file__).parents[3] / "charts/deepspeed-operator"


def test_a_fleet_is_read_from_its_variable() -> None:
    text = '{"defaults": {"network": {"profile": "RoCE"}}, "namespaces": {"a": {"defaults": {"queueName": "q"}}}}'
    fleet = settings_from([], {"DEEPSPEED_OPERATOR_FLEET": text}).fleet
    assert fleet.defaults.network is not None
    assert fleet.defaults.network.profile is NetworkProfile.ROCE
    assert fleet.defaults_of("a").queue_name == "q"
    assert fleet.defaults_of("b").queue_name is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "fleet: Invalid JSON"),
        ("[]", "fleet: Input should be an object"),
        ('{"default": {}}', "fleet.default: Extra inputs are not permitted"),
        ('{"defaults": {"network": {"profiel": "TCP"}}}', "fleet.defaults.network.profiel: Extra inputs"),
        ('{"defaults": {"network": {"profile": "Tcp"}}}', "fleet.defaults.network.profile: Input should be 'Auto', "),
        ('{"defaults": {"failurePolicy": {"maxRestarts": "3"}}}', "maxRestarts: Input should be a valid integer"),
        ('{"defaults": {"sharedMemory": "16 GB"}}', "fleet.defaults.sharedMemory: String should match"),
        ('{"defaults": {"tolerations": [{"keys": "a"}]}}', "fleet.defaults.tolerations.0.keys: Extra inputs"),
        ('{"limits": {"maxNodes": 0}}', "fleet.limits.maxNodes: Input should be greater than or equal to 1"),
        ('{"limits": {"networkProfiles": ["TCP", "any"]}}', "fleet.limits.networkProfiles.1: Input should be 'Auto', "),
        (
            '{"defaults": {"image": "a/b:1"}, "namespaces": {"team": {"limits": {"imagePrefixes": ["b/"]}}}}',
            'spec.image of jobs that do not say it in namespace team is "a/b:1", and the platform team allows images '
            "of b/ (fleet.namespaces.team.limits.imagePrefixes of the operator's chart).",
        ),
        (
            '{"defaults": {"network": {"profile": "RoCE"}}, "limits": {"networkProfiles": ["TCP"]}}',
            "spec.network.profile of jobs that do not say it by default is RoCE",
        ),
        (
            '{"defaults": {"tolerations": [{"key": "gpu", "tolerationSeconds": 60}]}}',
            "toleration of gpu: tolerationSeconds needs effect NoExecute",
        ),
        (
            '{"defaults": {"tolerations": [{"operator": "exists", "effect": "NoRun", "value": "x"}]}}',
            "toleration of all keys: operator must be Equal or Exists; toleration of all keys: effect must be",
        ),
        ('{"namespaces": {"Team A": {}}}', "fleet.namespaces.Team A.[key]: String should match"),
    ],
)
def test_what_it_cannot_mean_ends_the_operator_with_a_message(
    text: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        settings_from([], {"DEEPSPEED_OPERATOR_FLEET": text})
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert complaint in told
    assert told.count("error:") == 1


def test_the_charts_schema_has_the_fields_and_bounds_of_the_models() -> None:
    schema: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    generated = Fleet.model_json_schema(by_alias=True)
    models = structural(generated, generated["$defs"])
    fleet: dict[str, Any] = schema["properties"]["fleet"]
    of_install = {**fleet["properties"]}
    of_namespace = of_install.pop("namespaces")["additionalProperties"]["properties"]
    assert of_install == of_namespace
    of_models = {name: models["properties"][name] for name in FleetRules.model_fields}
    assert bare({"properties": of_install}, schema["$defs"]) == bare({"properties": of_models}, {})


def bare(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return what a schema refuses, whichever way it is written."""
    if "$ref" in node:
        return bare(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    if "enum" in node:
        return {"enum": node["enum"]}
    words = {"description", "format", "default", "x-kubernetes-list-type", "pattern", "additionalProperties"}
    lengths = {"minLength", "maxLength"} if "pattern" in node else set[str]()  # the pattern may bound them
    kept: dict[str, Any] = {key: value for key, value in node.items() if key not in words | lengths}
    if "properties" in node:
        kept["properties"] = {name: bare(child, definitions) for name, child in node["properties"].items()}
    below = {key: node[key] for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)}
    return kept | {key: bare(child, definitions) for key, child in below.items()}
