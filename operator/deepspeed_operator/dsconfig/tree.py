"""What a document says, and where: values that know their place in the text."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from deepspeed_operator.dsconfig.wording import quoted

# So many problems of a text are named; whoever has more has one problem.
MOST_PROBLEMS: Final = 100
MOST_PLACES: Final = 10
# No configuration nests like this, and what reads a value later recurses.
DEEPEST: Final = 100

Scalar = str | int | float | bool | None


class UnreadableError(ValueError):
    """The text is no document of its format; `position` is where that shows."""

    def __init__(self, message: str, position: int | None = None, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.fix = fix


@dataclass(slots=True, eq=False)
class Node:
    """A value from `start` to `end` of the text: an object, a list, or a scalar."""

    start: int
    end: int
    value: Scalar = None
    members: "dict[str, ObjectMember] | None" = None
    items: "list[Node] | None" = None
    block: bool = False  # written by indentation (YAML), not between brackets


@dataclass(slots=True, eq=False)
class ObjectMember:
    """A key of an object, and its value."""

    key: str
    start: int
    end: int
    node: Node


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that the format itself does not allow, or that means another thing than it seems."""

    message: str
    fix: str
    spans: tuple[tuple[int, int], ...]  # the last one is where it shows


class Problems(list[Problem]):
    """The first problems of a text."""

    def note(self, message: str, fix: str, *spans: tuple[int, int]) -> None:
        if len(self) < MOST_PROBLEMS:
            self.append(Problem(message, fix, spans))

    def repeated(self, spans: Mapping[str, list[tuple[int, int]]], consequence: str) -> None:
        """Note the keys of one object that stand in it more than once."""
        for key, places in spans.items():
            message = f"{quoted(key)} is given more than once in one object{consequence}"
            shown = places if len(places) <= MOST_PLACES else [*places[: MOST_PLACES - 1], places[-1]]
            self.note(message, "Keep one of them.", *shown)


@dataclass(slots=True)
class Document:
    """One document of a file, with what is wrong about its text."""

    root: Node
    problems: Problems = field(default_factory=Problems)


@dataclass(frozen=True)
class Text:
    """A text, and its positions as lines and columns, both from 0."""

    content: str

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        position = self.content.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.content.find("\n", position + 1)
        return starts

    def place(self, position: int) -> tuple[int, int]:
        """Return line and column of a position."""
        line = bisect_right(self._starts, position) - 1
        return line, position - self._starts[line]

    def start(self, number: int) -> int:
        """Return the position at which a line begins."""
        return self._starts[number]

    def line(self, number: int) -> str:
        """Return a line without its end."""
        begin = self._starts[number]
        end = self._starts[number + 1] - 1 if number + 1 < len(self._starts) else len(self.content)
        return self.content[begin:end].removesuffix("\r")


def plain(node: Node) -> Any:
    """Return the value as Python has it."""
    if node.members is not None:
        return {key: plain(member.node) for key, member in node.members.items()}
    if node.items is not None:
        return [plain(item) for item in node.items]
    return node.value


def located(root: Node, path: str) -> tuple[Node, ObjectMember | None, str]:
    """Follow a finding's path as far as the document goes.

    Returns the node reached, the member that holds it (None for the root and list items), and what is left of the path.
    """
    node, member = root, None
    while path:
        step = _step(node, path)
        if step is None:
            break
        node, member, path = step
    return node, member, path


def _step(node: Node, path: str) -> tuple[Node, ObjectMember | None, str] | None:
    if path.startswith("[") and node.items is not None:
        number, closed, rest = path[1:].partition("]")
        if closed and number.isdecimal() and len(number) < 10 and int(number) < len(node.items):
            return node.items[int(number)], None, rest
        return None
    if node.members is None:
        return None
    for key, rest in _keys(path):
        member = node.members.get(key)
        if member is not None:
            return member.node, member, rest
    return None


def _keys(path: str) -> Iterator[tuple[str, str]]:
    """The keys with which a path may begin, since keys may have dots and brackets themselves."""
    if path.startswith('["'):
        end = path.find('"]')
        while end >= 0:
            yield path[2:end].replace('\\"', '"').replace("\\\\", "\\"), path[end + 2 :]
            end = path.find('"]', end + 1)
        return
    path = path.removeprefix(".")
    for position, character in enumerate(path[:1024]):
        if character in ".[":
            yield path[:position], path[position:]
    yield path, ""


def path_at(root: Node, position: int) -> str:
    """Return the path of the innermost key whose value, or which itself, is at this position."""
    path, node = "", root
    while True:
        below = _child_at(node, position)
        if below is None:
            return path.removeprefix(".")
        step, node = below
        path += step


def _child_at(node: Node, position: int) -> tuple[str, Node] | None:
    for member in (node.members or {}).values():
        if member.start <= position < max(member.end, member.node.end):
            return f".{member.key}", member.node
    for number, item in enumerate(node.items or ()):
        if item.start <= position < item.end:
            return f"[{number}]", item
    return None
