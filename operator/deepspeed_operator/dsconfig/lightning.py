"""What PyTorch Lightning's DeepSpeed strategy writes into a configuration, and what it or DeepSpeed then refuses.

Read from Lightning 2.0 to 2.6 (strategies/deepspeed.py): the accumulation always comes from its Trainer; the micro
batch size, clipping and precision do where the configuration has none. It fills in no "auto".
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.dsconfig.auto import FILLED
from deepspeed_operator.dsconfig.batch import ACCUMULATION, AUTO, MICRO, TRAIN, read_batch_keys
from deepspeed_operator.dsconfig.notes import Note, Path, advice, refused, warning, written

_CLIPPING: Final = "gradient_clipping"
_FROM_MODULE: Final = "Write a value, or remove the section: Lightning takes what configure_optimizers returns."
# Key of the top level → what to do instead of writing "auto" in it.
_INSTEAD: Final[Mapping[str, str]] = {
    TRAIN: "Remove it.",
    MICRO: "Remove it: Lightning takes the batch size of the data loader.",
    _CLIPPING: "Remove it, and write Trainer(gradient_clip_val=1.0), for example.",
    "optimizer": _FROM_MODULE,
    "scheduler": _FROM_MODULE,
    "fp16": 'Remove the section, and write Trainer(precision="16-mixed").',
    "bf16": 'Remove the section, and write Trainer(precision="bf16-mixed").',
}
# Where DeepSpeed passes over the word, and takes its default.
_PASSED_OVER: Final = frozenset({"fp16", "bf16", "zero_optimization"})


def as_filled_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with "auto" for what comes from Lightning's Trainer."""
    return {MICRO: AUTO, _CLIPPING: AUTO, **config, ACCUMULATION: AUTO}


def lightning_notes(config: Mapping[str, Any], autos: list[Path], divisor: int | None) -> Iterator[Note]:
    """Say what fails under Lightning, with the argument of its Trainer to use.

    `autos`: where the configuration says "auto". `divisor`: data-parallel ranks by which DeepSpeed divides the batch.
    """
    if ACCUMULATION in config:
        steps = config[ACCUMULATION]
        number = steps if isinstance(steps, int) and not isinstance(steps, bool) else 4
        message = "Lightning refuses it in a configuration: it is its Trainer's to say."
        fix = f"Remove it, and write Trainer(accumulate_grad_batches={number})."
        yield refused((ACCUMULATION,), Code.SET_BY_FRAMEWORK, message, fix)
    yield from (_auto(path) for path in autos if path != (ACCUMULATION,))
    yield from _sizes(config, divisor)
    if isinstance(config.get(_CLIPPING), int | float):
        message = "holds under Lightning, in place of its Trainer's gradient_clip_val."
        yield advice((_CLIPPING,), Code.SET_BY_FRAMEWORK, message, "Keep one of the two.")


def _auto(path: Path) -> Note:
    fix = _INSTEAD.get(str(path[0]), "Write a value, or remove it.")
    if written(path) not in FILLED or path[0] in _PASSED_OVER:
        message = 'Lightning fills in no "auto": DeepSpeed takes its default, or the word itself.'
        return warning(path, Code.AUTO_UNFILLED, message, fix)
    return refused(path, Code.AUTO_VALUES, 'Lightning fills in no "auto", and DeepSpeed fails on the word.', fix)


def _sizes(config: Mapping[str, Any], divisor: int | None) -> Iterator[Note]:
    """A train batch size beside a product that Lightning knows, and the configuration does not."""
    numbers = read_batch_keys(config).numbers
    train, micro = numbers.get(TRAIN), numbers.get(MICRO)
    if train is None or train <= 0 or (micro is not None and micro <= 0) or divisor is None:
        return
    steps, rest = divmod(train, (micro or 1) * divisor)
    fix = "Remove it: DeepSpeed multiplies the other three."
    if rest:
        whose = f"{MICRO} {micro} × {divisor} ranks" if micro else f"{divisor} ranks"
        message = f"{train} is no multiple of {whose}, whatever Lightning's Trainer accumulates."
        yield refused((TRAIN,), Code.BATCH_SIZE, message, fix)
    elif micro is None:
        message = f"has to be the data loader's batch size × accumulate_grad_batches × {divisor} ranks under Lightning."
        yield warning((TRAIN,), Code.SET_BY_FRAMEWORK, message, fix)
    elif steps > 1:
        message = f"needs Trainer(accumulate_grad_batches={steps}): DeepSpeed refuses any other product."
        yield warning((TRAIN,), Code.SET_BY_FRAMEWORK, message, fix)
