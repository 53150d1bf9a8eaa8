"""The engine as judge: which configurations it starts with on a GPU, and what we say of them.

    python -m bench.gpu.engine draw [--count 320] [--seed 1] >questions.jsonl
    python3 -m bench.gpu.inside.engine <questions.jsonl >answers.jsonl      (on the GPU machine, after install.sh)
    python -m bench.gpu.engine again <bench/gpu/results/engine-2.jsonl >questions.jsonl      (the same once more)
    python -m bench.gpu.engine judge <answers.jsonl >bench/gpu/results/engine.jsonl

Drawing and judging need the public files, which lie beside the project; the machine needs neither them nor our code.
To judge a record anew, give it as an answer: what we say is written again, what the engine did stays.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from bench.gpu import draws
from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.notes import written


def said(config: draws.Config, level: Level = Level.ERROR) -> list[str]:
    """Our errors, each by its place and code."""
    return [f"{written(note.path)}: {note.code}" for note in draws.verdict(config).notes if note.level is level]


def judged(answers: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for answer in answers:
        if "name" not in answer:
            yield answer
            continue
        config = draws.config_of(answer)
        assert draws.digest(config) == answer["digest"], f"{answer['name']} is no longer what the engine was given"
        yield {**answer, "errors": said(config)}


def asked(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in (each for each in records if "name" in each):
        question = {key: record[key] for key in ("name", "base", "changes", "digest", "optimizer") if key in record}
        yield {**question, "config": draws.config_of(record)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["draw", "again", "judge"])
    parser.add_argument("--count", type=int, default=320, help="configurations to draw")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    given = map(json.loads, sys.stdin)
    found = {
        "draw": draws.questions(options.count, options.seed),
        "again": asked(given),
        "judge": judged(given),
    }
    for line in found[options.action]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()
