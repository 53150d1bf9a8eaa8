"""Answers configurations, one a line on stdin, with what DeepSpeed says of them at each world size, one a line."""

# pyright: basic, reportMissingImports=false

import copy
import json
import resource
import sys
from typing import Any

import deepspeed_config
import hjson
from asked import Asked, Asking
from deepspeed.runtime.config_utils import dict_raise_error_on_duplicate_keys

_MOST_MEMORY = 8 << 30


def main() -> None:
    # Old versions compute 2 to the power of a number that we draw: that must fail, not take the machine with it.
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    for line in sys.stdin:
        question = json.loads(line)
        if "unread" in question:
            print(json.dumps(unread(question["unread"])), file=deepspeed_config.answers)
            continue
        if "text" in question:
            print(json.dumps(parsed(question["text"])), file=deepspeed_config.answers)
            continue
        said = []
        for world in question["worlds"]:
            verdict = deepspeed_config.read(question["config"], world)
            said.append({"ok": verdict.ok, "batch": verdict.batch, "reason": verdict.reason[:500]})
        print(json.dumps(said), file=deepspeed_config.answers)


def parsed(text: str) -> Any:
    """What DeepSpeed reads from a file with this text, None where it cannot."""
    try:
        return hjson.loads(text, object_pairs_hook=dict_raise_error_on_duplicate_keys)
    except Exception:  # whatever its parser raises
        return None


def unread(values: dict[str, Any]) -> list[str]:
    """Keys that DeepSpeed never asks for, of the sections in which it asks for any."""
    asked: Asked = {}
    deepspeed_config.read_itself(Asking(copy.deepcopy(values), (), asked))
    found: list[str] = []

    def visit(path: tuple[str, ...], section: dict[str, Any]) -> None:
        for key, value in section.items():
            if path in asked and key not in asked[path]:
                found.append(".".join((*path, key)))
            elif isinstance(value, dict):
                visit((*path, key), value)

    visit((), values)
    return found


if __name__ == "__main__":
    main()
