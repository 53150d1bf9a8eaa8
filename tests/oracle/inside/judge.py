"""Answers configurations, one a line on stdin, with what DeepSpeed says of them at each world size, one a line."""

# pyright: basic, reportMissingImports=false

import json
import sys

import deepspeed_config


def main() -> None:
    for line in sys.stdin:
        question = json.loads(line)
        said = []
        for world in question["worlds"]:
            verdict = deepspeed_config.read(question["config"], world)
            said.append({"ok": verdict.ok, "batch": verdict.batch, "reason": verdict.reason[:500]})
        print(json.dumps(said), file=deepspeed_config.answers)


if __name__ == "__main__":
    main()
