"""Configurations made from real ones: wrong types and ranges, extra, removed and misspelt keys, other sections."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from deepspeed_operator.dsconfig.notation import model_in
from deepspeed_operator.dsconfig.schema import TOP, schema_of

Config = dict[str, Any]
Place = tuple[Config, str]

VALUES: Sequence[Any] = (
    *(None, True, False, 0, 1, 2, 3, 4, 7, 8, 16, -1, 64, 1000, 500_000_000, 10**12),
    *(0.0, 1.0, 0.5, -0.5, 1.5, 5e8, 1e-8, 2.0),
    *("", "auto", "true", "false", "1", "2", "0.5", "5e8", "cpu", "nvme", "none", "fp16", "bf16", "x", "warn", "sum"),
    *([], [1], [0.9, 0.999], ["x"], {}, {"enabled": True}, {"enabled": False}, {"device": "cpu"}, {"x": 1}),
)
_BATCHES = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256)
_BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


class Mutations:
    """Draws configurations for a version; the same seed draws the same ones."""

    def __init__(self, version: str, corpus: Sequence[Mapping[str, Any]], draw: random.Random) -> None:
        self._schema = schema_of(version)
        self._corpus = [dict(config) for config in corpus]
        self._draw = draw
        self._ways: list[Callable[[Config], None]] = [
            *[self._change] * 4,
            *[self._add_known] * 4,
            *(self._add_section, self._add_unknown, self._add_removed, self._graft),
            *(self._remove, self._misspell, self._batch),
        ]

    def next(self) -> Config:
        config = copy.deepcopy(self._draw.choice(self._corpus))
        if self._draw.random() < 0.7:
            # Most of the corpus leaves the batch to others; a mutation elsewhere would not be seen behind its refusal.
            for key in _BATCH_KEYS[1:]:
                config.pop(key, None)
            config["train_batch_size"] = self._draw.choice((64, 128, 256))
        for _ in range(self._draw.choice((1, 1, 1, 2, 2, 3))):
            self._draw.choice(self._ways)(config)
        return config

    def _places(self, config: Config) -> list[Place]:
        found: list[Place] = []
        for key, value in config.items():
            found.append((config, key))
            if isinstance(value, dict):
                found += self._places(cast(Config, value))
        return found

    def _change(self, config: Config) -> None:
        places = self._places(config)
        if places:
            section, key = self._draw.choice(places)
            section[key] = copy.deepcopy(self._draw.choice(VALUES))

    def _remove(self, config: Config) -> None:
        places = self._places(config)
        if places:
            section, key = self._draw.choice(places)
            del section[key]

    def _misspell(self, config: Config) -> None:
        places = self._places(config)
        if places:
            section, key = self._draw.choice(places)
            section[key[:-1] or "x"] = section.pop(key)

    def _add_unknown(self, config: Config) -> None:
        sections = [config, *(section[key] for section, key in self._places(config) if isinstance(section[key], dict))]
        self._draw.choice(sections)["unknown_key"] = copy.deepcopy(self._draw.choice(VALUES))

    def _add_known(self, config: Config) -> None:
        """A key that the version has, in its section."""
        path, keys = self._draw.choice(self._described())
        section = config
        for step in path:
            inner = section.setdefault(step, {})
            if not isinstance(inner, dict):
                return
            section = cast(Config, inner)
        section[self._draw.choice(keys)] = copy.deepcopy(self._draw.choice(VALUES))

    def _add_section(self, config: Config) -> None:
        """A whole section with several of its keys."""
        for _ in range(self._draw.choice((2, 3, 4))):
            self._add_known(config)

    def _add_removed(self, config: Config) -> None:
        if self._schema.removed:
            *path, key = self._draw.choice(sorted(self._schema.removed)).split(".")
            section = config.setdefault(path[0], {}) if path else config
            if isinstance(section, dict):
                section[key] = copy.deepcopy(self._draw.choice(VALUES))

    def _graft(self, config: Config) -> None:
        """A section of another configuration."""
        other = self._draw.choice(self._corpus)
        if other:
            key = self._draw.choice(sorted(other))
            config[key] = copy.deepcopy(other[key])

    def _batch(self, config: Config) -> None:
        for key in _BATCH_KEYS:
            if self._draw.random() < 0.5:
                config[key] = self._draw.choice((*_BATCHES, *VALUES))

    def _described(self) -> list[tuple[tuple[str, ...], list[str]]]:
        found: list[tuple[tuple[str, ...], list[str]]] = []
        for path, section in self._schema.sections.items():
            steps = tuple(path.split(".")) if path != TOP else ()
            found.append((steps, sorted(section.keys)))
            for key, entry in section.keys.items():
                if entry.model is not None:
                    found += self._model((*steps, key), entry.model)
        return [(steps, keys) for steps, keys in found if keys]

    def _model(self, steps: tuple[str, ...], model: str) -> list[tuple[tuple[str, ...], list[str]]]:
        fields = self._schema.models[model]["fields"]
        names = [*fields, *(info["alias"] for info in fields.values() if "alias" in info)]
        found = [(steps, sorted(names))]
        for name, info in fields.items():
            inner = model_in(info["type"])
            if inner is not None:
                found += self._model((*steps, info.get("alias", name)), inner)
        return found
