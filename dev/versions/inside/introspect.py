"""Prints the schema of the installed DeepSpeed's configuration, as JSON.

Sections with a pydantic model are described from it. Of the others it is noted which keys DeepSpeed asks for, and every
key is tried with a value of every kind: what is refused is DeepSpeed's own answer, whatever its code looks like.
"""

# pyright: basic, reportMissingImports=false

import ast
import inspect
import json
import pathlib
from collections.abc import Callable
from typing import Any

import deepspeed_config  # isort: skip  makes every version importable
import arguments
import deepspeed
import models as pydantic_models
import torch
from asked import Asked, Asking, Path
from deepspeed.runtime import lr_schedules
from pydantic import ValidationError
from rules import engine_checks, expert_words, measured

from deepspeed_operator.dsconfig.kinds import PROBES

APART: set[Path] = {
    ("train_batch_size",),
    ("train_micro_batch_size_per_gpu",),
    ("gradient_accumulation_steps",),
    ("sequence_parallel_size",),
    ("fp16", "fp16_master_weights_and_grads"),
    ("aio", "use_gds"),
}
# Without these a section is not looked into.
NEEDED: dict[Path, dict[str, Any]] = {
    ("optimizer",): {"type": "Adam"},
    ("scheduler",): {"type": "WarmupLR"},
    ("fp16",): {"enabled": True, "initial_scale_power": 16},
    ("expert_parallel",): {"enabled": True},
}
_DEEPEST = 5
_LINED = 3
_PROBE = "probe"

Wrap = Callable[[Any], dict[str, Any]]


def main() -> None:
    schema: dict[str, Any] = {"version": deepspeed.__version__.split("+")[0], "models": {}, "sections": {}}
    removed = getattr(deepspeed_config.config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {})
    removed_zero = getattr(deepspeed_config.config, "_REMOVED_ZERO_CONFIG_KEYS", {})
    schema["removed"] = {**removed, **{f"zero_optimization.{key}": text for key, text in removed_zero.items()}}
    _Explorer(schema).explore((), lambda values: {"train_batch_size": 1, **values})
    # Read by deepspeed.initialize, before the configuration class sees the file.
    schema["sections"][""]["keys"].setdefault("data_parallel_size", {})
    schema["pipeline"] = sorted(deepspeed_config.config.get_pipeline_config({}))
    schema["optimizers"] = sorted(deepspeed_config.config.DEEPSPEED_OPTIMIZERS)
    schema["schedulers"] = sorted(lr_schedules.VALID_LR_SCHEDULES)
    schema["scheduler_params"] = {name: _arguments(name) for name in lr_schedules.VALID_LR_SCHEDULES}
    schema["torch_optimizers"] = _classes(torch.optim, torch.optim.Optimizer)
    others = (name for name in schema["torch_optimizers"] if name.lower() not in schema["optimizers"])
    schema["optimizer_params"] = arguments.accepted([*schema["optimizers"], *others])
    schema["torch"] = ".".join(torch.__version__.split(".")[:2])
    schema["torch_schedulers"] = _classes(torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler)
    package = _package()
    schema["rules"] = {**measured(), "engine": engine_checks(package), "expert_words": expert_words(package)}
    print(_lines(schema), file=deepspeed_config.answers)


class _Explorer:
    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._candidates = _constants()

    def explore(self, path: Path, wrap: Wrap) -> None:
        """Describe the section at `path`, and those below it."""
        found = self._asked(path, wrap({}))
        for values in ({"enabled": True} if "enabled" in found else None, NEEDED.get(path)):
            found.update(self._asked(path, wrap(dict(values))) if values is not None else {})
        if not found or len(path) > _DEEPEST:
            return
        section: dict[str, Any] = {"keys": {}}
        self._schema["sections"][".".join(path)] = section
        for name, values in (("", {}), ("enabled", {"enabled": True}), ("needed", NEEDED.get(path))):
            if values is None or (name == "enabled" and "enabled" not in found):
                continue
            self._probe_in(path, wrap, section, name, values, found)
        for key in sorted(found):
            if self._apart((*path, key)):
                continue
            inside = lambda value, key=key: wrap({**NEEDED.get(path, {}), **self._working(wrap, found), key: value})  # noqa: E731
            model = self._model(inside)
            if model is not None:
                section["keys"].setdefault(key, {})["model"] = pydantic_models.described(model, self._schema["models"])
            elif (*path, key) != ("elasticity",):  # it computes batch sizes: not described by its keys
                self.explore((*path, key), inside)

    def _apart(self, path: Path) -> bool:
        """Not to be tried: what is removed is refused anyway; what depends on other keys has rules of its own."""
        return path in APART or ".".join(path) in self._schema["removed"]

    def _working(self, wrap: Wrap, found: dict[str, Any]) -> dict[str, Any]:
        """What makes DeepSpeed look at the most of a section, of what it accepts."""
        tries: list[dict[str, Any]] = [{"enabled": True}] if "enabled" in found else []
        for values in (*tries, {}):
            accepted = self._accepted(wrap, values, found)
            if accepted is not None:
                return accepted
        return {}

    def _probe_in(  # noqa: PLR0917
        self, path: Path, wrap: Wrap, section: dict[str, Any], name: str, values: dict[str, Any], found: dict[str, Any]
    ) -> None:
        context = self._accepted(wrap, values, found)
        if context is None:
            return
        required = sorted(set(context) - set(values))
        if required:
            section.setdefault("requires", {})[name] = required
            self._refused(wrap, context, "enabled", section)
        for key, default in sorted(found.items()):
            if self._apart((*path, key)):
                if ".".join((*path, key)) not in self._schema["removed"]:
                    section["keys"].setdefault(key, {})
                continue
            entry = section["keys"].setdefault(key, {})
            if type(default) in (bool, int, float, str) and not name:
                entry["default"] = default
            if key in values:
                continue
            self._refused(wrap, context, key, section, "refuses" if not name else f"refuses_{name}")

    def _refused(
        self, wrap: Wrap, context: dict[str, Any], key: str, section: dict[str, Any], name: str = "refuses"
    ) -> None:
        inside = lambda value: wrap({**context, key: value})  # noqa: E731
        refused = "".join(kind for kind, value in PROBES.items() if not deepspeed_config.read(inside(value)).ok)
        entry = section["keys"].setdefault(key, {})
        entry.pop(name, None)
        if name == "refuses" and refused:
            entry.update({name: refused, **self._choices(inside, refused)})
        elif name != "refuses" and refused != entry.get("refuses", ""):
            entry[name] = refused

    def _choices(self, wrap: Wrap, refused: str) -> dict[str, Any]:
        """The strings that are accepted where an arbitrary one is not."""
        if "s" not in refused:
            return {}
        accepted = {text for text in self._candidates if deepspeed_config.read(wrap(text)).ok}
        accepted = {text for text in accepted if "d" in refused or not text.isdigit()}
        folded = {text for text in accepted if text.swapcase() in accepted}
        if accepted and folded == accepted:
            return {"choices": sorted({text.lower() for text in accepted}), "any_case": True}
        return {"choices": sorted(accepted)} if accepted else {}

    def _accepted(self, wrap: Wrap, values: dict[str, Any], found: dict[str, Any]) -> dict[str, Any] | None:
        """These values, with what DeepSpeed requires beside them."""
        if deepspeed_config.read(wrap({**values})).ok:
            return values
        for key in sorted(found):
            for value in (False, {}, 1, [], "probe"):
                if key not in values and deepspeed_config.read(wrap({**values, key: value})).ok:
                    return {**values, key: value}
        return None

    def _asked(self, path: Path, values: dict[str, Any]) -> dict[str, Any]:
        asked: Asked = {}
        deepspeed_config.read_itself(Asking(values, (), asked))
        return asked.get(path, {})

    def _model(self, wrap: Wrap) -> Any:
        """The pydantic model that refuses an unknown key of a section."""
        error = deepspeed_config.read(wrap({_PROBE: 1})).error
        if not isinstance(error, ValidationError):
            return None
        for line in error.errors():
            if line["type"] == "extra_forbidden" and line["loc"][-1] == _PROBE:
                return pydantic_models.found(error.title, tuple(str(step) for step in line["loc"][:-1]))
        return None


def _lines(values: Any, depth: int = 0) -> str:
    """JSON with a line for each key of a section or field of a model, so that versions can be compared by eye."""
    if not isinstance(values, dict) or not values or depth > _LINED:
        return json.dumps(values, sort_keys=True, separators=(",", ":"))
    lines = (f'{" " * depth} "{key}":{_lines(values[key], depth + 1)}' for key in sorted(values))
    return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"


def _constants() -> list[str]:
    """Strings in DeepSpeed's configuration code, in both cases: the candidates for a key with a choice of words."""
    root = _package()
    files = [root / "runtime" / "config.py", root / "inference" / "config.py", *root.glob("*/constants.py")]
    files += root.glob("runtime/*/constants.py")
    words: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 30:
                words |= {node.value, node.value.lower(), node.value.upper(), node.value.swapcase()}
    return sorted(words - {""})


def _package() -> pathlib.Path:
    return pathlib.Path(inspect.getfile(deepspeed)).parent


def _classes(module: Any, base: type) -> list[str]:
    found = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    return sorted(name for name, value in found.items() if issubclass(value, base) and value is not base)


def _arguments(scheduler: str) -> list[str]:
    """What a scheduler takes besides the optimizer."""
    return list(inspect.signature(getattr(lr_schedules, scheduler)).parameters)[1:]


if __name__ == "__main__":
    main()
