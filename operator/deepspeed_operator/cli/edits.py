"""Edits of a document's text that leave everything else as it was: order, comments, spaces."""

import json
import re
from typing import Any, Final

from deepspeed_operator.cli.sources import Format
from deepspeed_operator.dsconfig.migration import Edit, Path, Put, Remove, Rename
from deepspeed_operator.dsconfig.tree import Node, ObjectMember

_SPACE: Final = {
    Format.JSON: re.compile(r"(?:\s+|#[^\r\n]*|//[^\r\n]*|/\*(?s:.)*?\*/)*+"),
    Format.YAML: re.compile(r"(?:\s+|#[^\r\n]*)*+"),
}
_REST_OF_LINE: Final = {
    Format.JSON: re.compile(r"[ \t]*,?[ \t]*(?:#[^\r\n]*|//[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*)?(?=\r?\n|\Z)"),
    Format.YAML: re.compile(r"[ \t]*,?[ \t]*(?:#[^\r\n]*)?(?=\r?\n|\Z)"),
}
_BARE: Final = re.compile(r"[A-Za-z][-\w./]*|[0-9]+(\.[0-9]+){2,}")
_YAML_WORDS: Final = re.compile(r"(?i)(y|yes|n|no|on|off|true|false|null)")


class CannotEditError(ValueError):
    """The text has a form in which the edit has no place."""


def edited_text(text: str, root: Node, form: Format, edit: Edit) -> str:
    """Return the text with one edit done; `root` is its tree, and paths begin there."""
    section = _object_at(root, edit.path[:-1])
    assert section.members is not None, "_object_at returns objects"
    member = section.members.get(edit.path[-1])
    if isinstance(edit, Put) and member is None:
        return _Editor(text, form, section).append(edit.path[-1], edit.value)
    if member is None or not section.start <= member.start:
        raise CannotEditError(f"{'.'.join(edit.path)} stands elsewhere in the file")
    match edit:
        case Rename():
            key = _in_quotes_of(text, member, edit.name)
            return text[: member.start] + key + text[member.end :]
        case Put():
            value = written(edit.value, form)
            gap = " " if member.node.start == member.node.end else ""
            return text[: member.node.start] + gap + value + text[_end(text, member.node) :]
        case Remove():
            return _Editor(text, form, section).remove(member)


def written(value: Any, form: Format) -> str:
    """Return a value as a file of this format has it, on one line."""
    if isinstance(value, dict):
        pairs = (f"{_key(str(key), form)}: {written(item, form)}" for key, item in value.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return f"{{{', '.join(pairs)}}}"
    bare = form is Format.YAML and isinstance(value, str) and _is_bare(value)
    return str(value) if bare else json.dumps(value)


def _key(key: str, form: Format) -> str:
    return key if form is Format.YAML and _is_bare(key) else json.dumps(key)


def _is_bare(word: str) -> bool:
    return _BARE.fullmatch(word) is not None and _YAML_WORDS.fullmatch(word) is None


def _in_quotes_of(text: str, member: ObjectMember, name: str) -> str:
    quote = text[member.start]
    return f"{quote}{name}{quote}" if quote in {'"', "'"} else name


def _object_at(root: Node, path: Path) -> Node:
    node = root
    for key in path:
        member = (node.members or {}).get(key)
        if member is None:
            raise CannotEditError(f"{'.'.join(path)} is not in the file")
        node = member.node
    if node.members is None:
        raise CannotEditError(f"{'.'.join(path)} is not an object")
    return node


def _end(text: str, node: Node) -> int:
    """Where the value ends: a YAML block also counts the empty lines after it."""
    return node.start + len(text[node.start : node.end].rstrip()) if node.end > node.start else node.end


def _line_end(text: str, position: int) -> int:
    """The beginning of the next line, for a position before a line's end."""
    newline = text.find("\n", position)
    return len(text) if newline < 0 else newline + 1


class _Editor:
    """Edits one object of a text."""

    def __init__(self, text: str, form: Format, section: Node) -> None:
        self.text, self.form, self.section = text, form, section
        self.members = sorted((section.members or {}).values(), key=lambda member: member.start)

    def remove(self, member: ObjectMember) -> str:
        text, position = self.text, self.members.index(member)
        if len(self.members) == 1:
            return text[: self.section.start] + "{}" + text[_end(text, self.section) :]
        before = self.members[position - 1] if position == len(self.members) - 1 else None
        begin, end = member.start, _end(text, member.node)
        line_begin = text.rfind("\n", 0, begin) + 1
        rest = _REST_OF_LINE[self.form].match(text, end)
        if not text[line_begin:begin].strip() and rest is not None:
            begin, end = line_begin, _line_end(text, rest.end())
        else:
            end = self._after_comma(end)
            end = len(text) - len(text[end:].lstrip(" \t"))
            if text[end : end + 1] in {"", "\r", "\n"} or before is not None:
                begin = len(text[:begin].rstrip(" \t"))
        comma = self._comma(_end(text, before.node)) if before is not None and not self.section.block else None
        if comma is not None and comma < begin:
            return text[:comma] + text[comma + 1 : begin] + text[end:]
        return text[:begin] + text[end:]

    def append(self, key: str, value: Any) -> str:
        text, section = self.text, self.section
        if not self.members:
            return text[: section.start] + f"{{{self._pair(key, value, None)}}}" + text[_end(text, section) :]
        last = self.members[-1]
        pair, end = self._pair(key, value, last), _end(text, last.node)
        line_begin = text.rfind("\n", 0, last.start) + 1
        indent = text[line_begin : last.start]
        line_end = "\r\n" if "\r\n" in text else "\n"
        if section.block:
            rest = _REST_OF_LINE[Format.YAML].match(text, end)
            place = rest.end() if rest is not None else len(text)
            return text[:place] + line_end + " " * len(indent) + pair + text[place:]
        if indent.strip() or line_begin <= section.start < last.start:
            return text[:end] + f", {pair}" + text[end:]
        comma = self._comma(end)
        trailing = "," if comma is not None else ""  # as the last member had one
        if comma is None and not self._quoteless(last):
            text, comma = text[:end] + "," + text[end:], end
        after = end if comma is None else comma + 1
        rest = re.compile(r"[ \t]*(?:#[^\r\n]*|//[^\r\n]*)?").match(text, after)
        place = rest.end() if rest is not None else after
        return text[:place] + line_end + indent + pair + trailing + text[place:]

    def _pair(self, key: str, value: Any, like: ObjectMember | None) -> str:
        name = _in_quotes_of(self.text, like, key) if like is not None else _key(key, self.form)
        return f"{name}: {written(value, self.form)}"

    def _quoteless(self, member: ObjectMember) -> bool:
        """A hjson string without quotes would take a comma for its own."""
        return isinstance(member.node.value, str) and self.text[member.node.start] not in {'"', "'"}

    def _comma(self, position: int) -> int | None:
        found = _SPACE[self.form].match(self.text, position)
        place = found.end() if found is not None else position
        return place if self.text[place : place + 1] == "," else None

    def _after_comma(self, position: int) -> int:
        comma = self._comma(position)
        return position if comma is None else comma + 1
