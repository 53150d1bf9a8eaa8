"""How large the parts of a job may be that have no schema. Without bounds, one job costs what thousands may."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import object_at

LARGEST: Final = 256 * 1024  # bytes as JSON: a configuration must fit into the attempt's ConfigMap beside the agent
DEEPEST: Final = 50
_LONGEST_LIST: Final = 1_000
_LONGEST: Final = {"containers": 50, "initContainers": 50, "volumes": 200}
# Each value takes two bytes of JSON at least, a comma among them.
_MOST_VALUES: Final = LARGEST // 2
_TEMPLATE: Final = "spec.template"
_ELSEWHERE: Final = "Write less: put files into the image, a volume, or a ConfigMap (spec.training.files)."
_SHOWN: Final = 80  # characters of a key


def free_parts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a spec, as JSON has it, that have no schema, by their paths."""
    return {
        _TEMPLATE: spec.get("template"),
        "spec.dsConfig": spec.get("dsConfig"),
        "spec.model.fromConfig": object_at(spec, "model").get("fromConfig"),
    }


def without_free_parts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec without the parts that have no schema."""
    kept = {key: value for key, value in spec.items() if key not in {"template", "dsConfig"}}
    if isinstance(kept.get("model"), dict):
        kept["model"] = {key: value for key, value in kept["model"].items() if key != "fromConfig"}
    return kept


def excess_of(job: DeepSpeedJob) -> tuple[Finding, ...]:
    """Return what is too large about a job, whether it was read with it or without."""
    spec = job.spec
    parts = {
        _TEMPLATE: spec.template,
        "spec.dsConfig": spec.ds_config,
        "spec.model.fromConfig": spec.model.from_config if spec.model is not None else None,
    }
    return job.excess or tuple(excess(parts))


def excess(parts: Mapping[str, Any]) -> list[Finding]:
    """Return what is too large about parts that have no schema; it takes no longer for a part that is larger."""
    return [finding for path, part in parts.items() if part is not None for finding in _excess(path, part)]


def weight(value: object) -> int:
    """Return about how many bytes of memory a JSON value takes, parsed; its depth does not matter."""
    total, rest = 0, [value]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            fields = cast("dict[str, object]", each)
            total += 64 + sum(100 + len(key) for key in fields)
            rest += fields.values()
        elif isinstance(each, list):
            items = cast("list[object]", each)
            total += 56 + 8 * len(items)
            rest += items
        else:
            total += 50 + len(each) if isinstance(each, str) else 32
    return total


def too_large(path: str, size: int) -> Finding:
    """Say that a part of this many bytes is not looked at."""
    message = f"has {size:,} bytes, of which at most {LARGEST:,} are accepted."
    return error(path, Code.TOO_LARGE, message, _ELSEWHERE)


def _excess(path: str, part: object) -> Iterator[Finding]:
    """Yield findings about a part, level by level."""
    level, values = [(path, part)], 0
    for _ in range(DEEPEST):
        below: list[tuple[str, object]] = []
        for where, value in level:
            if isinstance(value, list):
                items = cast("list[object]", value)
                most = _LONGEST.get(where.rpartition(".")[2], _LONGEST_LIST)
                if len(items) > most and path == _TEMPLATE:
                    message = f"has {len(items):,} items, of which at most {most:,} are accepted."
                    yield error(where, Code.TOO_LARGE, message, "Write fewer.")
                    continue
                values += len(items)
                below += [
                    (f"{where}[{index}]", item) for index, item in enumerate(items) if isinstance(item, dict | list)
                ]
            elif isinstance(value, dict):
                fields = cast("dict[str, object]", value)
                values += len(fields)
                below += [
                    (f"{where}.{key[:_SHOWN]}", item) for key, item in fields.items() if isinstance(item, dict | list)
                ]
            if values > _MOST_VALUES:
                message = f"has more than {LARGEST:,} bytes as JSON, the most that is accepted."
                yield error(path, Code.TOO_LARGE, message, _ELSEWHERE)
                return
        level = below
        if not level:
            break
    if level:
        message = f"is nested more than {DEEPEST} levels deep."
        yield error(path, Code.TOO_LARGE, message, "Write fields that a pod, or DeepSpeed, has.")
        return
    size = len(json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"))
    if size > LARGEST:
        yield too_large(path, size)
