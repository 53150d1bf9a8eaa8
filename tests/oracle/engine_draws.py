"""Configurations for engines: the real ones, and some drawn from them with a bias towards what only an engine reads."""

import copy
import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deepspeed_operator.api.status import Level
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.notes import CheckPhase, written
from tests.oracle import corpus
from tests.oracle.compare import refusals
from tests.oracle.filling import filled
from tests.oracle.topics import TOPICS

Config = Mapping[str, Any]
Change = tuple[str, Any]
Record = Mapping[str, Any]

_ADAM: Final = {"type": "AdamW", "params": {"lr": 1e-4}}


@dataclass(frozen=True)
class Question:
    """A configuration, named by its file and the changes to it.

    `optimizer`: who makes it: the "configuration", the "script", or nobody ("none"), to evaluate.
    """

    name: str
    optimizer: str = "configuration"
    world: int = 1
    base: str = ""
    changes: Sequence[Change] = ()

    @property
    def config(self) -> dict[str, Any]:
        return changed(corpus.configurations()[self.base or self.name], self.changes, self.world)

    def asked(self) -> dict[str, Any]:
        """Return it as it is asked. A record keeps all but the configuration, which can be made again."""
        config = self.config
        of_base = {"base": self.base, "changes": [list(change) for change in self.changes]} if self.base else {}
        world = {"world": self.world} if self.world > 1 else {}
        digests = {"digest": digest(config), "optimizer": self.optimizer}
        return {"name": self.name, **of_base, **digests, **world, "config": config}


def question_of(record: Record) -> Question:
    """Return what a record was asked.

    Raises AssertionError where the files beside the project are no longer those that it was drawn from.
    """
    changes = tuple((path, value) for path, value in record.get("changes", ()))
    base, world = record.get("base", ""), record.get("world", 1)
    question = Question(record["name"], record["optimizer"], world, base, changes)
    assert digest(question.config) == record["digest"], f"{question.name} is no longer what the engine was given"
    return question


def digest(config: Config) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def said(config: Config, context: JudgementContext, level: Level = Level.ERROR) -> list[str]:
    """Return our notes of that level, each by its place and code; of errors those by which no engine starts."""
    notes = [note for note in validate(config, context).notes if note.level is level]
    starts = CheckPhase.SILENT if level is Level.ERROR else None
    return [f"{written(note.path)}: {note.code}" for note in notes if note.phase is not starts]


def real(names: Iterable[str], worlds: Sequence[int] = (1,)) -> Iterator[Question]:
    """Yield those of these files that can be read, in each world."""
    for name in names:
        if name in corpus.configurations():
            for world in worlds:
                yield from _asked(Question(name, world=world))


def drawn(count: int, seed: int, context: JudgementContext, worlds: Sequence[int] = (1,)) -> Iterator[Question]:
    """Draw that many different ones, none of which the configuration's class refuses: compare.py is about those.

    `context`: the version and the accelerator; its world is one of `worlds` each time.
    """
    source = random.Random(seed)
    bases = {
        world: [name for name in corpus.configurations() if _is_read(Question(name, world=world), context)]
        for world in worlds
    }
    found: set[tuple[str, int]] = set()
    while len(found) < count:
        world = source.choice(worlds)
        question = Question(f"drawn {len(found)}", "", world, source.choice(bases[world]), tuple(_changes(source)))
        key = digest(question.config), world
        if key not in found and _is_read(question, context):
            found.add(key)
            yield from _asked(question)


def _is_read(question: Question, context: JudgementContext) -> bool:
    return not refusals(validate(question.config, replace(context, world=question.world)))


def _asked(question: Question) -> Iterator[Question]:
    """Yield it as the engine is to be given it; one that names no optimizer at stage 3 also without any."""
    config = question.config
    named = object_at(config.get("optimizer")).get("type") is not None
    yield replace(question, optimizer="configuration" if named else "script")
    if not named and object_at(config.get("zero_optimization")).get("stage") == 3:
        # As the Trainer does to evaluate; at stages 1 and 2 it takes ZeRO out of the configuration.
        yield replace(question, optimizer="none")


def _changes(source: random.Random) -> Iterator[Change]:
    if source.random() < 0.5:
        yield "optimizer", _ADAM
    for topic in source.sample(TOPICS, source.choice((1, 1, 2))):
        for path in sorted(source.sample(sorted(topic), source.choice((1, 2, 3, 4)))):
            yield path, source.choice(topic[path])


def changed(base: Config, changes: Sequence[Change], world: int = 1) -> dict[str, Any]:
    """Apply the changes in order, then put numbers where "auto" stands."""
    config = copy.deepcopy(dict(base))
    for path, value in changes:
        *sections, key = path.split(".")
        section = config
        for step in sections:
            if not isinstance(section.get(step), dict):
                section[step] = {}
            section = section[step]
        section[key] = copy.deepcopy(value)
    return filled(config, world)
