"""The optimizer that a configuration asks for, and whether the engine can make it."""

from collections.abc import Iterator
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.nearest import NearNames, nearest
from deepspeed_operator.dsconfig.notes import Note, Path, refused, warning
from deepspeed_operator.dsconfig.offload import ADAMS, uses_cpu_optimizer
from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage
from deepspeed_operator.dsconfig.wording import quoted

_TYPE: Final[Path] = ("optimizer", "type")
_PARAMS: Final[Path] = ("optimizer", "params")
_TESTED_WITH_ZERO: Final = frozenset({"adam", "adamw", "adagrad", "lion", "muon"})
_NUMBERS: Final = frozenset({"lr", "eps", "weight_decay", "momentum", "max_coeff", "min_coeff", "muon_lr", "adam_lr"})
_BETAS: Final = 2
_ONE_BIT: Final = frozenset({"onebitadam", "onebitlamb", "zerooneadam"})
_CLIPPING: Final = "max_grad_norm"
_RATES: Final = frozenset({"lr", "muon_lr", "adam_lr"})
# Schedulers that put their own rates in place before the first step, whatever the optimizer was given.
_OWN_RATES: Final = frozenset({"WarmupLR", "WarmupDecayLR", "OneCycle", "LRRangeTest"})


def optimizer_notes(setup: Setup) -> Iterator[Note]:
    name: Any = setup.section("optimizer").get("type")
    if not isinstance(name, str):
        return
    known = name.lower() if name.lower() in setup.schema.optimizers else None
    if known is None and name not in setup.schema.torch_optimizers:
        yield _unknown(setup, name)
        return
    yield from _parameters(setup, name, known)
    if known == "muon" and setup.schema.starts_refusing("muon_is_compiled"):
        message = "is compiled by PyTorch in its first step, and fails in an image without a C++ compiler."
        fix = "Have g++ in the image, or set TORCHDYNAMO_SUPPRESS_ERRORS=1 in its environment, and it runs uncompiled."
        yield warning(_TYPE, Code.NEEDS_COMPILER, message, fix)
    yield from _precision(setup, known)
    yield from _zero(setup, name, known)
    if setup.accelerator == "cpu":
        yield from _on_cpus(setup, name, known)


def _unknown(setup: Setup, name: str) -> Note:
    if name.lower() in _ONE_BIT:
        message = f"{name} has been removed, as all 1-bit optimizers."
        return refused(_TYPE, Code.UNKNOWN_OPTIMIZER, message, "Write AdamW.")
    close = nearest(name, setup.schema.torch_optimizers) or nearest(name.lower(), setup.schema.optimizers)
    message = f"{quoted(name)} is not a supported DeepSpeed Optimizer, nor the name of one in torch.optim."
    return refused(_TYPE, Code.UNKNOWN_OPTIMIZER, message, f"Write {close}." if close else "Write AdamW, for example.")


def _parameters(setup: Setup, name: str, known: str | None) -> Iterator[Note]:
    for key, value in object_at(setup.section("optimizer"), "params").items():
        path: Path = (*_PARAMS, key)
        if key == _CLIPPING:
            message = "is refused as an optimizer's parameter when the engine starts."
            yield refused(path, Code.MAX_GRAD_NORM, message, "Write gradient_clipping instead.")
        elif key in _NUMBERS and isinstance(value, str) and value != AUTO:
            yield _no_number(setup, key, f"must be a number, not {quoted(value)}", "Write it without quotes.", known)
        elif key == "betas" and value != AUTO and not _are_betas(value):
            yield _no_number(setup, key, f"must be two numbers, not {quoted(value)}", "Write [0.9, 0.999].", known)
    yield from _arguments(setup, name, known)


def _no_number(setup: Setup, key: str, message: str, fix: str, known: str | None) -> Note:
    """An error, but where a scheduler replaces the value before anything computes with it."""
    section = setup.section("scheduler")
    scheduler: Any = section.get("type")
    cycles = scheduler == "OneCycle" and object_at(section, "params").get("cycle_momentum", True)
    replaced = scheduler in _OWN_RATES if key in _RATES else key == "betas" and cycles
    # PyTorch's optimizers compare it when they are made, and the host's pass it to compiled code.
    torch_adam = known in ADAMS and object_at(setup.section("optimizer"), "params").get("torch_adam")
    if not replaced or known in {None, "adagrad"} or torch_adam or uses_cpu_optimizer(setup):
        return refused((*_PARAMS, key), Code.INVALID_VALUE, f"{message}.", fix)
    message = f"{message}: some versions fail, others train because {scheduler} replaces it."
    return warning((*_PARAMS, key), Code.INVALID_VALUE, message, fix)


def _are_betas(value: object) -> bool:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return len(items) == _BETAS and all(isinstance(item, int | float) or item == AUTO for item in items)


def _arguments(setup: Setup, name: str, known: str | None) -> Iterator[Note]:
    """What the class refuses as an argument it does not have."""
    parameters = object_at(setup.section("optimizer"), "params")
    offloaded, torch_adam = uses_cpu_optimizer(setup), known in ADAMS and bool(parameters.get("torch_adam"))
    lists = setup.schema.optimizer_params.get(known or name)
    if lists is None:
        return
    taken = lists.get("torch" if torch_adam else "host" if offloaded else "device", lists["device"])
    of_torch = known is None or torch_adam or (known == "adagrad" and not offloaded)
    near = NearNames()
    where = " when it is offloaded" if offloaded and "host" in lists and not torch_adam else ""
    for key in parameters:
        if key not in taken and key != _CLIPPING:
            yield _no_argument(setup, f"{name}{where}", key, taken, near, of_torch=of_torch)
    refuses = not offloaded or (known in ADAMS and setup.schema.starts_refusing("amsgrad_on_cpus"))
    if parameters.get("amsgrad") and "amsgrad" in taken and refuses and not of_torch:
        message = f"DeepSpeed's {known} does not support the AMSGrad variant."
        yield refused((*_PARAMS, "amsgrad"), Code.UNSUPPORTED_AMSGRAD, message, "Remove it.")


def _no_argument(setup: Setup, name: str, key: str, taken: tuple[str, ...], near: NearNames, *, of_torch: bool) -> Note:
    path, close = (*_PARAMS, key), "lr" if key == "learning_rate" else near.nearest(key, taken)
    if of_torch and close is None:
        # The image may have another PyTorch than the one whose optimizers were asked.
        message = f"{name} of PyTorch {setup.schema.torch} has no such parameter, and fails with it."
        return warning(path, Code.UNKNOWN_KEY, message, f"Remove {key}, unless the image's PyTorch has it.")
    message = f"{name} has no such parameter: the engine fails."
    return refused(path, Code.UNKNOWN_KEY, message, f"Write {close}." if close else f"Remove {key}.")


def _precision(setup: Setup, known: str | None) -> Iterator[Note]:
    if known == "lamb" and setup.fp16 and setup.value("fp16", "loss_scale"):
        message = "lamb requires dynamic loss scaling."
        yield refused(("fp16", "loss_scale"), Code.NEEDS_DYNAMIC_LOSS_SCALE, message, "Write loss_scale: 0.")


def _zero(setup: Setup, name: str, known: str | None) -> Iterator[Note]:
    if setup.stage == 0:
        return
    if known in _ONE_BIT:
        yield refused(
            _TYPE, Code.NOT_WITH_ZERO, f"{name} is not compatible with ZeRO.", f"Write AdamW, or {ZERO}.stage: 0."
        )
    elif not _is_tested(setup, known) and not setup.plain("zero_allow_untested_optimizer"):
        message = f"{name} is untested with ZeRO, and DeepSpeed refuses it unless told otherwise."
        yield refused(
            _TYPE, Code.UNTESTED_OPTIMIZER, message, "Write zero_allow_untested_optimizer: true, or use AdamW."
        )
    if known == "muon" and setup.stage == ZeroStage.PARAMETERS and setup.schema.starts_refusing("muon_and_stage_3"):
        message = "this version's Muon does not work at ZeRO stage 3."
        yield refused(_TYPE, Code.ZERO_STAGE, message, f"Write {ZERO}.stage: 2, or use another optimizer.")
    scattered = setup.stage == ZeroStage.PARAMETERS and setup.on(ZERO, "reduce_scatter")
    if known == "muon" and scattered and setup.schema.starts_refusing("muon_and_reduce_scatter"):
        message = "Muon and reduce scatter cannot be used together at ZeRO stage 3."
        yield refused((ZERO, "reduce_scatter"), Code.NOT_WITH_MUON, message, "Write reduce_scatter: false.")


def _is_tested(setup: Setup, known: str | None) -> bool:
    """Whether the version has the optimizer in its list; the first with Muon looked for it in a module that is none."""
    return known in _TESTED_WITH_ZERO and not (known == "muon" and setup.schema.starts_refusing("muon_is_untested"))


def _on_cpus(setup: Setup, name: str, known: str | None) -> Iterator[Note]:
    if known in {"lamb", "lion"} or (known == "adagrad" and uses_cpu_optimizer(setup)):
        message = f"{name} is not implemented for CPUs."
        yield refused(_TYPE, Code.UNSUPPORTED_ACCELERATOR, message, "Write AdamW.")
