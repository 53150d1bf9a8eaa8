"""The CustomResourceDefinition, generated from the models: structural as the API server demands."""

import json
import sys
from typing import Any, Final

import yaml
from pydantic import TypeAdapter

from deepspeed_operator.api.job import Root
from deepspeed_operator.api.markers import JsonSchema
from deepspeed_operator.api.names import API_VERSION, GROUP, KIND, PLURAL, SHORT_NAME, SINGULAR, VERSION

PRINTER_COLUMNS: list[dict[str, Any]] = [
    {"name": "State", "type": "string", "jsonPath": ".status.state"},
    {"name": "Nodes", "type": "integer", "jsonPath": ".spec.nodes"},
    {"name": "Step", "type": "integer", "jsonPath": ".status.progress.step"},
    {"name": "Progress", "type": "string", "jsonPath": ".status.progress.summary"},
    {"name": "ETA", "type": "string", "jsonPath": ".status.progress.eta"},
    {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Loss", "type": "string", "jsonPath": ".status.progress.loss", "priority": 1},
    {"name": "Ready", "type": "integer", "jsonPath": ".status.workers.ready", "priority": 1},
    {"name": "Warnings", "type": "integer", "jsonPath": ".status.warnings", "priority": 1},
    {"name": "Attempt", "type": "integer", "jsonPath": ".status.attempt.number", "priority": 1},
    {"name": "Ranks", "type": "integer", "jsonPath": ".status.run.world.size", "priority": 1},
    {"name": "Batch", "type": "integer", "jsonPath": ".status.run.batch.train", "priority": 1},
    {
        "name": "Reason",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].reason',
        "priority": 1,
    },
]

# Kubernetes' disruption controller asks an owner so how many pods it wants: without it a PodDisruptionBudget with
# maxUnavailable or per cent lets nothing go. No selector: an autoscaler has no business here, and refuses to scale.
SCALE: Final = {"specReplicasPath": ".spec.nodes", "statusReplicasPath": ".status.workers.active"}

# What JSON Schema can say and a structural schema must not.
_DROPPED = frozenset({"title", "additionalProperties", "examples", "deprecated", "$defs", "pattern"})


def custom_resource_definition() -> dict[str, Any]:
    """Return the CRD of DeepSpeedJob as plain data, in the key order in which it is committed."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT_NAME],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, "scale": SCALE},
                    "additionalPrinterColumns": PRINTER_COLUMNS,
                    "schema": {"openAPIV3Schema": root_schema()},
                }
            ],
        },
    }


def root_schema() -> JsonSchema:
    """Return the structural schema of the whole object."""
    generated = TypeAdapter(Root).json_schema(by_alias=True)
    schema = structural(generated, generated.get("$defs", {}))
    schema["description"] = "Runs multi-node DeepSpeed training: pods, hostfile and configuration from one object."
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": f"{API_VERSION}"},
        "kind": {"type": "string", "description": KIND},
        "metadata": {"type": "object"},
        **schema["properties"],
    }
    return schema


def structural(node: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    """Rewrite a pydantic JSON schema node into a structural one: no references, unions, titles or null defaults.

    A description beside a reference, which belongs to the field, wins over the referenced type's.
    """
    node = _resolved(node, definitions)
    if node.get("x-kubernetes-int-or-string"):
        return {key: node[key] for key in ("description", "pattern", "x-kubernetes-int-or-string") if key in node}
    kept = {key: value for key, value in node.items() if key not in _DROPPED or (key == "pattern" and "type" in node)}
    if "const" in kept:
        kept["enum"] = [kept.pop("const")]
    if kept.get("default", ()) in (None, [], {}):
        del kept["default"]
    if kept.get("type") == "integer":
        kept["format"] = "int64"
    if "properties" in kept:
        kept["properties"] = {key: structural(value, definitions) for key, value in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = structural(kept["items"], definitions)
    if isinstance(node.get("additionalProperties"), dict):
        # A map: any key, and values of one type. A plain true or false is pydantic's way to say open or closed.
        kept["additionalProperties"] = structural(node["additionalProperties"], definitions)
    return {key: kept[key] for key in sorted(kept, key=_reading_order)}


def _resolved(node: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    while True:
        if "$ref" in node:
            beside = {key: value for key, value in node.items() if key != "$ref"}
            node = {**definitions[node["$ref"].removeprefix("#/$defs/")], **beside}
        elif "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
            options = [option for option in node["anyOf"] if option != {"type": "null"}]
            beside = {key: value for key, value in node.items() if key != "anyOf"}
            if len(options) != 1:
                raise ValueError(f"a structural schema has no unions: {node}")
            node = {**options[0], **beside}
        else:
            return node


def _reading_order(key: str) -> tuple[int, str]:
    return (("description", "type", "format", "enum", "default").index(key), "") if key in {
        "description", "type", "format", "enum", "default",
    } else (9, key)  # fmt: skip


def constraints() -> JsonSchema:
    """Return the part of the root schema that the API server judges a new job by, without words about it."""
    schema = root_schema()
    del schema["properties"]["status"]
    return _wordless(schema)


def _wordless(node: JsonSchema) -> JsonSchema:
    kept = {key: value for key, value in node.items() if key not in {"description", "default"}}
    if "properties" in kept:
        kept["properties"] = {name: _wordless(child) for name, child in kept["properties"].items()}
    return kept | {key: _wordless(kept[key]) for key in ("items", "additionalProperties") if key in kept}


def main(what: list[str]) -> None:
    """Print the CRD as YAML, or its constraints as JSON."""
    if what == ["constraints"]:
        print(json.dumps(constraints(), indent=1))
        return
    sys.stdout.write("# Generated by `make generate` from operator/deepspeed_operator/api.\n")
    yaml.safe_dump(  # pyright: ignore[reportUnknownMemberType] -- the stub leaves `width` open
        custom_resource_definition(), sys.stdout, sort_keys=False, width=120, allow_unicode=True
    )


if __name__ == "__main__":
    main(sys.argv[1:])
