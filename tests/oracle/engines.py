"""Engines of a version on CPUs as the judge."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext
from dev.versions import rootfs, scripts
from tests.oracle.engine_draws import question_of, said
from tests.oracle.engine_verdicts import Record, started

VERSIONS: Final = ("0.15.4", "0.17.6", "0.18.9", "0.19.8")
WORLDS: Final = (1, 2)
SCRIPT: Final = rootfs.INSIDE / "engine.py"
_AT_ONCE: Final = 2


def context_of(version: str, world: int = 1) -> JudgementContext:
    return JudgementContext(world, version, "cpu")


def with_errors(version: str, answers: Iterable[Record]) -> Iterator[Record]:
    """Yield each answer with our `errors`, by which an engine does not start, and our `warnings`."""
    for answer in answers:
        question = question_of(answer)
        errors, warnings = (
            said(question.config, context_of(version, question.world), level) for level in (Level.ERROR, Level.WARNING)
        )
        yield {**answer, "errors": errors, "warnings": warnings}


def answered(version: str, questions: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what the version's engine did with each question, as soon as it is known, in any order.

    questions: each has a `config` and an `optimizer` (configuration, script or none), and may have a `world` and how
        many `steps` it trains; all but the configuration is in its answer. See dev/versions/inside/engine.py.
    """
    if not questions:
        return
    with scripts.running(version, SCRIPT.name, str(_AT_ONCE), quiet=True) as process:
        process.stdin.writelines(f"{json.dumps(question)}\n" for question in questions)
        process.stdin.close()
        lines = map(json.loads, process.stdout)
        assert next(lines)["deepspeed"].startswith(version)
        yield from lines


def refusal(answer: Mapping[str, Any]) -> str | None:
    """Return DeepSpeed's words; None where the engine started."""
    return None if started(answer) else f"{answer.get('type', 'died')}: {answer['says']}"
