"""Argo Workflows: the manifests of their resource steps, with the workflow's parameters put in."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at

_PARAMETER: Final = re.compile(r"\{\{\s*=?\s*([\w.-]+)\s*\}\}")
HINT: Final = (
    "the step's successCondition is status.state == Complete, and its failureCondition status.state == Failed; "
    "the manifest of the step is this DeepSpeedJob"
)


def resource_manifests(workflow: Json) -> Iterator[tuple[str, str, set[str]]]:
    """Yield name, manifest and parameters without a value of each resource step that creates something.

    A template of which several steps make different things is yielded for each of them.
    """
    spec = object_at(workflow, "spec")
    spec = object_at(spec, "workflowSpec") or spec  # a CronWorkflow has it there
    metadata = object_at(workflow, "metadata")
    given = _parameters(spec, "workflow.parameters", "arguments") | {
        "workflow.name": str(metadata.get("name") or metadata.get("generateName") or "workflow").rstrip("-"),
        "workflow.namespace": str(metadata.get("namespace") or "default"),
        "workflow.uid": "",
    }
    for template in objects_at(spec, "templates"):
        name, resource = str(template.get("name")), object_at(template, "resource")
        manifest = resource.get("manifest")
        if not isinstance(manifest, str) or str(resource.get("action")) not in {"create", "apply"}:
            continue
        own = _parameters(template, "inputs.parameters", "inputs")
        for passed in _passed(spec, name, given) or [{}]:
            values = given | own | passed
            filled = _filled(_filled(manifest, values), values)
            missing = set(_PARAMETER.findall(filled))
            yield name, _PARAMETER.sub("imported", filled), missing


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PARAMETER.sub(lambda match: values.get(match[1], match[0]), text)


def _parameters(holder: Json, prefix: str, place: str) -> dict[str, str]:
    found = objects_at(holder, place, "parameters")
    known = [each for each in found if "value" in each or "default" in each]
    return {f"{prefix}.{each.get('name')}": str(each.get("value", each.get("default"))) for each in known}


def _passed(spec: Json, name: str, given: Mapping[str, str]) -> list[dict[str, str]]:
    """Return what each step that uses a template passes to it; steps that pass the same count once."""
    found: list[dict[str, str]] = []
    for template in objects_at(spec, "templates"):
        steps = [each for group in list_at(template, "steps") for each in objects_at({"group": group}, "group")]
        for step in [*steps, *objects_at(template, "dag", "tasks")]:
            passed = _parameters(step, "inputs.parameters", "arguments")
            known = {key: _filled(text, given) for key, text in passed.items()}
            if step.get("template") == name and known not in found:
                found.append(known)
    return found
