"""The CRD follows from the models, and is structural as the API server demands."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api import failure_policy, job, spec
from deepspeed_operator.api.crd import custom_resource_definition, root_schema
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.markers import Cel
from deepspeed_operator.api.spec import DeepSpeedJobSpec

ROOT = Path(__file__).parents[3]
COMMITTED = (ROOT / "crds/deepspeedjobs.yaml", ROOT / "charts/deepspeed-operator/files/deepspeedjobs.yaml")
HELM_LIMIT = 256 * 1024

Node = dict[str, Any]


def nodes(schema: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every schema node with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


ALL_NODES = dict(nodes(root_schema()))
# What the API server adds to any object; it describes and checks these itself.
OBJECT_META = {".apiVersion", ".kind", ".metadata"}
OURS = {path: node for path, node in ALL_NODES.items() if path not in OBJECT_META}


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parts[-3])
def test_the_committed_file_is_what_the_models_generate(path: Path) -> None:
    generated = subprocess.run(
        [sys.executable, "-m", "deepspeed_operator.api.crd"],
        cwd=ROOT / "operator",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert path.read_text() == generated, "run `make generate`"
    assert len(generated.encode()) < HELM_LIMIT
    assert yaml.safe_load(generated) == custom_resource_definition()


def test_every_node_has_a_type_or_is_int_or_string() -> None:
    for path, node in ALL_NODES.items():
        assert ("type" in node) != bool(node.get("x-kubernetes-int-or-string")), path


def test_no_node_has_what_a_structural_schema_may_not() -> None:
    forbidden = {
        "$ref",
        "$defs",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "const",
        "title",
        "examples",
    }
    for path, node in ALL_NODES.items():
        assert not forbidden & node.keys(), path


def test_objects_name_their_fields_or_are_bounded_maps_or_free_form() -> None:
    free = {path for path, node in OURS.items() if node.get("x-kubernetes-preserve-unknown-fields")}
    assert free == {".spec.dsConfig", ".spec.template", ".spec.model.fromConfig"}
    maps = {path: node for path, node in OURS.items() if "additionalProperties" in node}
    assert all(node.get("maxProperties") and "properties" not in node for node in maps.values())
    for path, node in OURS.items():
        if node.get("type") == "object" and path not in {*free, *maps}:
            assert node["properties"], path
            assert set(node.get("required", [])) <= node["properties"].keys(), path


def test_every_field_is_described() -> None:
    for path, node in OURS.items():
        if path and not path.endswith(("[]", "{}")):
            assert len(node.get("description", "").split()) > 1, path


def test_an_optional_field_of_spec_says_what_holds_without_it() -> None:
    """`kubectl explain` shows no defaults."""
    for path, node in OURS.items():
        parent, _, name = path.rpartition(".")
        if (
            parent.startswith(".spec")
            and name not in OURS[parent].get("required", [])
            and not name.endswith(("{}", "[]"))
        ):
            assert re.search(r"\b([Dd]efault|Unset|Without|instead of|one of)\b", node["description"]), path


def test_lists_are_bounded_and_say_who_owns_their_items() -> None:
    for path, node in OURS.items():
        if node.get("type") == "array":
            assert node.get("maxItems"), path
            assert node.get("x-kubernetes-list-type") in {"atomic", "map"}, path
            for key in node.get("x-kubernetes-list-map-keys", []):
                assert key in node["items"]["required"], path


def test_strings_are_bounded() -> None:
    for path, node in OURS.items():
        if node.get("type") == "string":
            assert node.get("maxLength") or node.get("enum"), path


def test_integers_are_64_bits_and_defaults_fit_their_type() -> None:
    numbers: dict[str, type] = {"integer": int, "number": int}  # JSON knows no other zero
    types = {**numbers, "string": str, "boolean": bool, "array": list, "object": dict}
    for path, node in ALL_NODES.items():
        assert (node.get("format") == "int64") == (node.get("type") == "integer"), path
        if "default" in node:
            assert type(node["default"]) is types[node["type"]], path
            assert node["default"] in node.get("enum", [node["default"]]), path


def test_every_rule_that_is_written_is_in_the_schema_and_names_its_field() -> None:
    rules = [rule for node in ALL_NODES.values() for rule in node.get("x-kubernetes-validations", [])]
    single = [
        value for module in (job, spec, failure_policy) for value in vars(module).values() if isinstance(value, Cel)
    ]
    written = {rule.message for rule in [*single, *job.ROOT_RULES]}
    assert {rule["message"] for rule in rules} == written
    for rule in rules:
        assert rule["message"].startswith(("spec.", "metadata.")), rule
        assert len(rule["message"]) < 2048


def test_field_names_are_camel_case_and_those_of_the_model() -> None:
    fields = {field.alias for field in DeepSpeedJobSpec.model_fields.values()}
    assert set(ALL_NODES[".spec"]["properties"]) == fields
    for path in ALL_NODES:
        assert "_" not in path


def test_printer_columns_exist_in_the_schema() -> None:
    version = custom_resource_definition()["spec"]["versions"][0]
    for column in version["additionalPrinterColumns"]:
        path = column["jsonPath"].split("[?")[0].replace(".metadata.creationTimestamp", ".metadata")
        assert path in ALL_NODES, column


def test_what_the_api_server_stores_is_read() -> None:
    stored: Node = {
        "apiVersion": "deepspeed-operator.dev/v1alpha1",
        "kind": "DeepSpeedJob",
        "metadata": {"name": "a", "namespace": "b", "uid": "c", "generation": 2, "managedFields": [{}]},
        "spec": {"training": {"script": "a.py", "unknown": 1}, "sharedMemory": 1024, "runId": "2"},
        "status": {"state": "Running", "warnings": 3, "later": {"field": 1}},
    }
    read = DeepSpeedJob.model_validate(stored)
    assert (read.metadata.generation, read.spec.shared_memory, read.spec.run_id, read.status.warnings) == (
        2,
        1024,
        "2",
        3,
    )
    assert read.spec.training.launcher == "Ranks"
