"""YAML with positions, its plain scalars read as kubectl reads them (go-yaml), which is not as Python does."""

import re
from collections.abc import Iterator
from typing import Any, Final, cast

import yaml

from deepspeed_operator.dsconfig.tree import DEEPEST, Document, Node, ObjectMember, Problems, Scalar, UnreadableError

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_NODES: Final = 1_000_000  # aliases can make a small file endless
_TAG: Final = "tag:yaml.org,2002:"
_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_NOT_IN_JSON: Final = re.compile(r"\.(nan|NaN|NAN)|[-+]?\.(inf|Inf|INF)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INTEGERS: Final = (
    (re.compile(r"[-+]?(0|[1-9][0-9]{0,19})"), 10),
    (re.compile(r"[-+]?0[oO]?[0-7]{1,22}"), 8),
    (re.compile(r"[-+]?0[xX][0-9a-fA-F]{1,16}"), 16),
    (re.compile(r"[-+]?0[bB][01]{1,64}"), 2),
)
_INTEGER_BELOW: Final = (
    1e21  # the API server writes a whole number below this without a point: it comes back an integer
)


def parse_yaml(text: str) -> Iterator[Document]:
    """Yield the documents; raise UnreadableError at the first place that is not YAML."""
    try:
        yield from _Composer(text).documents()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UnreadableError(
            f"not valid YAML: {error.problem or error.context}", mark.index if mark else None
        ) from None
    except yaml.YAMLError as error:
        raise UnreadableError(
            f"not valid YAML: {str(error).splitlines()[0]}", getattr(error, "position", None)
        ) from None


class _Composer:
    def __init__(self, text: str) -> None:
        self.events: Iterator[Any] = iter(yaml.parse(text, Loader=_LOADER))
        self.anchors: dict[str, tuple[Node, int] | None] = {}  # the node and its size; None while it is open
        self.problems = Problems()
        self.size = 0

    def documents(self) -> Iterator[Document]:
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.anchors, self.problems, self.size = {}, Problems(), 0
                root = self._node(next(self.events), 1)
                yield Document(root, self.problems)

    def _node(self, event: Any, depth: int) -> Node:
        self.size += 1
        if depth > DEEPEST:
            raise UnreadableError("nested too deeply to be a configuration", _span(event)[0], "Check its brackets.")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        anchor, before = cast("str | None", event.anchor), self.size
        if anchor is not None:
            self.anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = Node(*_span(event), self._scalar(event), block=event.style in {"|", ">"})
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if anchor is not None:
            self.anchors[anchor] = (node, self.size - before + 1)
        return node

    def _alias(self, event: Any) -> Node:
        known = self.anchors.get(event.anchor)
        if known is None:
            what = "contains itself" if event.anchor in self.anchors else "is not defined before"
            raise UnreadableError(f"the anchor {event.anchor[:40]} {what}", _span(event)[0])
        node, size = known
        self.size += size
        if self.size > _MOST_NODES:
            raise UnreadableError("aliases make this document endless", _span(event)[0])
        return Node(*_span(event), node.value, node.members, node.items)

    def _sequence(self, event: Any, depth: int) -> Node:
        items: list[Node] = []
        for inner in self.events:
            if isinstance(inner, yaml.SequenceEndEvent):
                end = _span(inner)[1] if event.flow_style else _last_end(items, event)
                return Node(_span(event)[0], end, items=items, block=not event.flow_style)
            items.append(self._node(inner, depth + 1))
        raise AssertionError("the parser ends what it begins")

    def _mapping(self, event: Any, depth: int) -> Node:
        members: dict[str, ObjectMember] = {}
        repeated: dict[str, list[tuple[int, int]]] = {}
        merged: list[Node] = []
        for inner in self.events:
            if isinstance(inner, yaml.MappingEndEvent):
                end = _span(inner)[1]
                if not event.flow_style:
                    end = _last_end([member.node for member in members.values()], event)
                for other in merged:
                    for key, member in (other.members or {}).items():
                        members.setdefault(key, member)
                self.problems.repeated(repeated, "; only the last would count.")
                return Node(_span(event)[0], end, members=members, block=not event.flow_style)
            if isinstance(inner, yaml.ScalarEvent) and inner.value == "<<" and inner.implicit[0]:
                merged += self._merged(self._node(next(self.events), depth + 1), inner)
                continue
            key = self._key(inner)
            span = _span(inner)
            node = self._node(next(self.events), depth + 1)
            if key in members:
                repeated.setdefault(key, [(members[key].start, members[key].end)]).append(span)
            members[key] = ObjectMember(key, *span, node)
        raise AssertionError("the parser ends what it begins")

    def _merged(self, node: Node, event: Any) -> list[Node]:
        nodes = node.items if node.items is not None else [node]
        if any(each.members is None for each in nodes):
            raise UnreadableError("<< merges mappings only", _span(event)[0])
        return nodes

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise UnreadableError("a key must be a word, not a list, a mapping or an alias", _span(event)[0])
        key = self._scalar(event)
        if key is None:
            raise UnreadableError("a key is missing, or null", _span(event)[0], "Write a name before the colon.")
        if isinstance(key, bool):
            return "true" if key else "false"
        return str(key)

    def _scalar(self, event: Any) -> Scalar:
        text, tag = cast(str, event.value), cast("str | None", event.tag)
        span = _span(event)
        if tag is None:
            return self._plain(text, span) if event.implicit[0] else text
        if tag not in {f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null")}:
            return text
        value = self._plain(text, span)
        kinds: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
        if not isinstance(value, kinds.get(tag.removeprefix(_TAG), (type(None),))):
            raise UnreadableError(f"{text[:40]} is not of the type that its tag says", span[0])
        return value

    def _plain(self, text: str, span: tuple[int, int]) -> Scalar:
        if text in _WORDS:
            return _WORDS[text]
        if _NOT_IN_JSON.fullmatch(text):
            message = f"{text} is not a number that JSON or DeepSpeed knows."
            self.problems.note(message, "Write a finite number.", span)
            return float(text.replace(".", ""))
        if text[0] not in "+-.0123456789":
            return text
        number = _number(text)
        if number == float("inf") or number == float("-inf"):
            message = f"{text[:40]} is too large for a number; Kubernetes keeps it as text."
            self.problems.note(message, "Write a finite number.", span)
            return text
        return text if number is None else number


def _number(text: str) -> int | float | None:
    digits = text if text[0] == "." else text.replace("_", "")
    for pattern, base in _INTEGERS:
        if pattern.fullmatch(digits):
            value = int(re.sub(r"^([-+]?)0[oO]?(?=[0-7])", r"\1", digits) if base == 8 else digits, base)
            return value if -(2**63) <= value < 2**63 else _stored(float(value))
    return _stored(float(digits)) if _FLOAT.fullmatch(digits) else None


def _stored(value: float) -> int | float:
    """A number as it comes back from the API server: a whole one without a point, in its shortest digits."""
    if abs(value) >= _INTEGER_BELOW or value != int(value):
        return value
    digits, _, exponent = repr(value).partition("e+")
    whole, _, fraction = digits.partition(".")
    return int(f"{whole}{fraction}") * 10 ** (int(exponent) - len(fraction)) if exponent else int(value)


def _span(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


def _last_end(nodes: list[Node], event: Any) -> int:
    """A block ends with its last value; the parser counts the empty lines and comments after it."""
    return max((node.end for node in nodes), default=_span(event)[1])
