"""Writes lint/pod_fields.json: the fields of a pod's spec, from the OpenAPI document of the Kubernetes built here.

python -m dev.cluster.pod_fields
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from dev.cluster.settings import KUBERNETES_VERSION

TABLE = Path(__file__).parents[2] / "operator/deepspeed_operator/lint/pod_fields.json"
_MODULES = Path(__file__).parent / "go"
_ROOT = "io.k8s.api.core.v1.PodSpec"


def fields(document: dict[str, Any], version: str) -> dict[str, Any]:
    """Return for each type below PodSpec its fields, with the type that a field holds where that has fields itself."""
    schemas: dict[str, Any] = document["components"]["schemas"]
    found: dict[str, dict[str, str]] = {}
    waiting = [_ROOT]
    while waiting:
        name = waiting.pop()
        if _short(name) in found:
            continue
        properties: dict[str, Any] = schemas[name]["properties"]
        held = {field: _held(described, schemas) for field, described in properties.items()}
        found[_short(name)] = {field: _short(inner) for field, inner in sorted(held.items())}
        waiting += [inner for inner in held.values() if inner]
    return {"kubernetes": version, "types": dict(sorted(found.items()))}


def _held(described: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return the name of the object, or of the objects of the list, that a field holds; nothing for the rest."""
    text = json.dumps(described.get("items", {} if "additionalProperties" in described else described))
    reference = re.search(r'"#/components/schemas/([^"]+)"', text)
    return reference[1] if reference is not None and "properties" in schemas[reference[1]] else ""


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def written(table: dict[str, Any]) -> str:
    """JSON with a line for each type, so that versions can be compared by eye."""
    lines = ",\n".join(f'  "{name}": {json.dumps(held)}' for name, held in table["types"].items())
    return f'{{\n "kubernetes": "{table["kubernetes"]}",\n "types": {{\n{lines}\n }}\n}}\n'


def main() -> None:
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]
    module = subprocess.run(command, cwd=_MODULES, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    document = json.loads((Path(module) / "api/openapi-spec/v3/api__v1_openapi.json").read_text(encoding="utf-8"))
    version = ".".join(KUBERNETES_VERSION.removeprefix("v").split(".")[:2])
    TABLE.write_text(written(fields(document, version)), encoding="utf-8")


if __name__ == "__main__":
    main()
