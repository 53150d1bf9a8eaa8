"""Files → what is in them: jobs, configurations, and ConfigMaps that jobs may refer to."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any, Final

from deepspeed_operator.api.names import GROUP, KIND
from deepspeed_operator.dsconfig.batch import KEYS
from deepspeed_operator.dsconfig.hjson import parse_hjson
from deepspeed_operator.dsconfig.tree import Document, Node, Problem, Problems, Text, UnreadableError, plain

STDIN: Final = "-"
_WRITE: Final = "Write a DeepSpeedJob or a configuration."
_LARGEST: Final = 16 * 1024 * 1024
_MANIFEST: Final = re.compile(r"^(---|(apiVersion|kind)[ \t]*:)", re.MULTILINE)
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json", ".hjson", ".jsonc"})
# YAML is written for everything: a configuration has one of these, or it would not need to be one.
_TELLTALE: Final = frozenset({*KEYS, "zero_optimization", "fp16", "bf16", "optimizer", "scheduler"})
_BEGINS_WITH_BRACE: Final = re.compile(r"(\s+|#[^\n]*|//[^\n]*)*+\{")


class Format(StrEnum):
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file's text, as it was written."""

    name: str
    text: Text
    format: Format


@dataclass(frozen=True, slots=True)
class Item:
    """A DeepSpeedJob, or a configuration by itself, and where it stands."""

    source: SourceText
    root: Node
    problems: tuple[Problem, ...]
    is_job: bool

    @property
    def kind(self) -> str:
        return KIND if self.is_job else "ds_config"


@dataclass(slots=True)
class Content:
    """What a file has for us."""

    source: SourceText
    items: list[Item] = field(default_factory=list[Item])
    config_maps: dict[tuple[str, str], Node] = field(default_factory=dict[tuple[str, str], Node])
    others: int = 0


def files_in(name: str) -> list[str] | None:
    """Return the YAML and JSON files of a directory, not of those below it; None where the name is no directory's."""
    directory = Path(name)
    if not directory.is_dir():
        return None
    return sorted(str(path) for path in directory.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def without_others(content: Content) -> Content:
    """Leave out objects that nobody has called a configuration and that look like none."""
    items = [item for item in content.items if item.is_job or (item.root.members or {}).keys() & _TELLTALE]
    return replace(content, items=items)


def read(name: str) -> Content:
    """Read a file, or standard input for `-`; raise UnreadableError where it is neither job nor configuration."""
    return content_of(source_of(name, read_text(name)))


def read_text(name: str) -> str:
    """Return the text of a file, or of standard input for `-`; raise UnreadableError where it is none."""
    data = _bytes(name)
    if len(data) > _LARGEST:
        raise UnreadableError(f"larger than {_LARGEST // 2**20} MiB", fix="Name a job or a configuration.")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte {error.start} is {data[error.start]:#04x}"
        raise UnreadableError(message, fix="Save it as UTF-8.") from None


def source_of(name: str, text: str) -> SourceText:
    """Return the source, its format told by the name, else by how the text begins."""
    suffix = PurePath(name).suffix.lower()
    if suffix in {".yaml", ".yml"}:
        chosen = Format.YAML
    elif suffix in {".json", ".hjson", ".jsonc"} or _BEGINS_WITH_BRACE.match(text):
        chosen = Format.JSON
    else:
        chosen = Format.YAML if _MANIFEST.search(text) else Format.JSON
    return SourceText(name, Text(text), chosen)


def content_of(source: SourceText) -> Content:
    """Sort the documents of a source."""
    if not source.text.content.strip():
        raise PlacedError(source, UnreadableError("the file is empty", fix=_WRITE))
    try:
        documents = _documents(source)
    except UnreadableError as error:
        raise PlacedError(source, error) from None
    content = Content(source)
    for document in documents:
        for single in _listed(document):
            _sort(content, single)
    if not content.items and not content.others and not content.config_maps:
        raise PlacedError(source, UnreadableError("there is no document in the file", fix=_WRITE))
    return content


def _documents(source: SourceText) -> list[Document]:
    if source.format is Format.JSON:
        return [parse_hjson(source.text.content)]
    # JSON is answered sooner without a YAML library.
    from deepspeed_operator.cli.kube_yaml import parse_yaml  # noqa: PLC0415

    return list(parse_yaml(source.text.content))


class PlacedError(UnreadableError):
    """An UnreadableError whose position is one in this source."""

    def __init__(self, source: SourceText, error: UnreadableError) -> None:
        super().__init__(error.message, error.position, error.fix)
        self.source = source


def _bytes(name: str) -> bytes:
    if name == STDIN:
        if sys.stdin is None:
            raise UnreadableError("standard input is closed")
        return sys.stdin.buffer.read(_LARGEST + 1)
    try:
        with Path(name).open("rb") as file:
            return file.read(_LARGEST + 1)
    except OSError as error:
        raise UnreadableError(error.strerror or str(error), fix="Name a file that can be read, or -.") from None


def _listed(document: Document) -> Iterator[Document]:
    """A `List` is the objects in it."""
    members = document.root.members or {}
    if _word(members, "kind") == "List" and "items" in members and members["items"].node.items is not None:
        for item in members["items"].node.items:
            yield Document(item, Problems(problem for problem in document.problems if _inside(problem, item)))
    else:
        yield document


def _inside(problem: Problem, node: Node) -> bool:
    return all(node.start <= start < node.end for start, _ in problem.spans)


def _sort(content: Content, document: Document) -> None:
    root = document.root
    if root.members is None:
        if root.items is None and root.value is None:
            return
        what = "a list" if root.items is not None else "a single value"
        message = f"the document is {what}, not a DeepSpeedJob or a configuration"
        raise PlacedError(content.source, UnreadableError(message, root.start, "Begin with { and end with }."))
    kind, version = _word(root.members, "kind"), _word(root.members, "apiVersion")
    if kind == "ConfigMap" and version == "v1":
        metadata = _members(root, "metadata")
        data = root.members.get("data")
        key = (_word(metadata, "namespace") or "", _word(metadata, "name") or "")
        content.config_maps[key] = data.node if data is not None else root
    is_job = kind == KIND or (version or "").startswith(f"{GROUP}/")
    is_config = content.source.format is Format.JSON or bool(root.members.keys() & _TELLTALE)
    if is_job or (kind is None and version is None and is_config):
        content.items.append(Item(content.source, root, tuple(document.problems), is_job))
    else:
        content.others += 1


def _members(node: Node, key: str) -> Mapping[str, Any]:
    member = (node.members or {}).get(key)
    return (member.node.members or {}) if member is not None else {}


def _word(members: Mapping[str, Any], key: str) -> str | None:
    member = members.get(key)
    return member.node.value if member is not None and isinstance(member.node.value, str) else None


def data_of(content: Content, namespace: str, name: str) -> Node | None:
    """Return the data of a ConfigMap in the file; one without a namespace is wherever the job is."""
    return content.config_maps.get((namespace, name)) or content.config_maps.get(("", name))


def values(node: Node) -> dict[str, Any]:
    """Return an object's values."""
    assert node.members is not None, "the caller has looked"
    return plain(node)
