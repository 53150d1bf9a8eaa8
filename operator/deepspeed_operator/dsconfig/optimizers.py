"""The optimizer that a configuration asks for, and whether the engine can make it."""

from collections.abc import Iterator
from typing import Any, Final

from deepspeed_operator.dsconfig.nearest import nearest
from deepspeed_operator.dsconfig.notes import Note, Path, Phase, error
from deepspeed_operator.dsconfig.offload import uses_cpu_optimizer
from deepspeed_operator.dsconfig.setup import ZERO, Setup
from deepspeed_operator.dsconfig.wording import quoted

_TYPE: Final[Path] = ("optimizer", "type")
_PARAMS: Final[Path] = ("optimizer", "params")
_TESTED_WITH_ZERO: Final = frozenset({"adam", "adamw", "adagrad", "lion", "muon"})
_ONE_BIT: Final = frozenset({"onebitadam", "onebitlamb", "zerooneadam"})
_PARAMETERS: Final = 3


def optimizer_notes(setup: Setup) -> Iterator[Note]:
    name: Any = setup.section("optimizer").get("type")
    if not isinstance(name, str):
        return
    known = name.lower() if name.lower() in setup.schema.optimizers else None
    if known is None and name not in setup.schema.torch_optimizers:
        yield _unknown(setup, name)
        return
    yield from _parameters(setup)
    yield from _precision(setup, known)
    yield from _zero(setup, name, known)
    if setup.accelerator == "cpu":
        yield from _on_cpus(setup, name, known)


def _refused(path: Path, rule: str, message: str, fix: str) -> Note:
    return error(path, rule, message, fix, Phase.ENGINE)


def _unknown(setup: Setup, name: str) -> Note:
    if name.lower() in _ONE_BIT:
        message = f"{name} has been removed, as all 1-bit optimizers."
        return _refused(_TYPE, "optimizer", message, "Write AdamW.")
    close = nearest(name, setup.schema.torch_optimizers) or nearest(name.lower(), setup.schema.optimizers)
    message = f"{quoted(name)} is not a supported DeepSpeed Optimizer, nor the name of one in torch.optim."
    return _refused(_TYPE, "optimizer", message, f"Write {close}." if close else "Write AdamW, for example.")


def _parameters(setup: Setup) -> Iterator[Note]:
    parameters: Any = setup.section("optimizer").get("params")
    if isinstance(parameters, dict) and "max_grad_norm" in parameters:
        message = "is refused as an optimizer's parameter when the engine starts."
        yield _refused(
            ("optimizer", "params", "max_grad_norm"), "clipping", message, "Write gradient_clipping instead."
        )


def _precision(setup: Setup, known: str | None) -> Iterator[Note]:
    if known == "lamb" and setup.fp16 and setup.value("fp16", "loss_scale"):
        message = "lamb requires dynamic loss scaling."
        yield _refused(("fp16", "loss_scale"), "lamb", message, "Write loss_scale: 0.")


def _zero(setup: Setup, name: str, known: str | None) -> Iterator[Note]:
    if setup.stage == 0:
        return
    if known in _ONE_BIT:
        yield _refused(_TYPE, "zero", f"{name} is not compatible with ZeRO.", f"Write AdamW, or {ZERO}.stage: 0.")
    elif known not in _TESTED_WITH_ZERO and not setup.plain("zero_allow_untested_optimizer"):
        message = f"{name} is untested with ZeRO, and DeepSpeed refuses it unless told otherwise."
        yield _refused(_TYPE, "zero", message, "Write zero_allow_untested_optimizer: true, or use AdamW.")
    scattered = setup.stage == _PARAMETERS and setup.on(ZERO, "reduce_scatter")
    if known == "muon" and scattered and setup.schema.starts_refusing("muon_and_reduce_scatter"):
        message = "Muon and reduce scatter cannot be used together at ZeRO stage 3."
        yield _refused((ZERO, "reduce_scatter"), "muon", message, "Write reduce_scatter: false.")


def _on_cpus(setup: Setup, name: str, known: str | None) -> Iterator[Note]:
    missing = known == "lamb" or (known == "lion" and not uses_cpu_optimizer(setup))
    if missing:
        message = f"{name} is not implemented for CPUs."
        yield _refused(_TYPE, "device", message, "Write AdamW.")
