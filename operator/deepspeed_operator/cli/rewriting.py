"""The configurations of a file, rewritten in its text for another DeepSpeed version."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.cli.edits import CannotEditError, edited_text
from deepspeed_operator.cli.places import Embedded, embed
from deepspeed_operator.cli.sources import Content, Format, Item, content_of, data_of, source_of, values
from deepspeed_operator.dsconfig.mended import mended
from deepspeed_operator.dsconfig.migration import Config, Edit, Path, Put, Step, edited, steps
from deepspeed_operator.dsconfig.tree import UnreadableError, plain
from deepspeed_operator.dsconfig.versions import numbers_of


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was done to one configuration; `obstacle` says why its text stayed as it was."""

    title: str
    old: str | None
    steps: tuple[Step, ...]
    obstacle: str | None = None


class Place(Protocol):
    """Where in a text a configuration stands."""

    def config(self, text: str) -> Config: ...

    def apply(self, text: str, edit: Edit) -> str: ...


def rewritten(content: Content, old: str | None, new: str, *, keep_defaults: bool) -> tuple[str, list[Rewritten]]:
    """Return the file's new text, and what was done to each configuration in it."""
    name, text = content.source.name, content.source.text.content
    results: list[Rewritten] = []
    for index, item in enumerate(content.items):
        document = _InDocument(name, index)
        title, declared = "ds_config", None
        if item.is_job:
            job = values(item.root)
            declared = object_at(job, "spec").get("deepspeedVersion")
            title = f"DeepSpeedJob {object_at(job, 'metadata').get('name')}"
        place = _place_of(content, item, document)
        begin = old or (declared if isinstance(declared, str) else None)
        obstacle = _obstacle(place, begin, new)
        if place is None or obstacle is not None:
            results.append(Rewritten(title, begin, (), obstacle))
            continue
        text, done = _rewrite(text, place, title, begin, new, keep_defaults=keep_defaults)
        results.append(done)
        if declared is not None and done.obstacle is None:
            text = document.apply(text, Put(("spec", "deepspeedVersion"), new))
    return text, results


def _obstacle(place: Place | None, old: str | None, new: str) -> str | None:
    """Return why a configuration is left as it is."""
    if place is None:
        return "its configuration is not in this file"
    if old is not None and (numbers_of(old) or ()) > (numbers_of(new) or ()):
        return f"it is for {old}, and configurations are rewritten for newer versions only"
    return None


def with_values(content: Content, index: int, values_at: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Return the file's text with values at dotted paths of its `index`th configuration, and facts of its spec.model.

    Facts are left out where the file says nothing of the model.
    """
    place = _place_of(content, content.items[index], _InDocument(content.source.name, index))
    if place is None:
        raise CannotEditError("its configuration is not in this file")
    text = content.source.text.content
    for path, value in values_at.items():
        text = _changed(text, place, place.config(text), (_put(place.config(text), path, value),))
    model = _InDocument(content.source.name, index, ("spec", "model"))
    if not object_at(values(content.items[index].root), *model.prefix):
        return text
    for name, value in facts.items():
        text = _changed(text, model, model.config(text), (Put((name,), value),))
    return text


def _put(config: Config, path: str, value: Any) -> Put:
    """What puts a value there, with the sections around it that are missing."""
    keys = path.split(".")
    for depth in range(1, len(keys)):
        if not object_at(config, *keys[:depth]):
            for name in reversed(keys[depth:]):
                value = {name: value}
            return Put(tuple(keys[:depth]), value)
    return Put(tuple(keys), value)


def _rewrite(
    text: str, place: Place, title: str, old: str | None, new: str, *, keep_defaults: bool
) -> tuple[str, Rewritten]:
    found: tuple[Step, ...] = ()
    try:
        config = place.config(text)
        found = (*steps(config, old, new), *mended(config, old, new))
        changed = _changed(text, place, config, tuple(_edits(found, keep_defaults)))
    except (CannotEditError, UnreadableError) as error:
        return text, Rewritten(title, old, found, str(error))
    return changed, Rewritten(title, old, found)


def _changed(text: str, place: Place, config: Config, edits: tuple[Edit, ...]) -> str:
    for edit in edits:
        text = place.apply(text, edit)
    if place.config(text) != edited(config, edits):
        raise CannotEditError("the rewritten text would not say what was meant")
    return text


def _edits(found: tuple[Step, ...], keep_defaults: bool) -> Iterator[Edit]:
    for step in found:
        yield from step.edits
        if keep_defaults:
            yield from step.keeping


def _place_of(content: Content, item: Item, document: "_InDocument") -> Place | None:
    if not item.is_job:
        return document
    job = values(item.root)
    if object_at(job, "spec").get("dsConfig") is not None:
        return _InDocument(document.name, document.index, ("spec", "dsConfig"))
    wanted = object_at(job, "spec", "dsConfigFrom")
    name, key = wanted.get("configMap"), wanted.get("key", "ds_config.json")
    namespace = object_at(job, "metadata").get("namespace", "default")
    if isinstance(name, str) and data_of(content, str(namespace), name) is not None:
        return _InConfigMap(document.name, str(namespace), name, str(key))
    return None


@dataclass(frozen=True, slots=True)
class _InDocument:
    """An object of a document of the file."""

    name: str
    index: int
    prefix: Path = ()

    def config(self, text: str) -> Config:
        item = self._item(text)
        if item.problems:
            raise CannotEditError("its text has errors; see dsjob validate")
        config: Any = plain(item.root)
        for key in self.prefix:
            config = config[key]
        if not isinstance(config, dict):
            raise CannotEditError(f"{'.'.join(self.prefix)} is not an object")
        return cast(Config, config)

    def apply(self, text: str, edit: Edit) -> str:
        item = self._item(text)
        return edited_text(text, item.root, item.source.format, edit.below(self.prefix))

    def _item(self, text: str) -> Item:
        return content_of(source_of(self.name, text)).items[self.index]


@dataclass(frozen=True, slots=True)
class _InConfigMap:
    """The text of a ConfigMap's key in the file."""

    name: str
    namespace: str
    config_map: str
    key: str

    def config(self, text: str) -> Config:
        document = self._embedded(text).document
        if document is None or document.problems or document.root.members is None:
            raise CannotEditError(f"{self.key} of ConfigMap {self.config_map} has errors; see dsjob validate")
        return plain(document.root)

    def apply(self, text: str, edit: Edit) -> str:
        embedded = self._embedded(text)
        block, document = embedded.block(), embedded.document
        if block is None or document is None:
            raise CannotEditError(f"{self.key} of ConfigMap {self.config_map} is not a block after |")
        first, indent = block
        begin = embedded.text.start(first)
        old = embedded.content.rstrip("\n")
        end = embedded.text.start(first + old.count("\n"))
        end += len(embedded.text.line(first + old.count("\n")))
        new = edited_text(old, document.root, Format.JSON, edit)
        return text[:begin] + "\n".join(f"{' ' * indent}{line}".rstrip() for line in new.split("\n")) + text[end:]

    def _embedded(self, text: str) -> Embedded:
        content = content_of(source_of(self.name, text))
        data = data_of(content, self.namespace, self.config_map)
        member = (data.members or {}).get(self.key) if data is not None else None
        if member is None:
            raise CannotEditError(f"ConfigMap {self.config_map} has no key {self.key}")
        return embed(content.source.text, member)
