"""The learning-rate scheduler that a configuration asks for, and whether the engine can make it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.nearest import nearest
from deepspeed_operator.dsconfig.notes import Note, Path, Phase, error
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.dsconfig.wording import quoted

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "WarmupDecayLR": ("total_num_steps",),
    "WarmupCosineLR": ("total_num_steps",),
    "OneCycle": ("cycle_min_lr", "cycle_max_lr"),
}
_STEPS: Final = "warmup_num_steps"


def scheduler_notes(setup: Setup) -> Iterator[Note]:
    section = setup.section("scheduler")
    name: Any = section.get("type")
    if not isinstance(name, str):
        return
    if name not in setup.schema.schedulers | setup.schema.torch_schedulers:
        close = nearest(name, setup.schema.schedulers | setup.schema.torch_schedulers)
        message = f"DeepSpeed does not recognize the scheduler {quoted(name)}, nor does torch.optim.lr_scheduler."
        yield _refused(("type",), "scheduler", message, f"Write {close}." if close else "Write WarmupLR, for example.")
        return
    parameters: Any = section.get("params")
    if not isinstance(parameters, dict):
        message = "is missing: DeepSpeed passes it on as arguments, and fails without it."
        yield _refused(("params",), "missing", message, "Write params: {…}.")
        return
    yield from _parameters(setup, name, cast(Mapping[str, Any], parameters))


def _parameters(setup: Setup, name: str, parameters: Mapping[str, Any]) -> Iterator[Note]:
    accepted = setup.schema.scheduler_params.get(name, tuple(parameters))
    for key in parameters:
        if key not in accepted:
            close = nearest(key, accepted)
            message = f"{name} has no such parameter: it fails when the engine starts."
            yield _refused(("params", key), "unknown-key", message, f"Write {close}." if close else f"Remove {key}.")
    for key in _REQUIRED.get(name, ()):
        if key not in parameters:
            yield _refused(("params", key), "missing", f"is missing, and {name} needs it.", f"Write {key}.")
    steps = parameters.get(_STEPS)
    checked = name.startswith("Warmup") and setup.schema.starts_refusing(_STEPS)
    if checked and _STEPS in parameters and steps != AUTO and not (isinstance(steps, int) and steps > 0):
        message = f"must be a whole number above 0, not {quoted(steps)}."
        yield _refused(("params", _STEPS), "type", message, f"Write {_STEPS}: 1000, for example.")


def _refused(path: Path, rule: str, message: str, fix: str) -> Note:
    return error(("scheduler", *path), rule, message, fix, Phase.ENGINE)
