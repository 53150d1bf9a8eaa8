"""The engine as judge: which configurations it starts with on a GPU, and what we say of them.

    python -m bench.gpu.engine draw [--count 320] [--seed 1] >questions.jsonl
    python3 dev/versions/inside/engine.py <questions.jsonl >answers.jsonl      (on the GPU machine, after install.sh)
    python -m bench.gpu.engine again <bench/gpu/results/engine-2.jsonl >questions.jsonl      (the same once more)
    python -m bench.gpu.engine judge <answers.jsonl >bench/gpu/results/engine.jsonl

Drawing and judging need the public files, which lie beside the project; the machine needs neither them nor our code.
To judge a record anew, give it as an answer: what we say is written again, what the engine did stays.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from deepspeed_operator.dsconfig.judgement import JudgementContext
from tests.oracle import corpus
from tests.oracle.engine_draws import drawn, question_of, real, said

CONTEXT: Final = JudgementContext(1, "0.19.8", "cuda")


def questions(count: int, seed: int) -> Iterator[dict[str, Any]]:
    for each in (*real(corpus.public()), *drawn(count, seed, CONTEXT)):
        yield each.asked()


def judged(answers: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for answer in answers:
        yield {**answer, "errors": said(question_of(answer).config, CONTEXT)} if "name" in answer else answer


def again(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in (each for each in records if "name" in each):
        yield question_of(record).asked()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["draw", "again", "judge"])
    parser.add_argument("--count", type=int, default=320, help="configurations to draw")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    given = map(json.loads, sys.stdin)
    found = {
        "draw": questions(options.count, options.seed),
        "again": again(given),
        "judge": judged(given),
    }
    for line in found[options.action]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()
