"""DeepSpeed itself as the judge: one process a version, asked over a pipe."""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dev.versions import scripts
from dev.versions.scripts import Script

Config = Mapping[str, Any]
_AHEAD = 200


@dataclass(frozen=True)
class Answer:
    """What DeepSpeed says of a configuration at one world size; `batch` is train, micro and accumulation."""

    accepted: bool
    batch: list[float] | None
    reason: str


class Oracle:
    def __init__(self, process: Script) -> None:
        self._process = process

    def ask(self, questions: Sequence[tuple[Config, Sequence[int]]]) -> Iterator[list[Answer]]:
        """For each configuration, DeepSpeed's answer at each of the world sizes given with it."""
        for begin in range(0, len(questions), _AHEAD):
            some = questions[begin : begin + _AHEAD]
            for config, worlds in some:
                self._process.stdin.write(json.dumps({"config": config, "worlds": list(worlds)}) + "\n")
            self._process.stdin.flush()
            for _ in some:
                answers: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
                yield [Answer(answer["ok"], answer["batch"], answer["reason"]) for answer in answers]

    def unread(self, config: Config) -> list[str]:
        """Paths of keys that DeepSpeed does not ask for while it reads the configuration."""
        return self._answer({"unread": config})

    def parsed(self, text: str) -> Any:
        """What DeepSpeed reads from a file with this text, None where it cannot."""
        return self._answer({"text": text})

    def _answer(self, question: dict[str, Any]) -> Any:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def oracle(version: str) -> Generator[Oracle]:
    # What DeepSpeed logs is of no interest; what it says of a configuration is in its answer.
    with scripts.running(version, "judge.py", quiet=True) as process:
        yield Oracle(process)
