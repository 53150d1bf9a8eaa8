"""A configuration for one DeepSpeed version → what to edit for another, and what each change means."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code, advice
from deepspeed_operator.api.status import Finding
from deepspeed_operator.dsconfig.changes import (
    CHANGES,
    Behaviour,
    Change,
    NewDefault,
    Path,
    Refused,
    Removed,
    Renamed,
    Replaced,
)
from deepspeed_operator.dsconfig.versions import SUPPORTED, Numbers, numbers_of
from deepspeed_operator.dsconfig.wording import quoted

Config = dict[str, Any]
OLDEST: Final = SUPPORTED[0]


@dataclass(frozen=True, slots=True)
class Remove:
    path: Path

    def below(self, prefix: Path) -> "Remove":
        return Remove((*prefix, *self.path))


@dataclass(frozen=True, slots=True)
class Rename:
    """Gives the key at this path another name, which its section must not have yet."""

    path: Path
    name: str

    def below(self, prefix: Path) -> "Rename":
        return Rename((*prefix, *self.path), self.name)


@dataclass(frozen=True, slots=True)
class Put:
    """Gives the key at this path a value; a new key becomes the last one of its section."""

    path: Path
    value: Any

    def below(self, prefix: Path) -> "Put":
        return Put((*prefix, *self.path), self.value)


Edit = Remove | Rename | Put


class Kind(StrEnum):
    REWRITTEN = "rewritten"  # the edits do it
    YOURS = "yours"  # what it did is gone, or cannot be guessed
    DEFAULT = "default"  # nothing has to change, and the configuration means something else now
    BEHAVIOUR = "behaviour"  # the same, and no key of the configuration undoes it


@dataclass(frozen=True, slots=True)
class Step:
    """One change that concerns the configuration; `keeping` are the edits with which it means what it meant."""

    kind: Kind
    since: str
    path: str
    message: str
    fix: str = ""
    edits: tuple[Edit, ...] = ()
    keeping: tuple[Edit, ...] = ()


def steps(config: Config, old: str | None, new: str) -> list[Step]:
    """Return what concerns a configuration on the way from one version to another; None: from the oldest."""
    begin, end = _numbers(old or OLDEST), _numbers(new)
    config = copy.deepcopy(config)
    found: list[Step] = []
    for change in CHANGES:
        # What the new version refuses goes, even if the old one should have refused it already.
        is_news = isinstance(change, NewDefault | Behaviour)
        if _numbers(change.since) <= end and (not is_news or _numbers(change.since) > begin):
            for step in _steps_of(change, config):
                found.append(step)
                config = edited(config, step.edits)
    return found


def _numbers(version: str) -> Numbers:
    numbers = numbers_of(version)
    if numbers is None:
        raise ValueError(f"{version} is no version of DeepSpeed")
    return numbers


def news(config: Config, old: str | None, new: str, where: str = "") -> list[Finding]:
    """Return what the configuration means in the new version and did not mean in the old one; None: in the oldest."""
    found = [step for step in steps(config, old, new) if step.kind in {Kind.DEFAULT, Kind.BEHAVIOUR}]
    return [
        advice(
            f"{where}.{step.path}".strip("."),
            Code.CHANGED_DEFAULT,
            f"since DeepSpeed {step.since}, {step.message}",
            step.fix,
        )
        for step in found
    ]


def edited(config: Config, edits: tuple[Edit, ...]) -> Config:
    """Return the configuration with the edits done."""
    config = copy.deepcopy(config)
    for edit in edits:
        section = cast(Config, _at(config, edit.path[:-1]))
        key = edit.path[-1]
        match edit:
            case Remove():
                del section[key]
            case Put():
                section[key] = copy.deepcopy(edit.value)
            case Rename():
                pairs = [(edit.name if name == key else name, value) for name, value in section.items()]
                section.clear()
                section.update(pairs)
    return config


def _steps_of(change: Change, config: Config) -> Iterator[Step]:
    if isinstance(change, Behaviour):
        yield Step(Kind.BEHAVIOUR, change.since, "", change.meaning, change.instead)
        return
    section = _at(config, change.path[:-1])
    if not isinstance(section, dict):
        return
    name, path = change.path[-1], ".".join(change.path)
    fields = cast(Config, section)
    if isinstance(change, NewDefault):
        if fields.get(name) is None and _holds(config, change):
            yield _new_default(change, path)
        return
    if name not in fields:
        return
    value = fields[name]
    match change:
        case Removed():
            yield _removed(change, path, value)
        case Renamed():
            yield _renamed(change, path, change.name in fields)
        case Replaced() if isinstance(value, bool) or value is None:
            yield _replaced(change, path, fields, value)
        case Refused() if _refuses(change, value):
            yield Step(Kind.YOURS, change.since, path, f"{quoted(value)}: {change.meaning}", change.instead)
        case _:
            pass


def _removed(change: Removed, path: str, value: object) -> Step:
    edits = (Remove(change.path),)
    if change.instead and _used(change, value):
        message = f"{change.meaning} Removed, and with it what it did."
        return Step(Kind.YOURS, change.since, path, message, change.instead, edits)
    return Step(Kind.REWRITTEN, change.since, path, f"{change.meaning} Removed: nothing is lost.", edits=edits)


def _used(change: Removed, value: object) -> bool:
    """A section that could be switched off, and was not on, did nothing."""
    if any(value == unused and type(value) is type(unused) for unused in change.unused):
        return False
    switched = isinstance(value, dict) and {"enabled": False} in change.unused
    return not switched or bool(cast(Config, value).get("enabled"))


def _renamed(change: Renamed, path: str, taken: bool) -> Step:
    if taken:
        message = f"{change.meaning} Removed: {change.name} is there, too."
        return Step(Kind.REWRITTEN, change.since, path, message, edits=(Remove(change.path),))
    message = f"{change.meaning} Renamed to {change.name}."
    return Step(Kind.REWRITTEN, change.since, path, message, edits=(Rename(change.path, change.name),))


def _replaced(change: Replaced, path: str, section: Mapping[str, Any], value: bool | None) -> Step:
    beside = (*change.path[:-1], change.name)
    if value not in change.values or (change.name in section and beside != change.path):
        return Step(Kind.REWRITTEN, change.since, path, f"{change.meaning} Removed.", edits=(Remove(change.path),))
    new = change.values[value]
    message = f"{change.meaning} Rewritten to {change.name}: {quoted(new)}."
    rename = () if beside == change.path else (Rename(change.path, change.name),)
    return Step(Kind.REWRITTEN, change.since, path, message, edits=(*rename, Put(beside, new)))


def _new_default(change: NewDefault, path: str) -> Step:
    was, now = quoted(change.was), "unset" if change.now is None else quoted(change.now)
    message = f"{now} by default, {was} before: {change.meaning}"
    fix = f"Write {change.path[-1]}: {was} to keep what was."
    return Step(Kind.DEFAULT, change.since, path, message, fix, keeping=(Put(change.path, change.was),))


def _holds(config: Config, change: NewDefault) -> bool:
    return all(_at(config, path) in values for path, values in change.when)


def _refuses(change: Refused, value: object) -> bool:
    if change.fractions and isinstance(value, float) and not value.is_integer():
        return True
    words = [each.lower() if isinstance(each, str) else each for each in change.values]
    return not isinstance(value, bool | dict | list) and (value.lower() if isinstance(value, str) else value) in words


def _at(config: Config, path: Path) -> Any:
    value: Any = config
    for key in path:
        value = cast(Config, value).get(key) if isinstance(value, dict) else None
    return value
