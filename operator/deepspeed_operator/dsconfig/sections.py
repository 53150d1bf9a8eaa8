"""All sections of a configuration, read as DeepSpeed reads them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.auto import FILLED
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.compression import GROUPS, group_notes
from deepspeed_operator.dsconfig.intent import intended, written_instead
from deepspeed_operator.dsconfig.kinds import OBJECT, accepted_words, kind_of
from deepspeed_operator.dsconfig.misspelt import misspelt
from deepspeed_operator.dsconfig.nearest import NearNames, misplaced_or_nearest
from deepspeed_operator.dsconfig.notes import CheckPhase, Note, Path, error, warning, written
from deepspeed_operator.dsconfig.schema import TOP, Key, Schema, Section
from deepspeed_operator.dsconfig.strict import Coerced, read_model
from deepspeed_operator.dsconfig.wording import quoted

Values = Mapping[str, Any]

# Their keys are arguments of an optimizer or a scheduler, or names of the user's.
_PIPELINE: Final = "pipeline"
_ZERO, _BUCKET, _OLD_BUCKET = "zero_optimization", "allgather_bucket_size", "allgather_size"
_REENTRANT: Final = "use_reentrant"  # read by the pipeline's engine, and without a default
_OPEN: Final = frozenset({"optimizer.params", "scheduler.params"})
_NAMED_BY_USERS: Final = (GROUPS, "curriculum_metrics", "curriculum_learning", "random_ltd")
# Why a key that is known is not read.
_UNREAD: Final = {
    "bfloat16": "is silently ignored: bf16 is given too.",
    "optimizer.params": "is silently ignored: an optimizer without a type is none.",
}


class Reading:
    """The sections of one configuration: what is wrong with them, and the values of the strict ones."""

    def __init__(self, schema: Schema, config: Values) -> None:
        self.schema = schema
        self.config = config
        self.near = NearNames()
        self.notes: list[Note] = []
        self.models: dict[str, Coerced] = {}
        self._visit((), config)

    def _visit(self, path: Path, values: Values) -> None:
        name = written(path)
        if path and path[-1] == GROUPS:
            self.notes += group_notes(values, path)
        section = self.schema.sections.get(name)
        if section is None:
            return
        enabled = "enabled" in section.keys and bool(values.get("enabled"))
        needed = bool(values.get("type")) if "type" in section.keys else enabled
        self._require(section, path, values, enabled, needed)
        for key, value in values.items():
            here = (*path, key)
            if (f"{name}.{key}" if name else key) in self.schema.removed:
                self.notes.append(self._removed(here))
            elif here == (_OLD_BUCKET,) and self.config.get(_ZERO) is True:
                self._judge_old_bucket(here, value)
            elif key not in section.keys:
                self._unknown(name, here)
            elif self._unread(here):
                self.notes.append(warning(here, Code.IGNORED_KEY, _UNREAD[written(here)], f"Remove {key}."))
            else:
                self._judge(section.keys[key], here, value, enabled, needed)

    def _unread(self, path: Path) -> bool:
        """Whether DeepSpeed passes over this key because of another."""
        if path == ("bfloat16",):
            model = self.schema.sections[TOP].keys["bf16"].model
            return self.config.get("bf16") is not None if model is not None else "bf16" in self.config
        return path == ("optimizer", "params") and self.config["optimizer"].get("type") is None

    def _judge(self, entry: Key, path: Path, value: object, enabled: bool, needed: bool) -> None:
        inner = _object(value)
        if entry.model is not None and inner is not None:
            section = written(path)
            removed = [key for key in inner if f"{section}.{key}" in self.schema.removed]
            self.notes += [self._removed((*path, key)) for key in removed]
            kept = {key: item for key, item in inner.items() if key not in removed}
            notes, self.models[section] = read_model(self.schema, entry.model, kept, path, self.near)
            self.notes += notes
            return
        if path == (_PIPELINE,) and inner is not None:
            for key in inner:
                if key not in self.schema.pipeline and key != _REENTRANT:
                    self._unknown(_PIPELINE, (*path, key))
            return
        if inner is not None and (written(path) in self.schema.sections or path[-1] in _NAMED_BY_USERS):
            self._visit(path, inner)
            return
        filled = value == AUTO and written(path) in FILLED
        refused = "" if filled else entry.refused(value, enabled, needed)
        if refused:
            is_section = entry.model is not None or written(path) in self.schema.sections
            self.notes.append(_refused(entry, path, value, refused, self.near, is_section=is_section))
        elif isinstance(value, str):
            self.notes += _texts(entry, path, value)

    def _judge_old_bucket(self, path: Path, value: object) -> None:
        """Where ZeRO's section is true, as years ago, DeepSpeed reads this key as one of the section."""
        model = self.schema.sections[TOP].keys[_ZERO].model
        assert model is not None, "ZeRO's section is a strict one in every version"
        notes, _ = read_model(self.schema, model, {_BUCKET: value}, path, self.near)
        fix = f"Write {_ZERO}: {{stage: 1}}, or a whole number here."
        self.notes += [replace(note, path=path, fix=fix) for note in notes]

    def _removed(self, path: Path) -> Note:
        said = self.schema.removed[written(path)].strip()
        message = f"DeepSpeed refuses this key, whatever its value: {said}"
        return error(path, Code.REMOVED_KEY, message, f"Remove {path[-1]}.")

    def _unknown(self, section: str, path: Path) -> None:
        if section in _OPEN:
            return
        if any(step in _NAMED_BY_USERS for step in path[:-1]):
            return
        meant = misspelt(self.schema, self.config, str(path[-1])) if section == TOP else None
        if meant is not None:
            message = f"DeepSpeed does not read this key, and would train without {meant}, which it is nearest to."
            fix = f"Write {meant}. If it is a key of your own program, rename it."
            self.notes.append(Note(Level.ERROR, path, Code.MISSPELT_KEY, message, fix, CheckPhase.SILENT))
            return
        hint, fix = misplaced_or_nearest(self.schema, section, str(path[-1]), self.near)
        message = f"DeepSpeed does not read this key: it is silently ignored{hint}."
        self.notes.append(warning(path, Code.IGNORED_KEY, message, fix or f"Remove {path[-1]}, or check its name."))

    def _require(self, section: Section, path: Path, values: Values, enabled: bool, needed: bool) -> None:
        contexts = ["", *(["enabled"] if enabled else []), *(["needed"] if needed else [])]
        missing = {key for context in contexts for key in section.requires.get(context, ()) if key not in values}
        self.notes += [
            error((*path, key), Code.MISSING_KEY, f"is missing, and {written(path)} needs it.", f"Write {key}.")
            for key in sorted(missing)
        ]


def _refused(entry: Key, path: Path, value: object, refused: str, near: NearNames, *, is_section: bool) -> Note:
    choices = [choice for choice in entry.choices if choice != AUTO]
    words = f"one of {', '.join(choices)}" if choices else accepted_words(refused, entry.default)
    meant: object = near.nearest(value, choices) if isinstance(value, str) else None
    if meant is None:
        meant = intended(entry.default_type, value)
    if meant is not None and kind_of(meant) in refused:
        meant = None
    message = f"must be {OBJECT if is_section else words}, not {quoted(value)}."
    return error(path, Code.INVALID_VALUE, message, written_instead(path[-1], meant, entry.default))


def _texts(entry: Key, path: Path, value: str) -> Iterator[Note]:
    """What DeepSpeed does not check: text where it expects something else."""
    if value == AUTO or value in entry.choices or isinstance(entry.default, str | None):
        return
    if isinstance(entry.default, bool):
        message = f"{quoted(value)} is text, which DeepSpeed takes for {'true' if value else 'false'}."
        meant = intended(bool, value)
        chosen = "true, or false" if meant is None else quoted(meant)
        fix = f"Write {path[-1]}: {chosen}, without quotes."
    else:
        message = f"{quoted(value)} is text where DeepSpeed expects a number: it fails later, or never compares equal."
        meant = intended(entry.default_type, value)
        chosen = f"{quoted(entry.default)}, for example" if meant is None else quoted(meant)
        fix = f"Write {path[-1]}: {chosen}, without quotes."
    yield warning(path, Code.LOOSE_TYPE, message, fix)


def _object(value: object) -> Values | None:
    return cast(Values, value) if isinstance(value, dict) else None
