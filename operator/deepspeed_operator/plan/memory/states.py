"""What a GPU holds between steps, when the engine is made, and while the optimizer steps. No activations here.

Follows the constructors and step() of runtime/fp16/fused_optimizer.py, fp16/unfused_optimizer.py, bf16_optimizer.py,
zero/stage_1_and_2.py and zero/stage3.py of DeepSpeed 0.15.4 to 0.19.8.
"""

from collections.abc import Iterator
from typing import Final

from deepspeed_operator.dsconfig.setup import ZERO
from deepspeed_operator.plan.engine.gathers import kept_whole
from deepspeed_operator.plan.engine.wrappers import Wrapper, keeps_gradients
from deepspeed_operator.plan.memory.sizes import FP32, NORM, MemoryItem, Sizes, bucket_width

Items = list[MemoryItem]
_GATHERED_IN_PLACE: Final = (0, 18, 5)
_FLATTENS_IN_PLACE: Final = (0, 18, 7)


def states(sizes: Sizes) -> Items:
    """Return what stays from step to step."""
    return [item for item in _states(sizes) if item.size]


def _states(sizes: Sizes) -> Iterator[MemoryItem]:
    yield _parameters(sizes)
    states = sizes.optimizer.states
    match sizes.wrapper:
        case Wrapper.NONE:
            yield MemoryItem("optimizer states", sizes.trained * states)
        case Wrapper.FP16 | Wrapper.UNFUSED:
            yield MemoryItem("parameters in fp32", sizes.trained * FP32)
            yield MemoryItem("optimizer states", sizes.trained * states)
        case Wrapper.BF16:
            yield MemoryItem("parameters in fp32, divided", sizes.part * FP32)
            yield MemoryItem("optimizer states, divided", sizes.part * states)
            yield MemoryItem("summed gradients", sizes.trained * sizes.sums)
            if keeps_gradients(sizes.setup, sizes.wrapper):
                yield MemoryItem("gradients", sizes.trained * sizes.width)
        case Wrapper.ZERO:
            if sizes.offloaded:
                yield MemoryItem("buffer of the largest gradient", sizes.largest * sizes.width)
            else:
                yield from _divided(sizes)
        case Wrapper.ZERO_3:
            yield _small(sizes)
            yield MemoryItem("reduce bucket", sizes.bucket * bucket_width(sizes))
            if not sizes.offloaded:
                yield from _divided(sizes)
                yield MemoryItem("gradients, divided", sizes.part * sizes.sums)


def _divided(sizes: Sizes) -> Iterator[MemoryItem]:
    yield MemoryItem("parameters in fp32, divided", sizes.part * FP32)
    yield MemoryItem("optimizer states, divided", sizes.part * sizes.optimizer.states)


def _parameters(sizes: Sizes) -> MemoryItem:
    if sizes.wrapper is not Wrapper.ZERO_3:
        return MemoryItem("parameters", sizes.parameters)
    return MemoryItem("parameters, divided", 0 if sizes.parameters_on_host else sizes.parameters / sizes.ranks)


def _small(sizes: Sizes) -> MemoryItem:
    """Return what stage 3 gathers for good once the optimizer has stepped; before it steps, it lets go of them."""
    small = sum(tensor.elements for tensor in kept_whole(sizes.setup, sizes.model)) if sizes.gathers else 0
    return MemoryItem("small parameters, whole", small * sizes.width)


def near_copy(sizes: Sizes) -> MemoryItem:
    """Return hpZ's copy of all parameters, divided among the ranks near by: ds_secondary_tensor.

    It is made when the engine is, and let go of as the optimizer's step ends, until the next gathers: neither between
    steps nor beside parameters on the host is it on the GPU.
    """
    size = 0 if sizes.near == 1 or sizes.parameters_on_host else sizes.parameters / sizes.near
    return MemoryItem("hpZ's copy of the parameters, divided", size)


def making(sizes: Sizes) -> Items:
    """Return the most that has to be there at once while the engine is made of a model that is on the GPU already.

    At stage 3 the model was divided when it was made, by zero.Init.
    """
    whole, parameters = sizes.trained * sizes.width, MemoryItem("parameters", sizes.parameters)
    part = [parameters, MemoryItem("parameters in fp32, divided", sizes.part * FP32)]
    match sizes.wrapper:
        case Wrapper.NONE:
            return [parameters]
        case Wrapper.FP16 | Wrapper.UNFUSED:
            # The first step of the optimizer makes its states, with gradients of zeros.
            full = [*states(sizes), MemoryItem("gradients of zeros in fp32", sizes.trained * FP32)]
            if sizes.wrapper is Wrapper.UNFUSED:
                full.append(MemoryItem("gradients of zeros", whole))
            full.append(MemoryItem("copies of the optimizer's step", sizes.trained * sizes.optimizer.copies))
            return full
        case Wrapper.BF16:
            return most(_flat(sizes), [*part, MemoryItem("summed gradients", sizes.trained * sizes.sums)])
        case Wrapper.ZERO if sizes.offloaded:
            buffer = MemoryItem("buffer of the largest gradient", sizes.largest * sizes.width)
            return [parameters, MemoryItem("copy of a part of the parameters", sizes.part * sizes.width), buffer]
        case Wrapper.ZERO:
            return [*part, MemoryItem("gradients of zeros in fp32, divided", sizes.part * FP32)]
        case Wrapper.ZERO_3:
            return _making_stage_3(sizes)


def making_with_room(sizes: Sizes) -> Items:
    """Return the most that is there at once while the engine is made on a GPU with room for the parameters twice.

    DeepSpeedZeroOptimizer.__init__ (runtime/zero/stage_1_and_2.py) copies the trained parameters into a flat buffer: up
    to 0.18.6 on the host, since 0.18.7 on the GPU, but on the host where available_memory() is less than the buffer.
    """
    if sizes.wrapper is not Wrapper.ZERO or sizes.setup.schema.numbers < _FLATTENS_IN_PLACE:
        return making(sizes)
    return most(_flat(sizes), making(sizes))


def _flat(sizes: Sizes) -> Items:
    whole = sizes.trained * sizes.width
    return [MemoryItem("parameters", sizes.parameters), MemoryItem("flat copy of the parameters", whole)]


def _making_stage_3(sizes: Sizes) -> Items:
    # Last of all each trained parameter is gathered for a moment, to make the hook that takes its gradient.
    last = [_parameters(sizes), MemoryItem("reduce bucket", sizes.bucket * bucket_width(sizes)), _gathered_alone(sizes)]
    if sizes.offloaded:
        return last
    here = [_parameters(sizes), MemoryItem("parameters in fp32, divided", sizes.part * FP32)]
    return most(
        [*here, MemoryItem("copy of a sub-group in fp32", sub_group(sizes) * FP32)],
        [*last, here[-1], MemoryItem("gradients, divided", sizes.part * sizes.sums)],
    )


def _gathered_alone(sizes: Sizes) -> MemoryItem:
    """Return the largest parameter, gathered alone: before 0.18.5 it was copied out of a buffer as large."""
    whole = sizes.largest * sizes.width
    if sizes.setup.schema.numbers < _GATHERED_IN_PLACE:
        beside = whole
    else:
        beside = whole / sizes.ranks if sizes.parameters_on_host else 0
    return MemoryItem("largest parameter, whole", whole + beside)


def sub_group(sizes: Sizes) -> int:
    """Return the parameters of a rank that stage 3 updates at once."""
    # A group is full with the tensor that reaches the limit.
    return min(sizes.part, int(sizes.setup.value(ZERO, "sub_group_size")) + sizes.largest // sizes.ranks)


def stepping(sizes: Sizes) -> Items:
    """Return the most that is there at once while the optimizer steps."""
    held, copies = states(sizes), sizes.optimizer.copies
    match sizes.wrapper:
        case Wrapper.NONE:
            held.append(MemoryItem("gradients", sizes.trained * sizes.width))
            return _with_copies(held, sizes.trained * copies)
        case Wrapper.FP16:
            held.append(MemoryItem("gradients", sizes.trained * sizes.width))
            held.append(MemoryItem("gradients in fp32, one by one", sizes.trained * FP32))
            return [*held, MemoryItem("gradients in fp32, flat", sizes.trained * FP32)]
        case Wrapper.UNFUSED:
            held.append(MemoryItem("gradients", sizes.trained * sizes.width))
            held.append(MemoryItem("gradients in fp32", sizes.trained * FP32))
            return _with_copies(held, sizes.trained * copies)
        case Wrapper.BF16:
            if not keeps_gradients(sizes.setup, sizes.wrapper):
                held.append(MemoryItem("gradients", sizes.trained * sizes.width))
            if sizes.sums < FP32:
                held.append(MemoryItem("gradients in fp32, divided", sizes.part * FP32))
            return _with_copies(held, sizes.part * copies)
        case Wrapper.ZERO:
            return held if sizes.offloaded else _stepping_divided(sizes, held)
        case Wrapper.ZERO_3:
            return _stepping_stage_3(sizes, held)


def _stepping_stage_3(sizes: Sizes, held: Items) -> Items:
    small, group = _small(sizes), sub_group(sizes)
    from_host = small.size / sizes.ranks if sizes.parameters_on_host else 0
    after = [*held, MemoryItem("parts of small parameters", from_host)]
    if sizes.offloaded:
        return after
    there = [item for item in held if item.what != small.what]
    flat = MemoryItem("gradients of a sub-group, flat", group * sizes.sums if sizes.sums < FP32 else 0)
    full = MemoryItem("gradients of a sub-group in fp32", group * FP32)
    return most(
        [*there, MemoryItem("gradient's norm", NORM * sizes.largest / sizes.ranks)],
        [*there, flat, full],
        _with_copies([*there, full], group * sizes.optimizer.copies),
        after,
    )


def _stepping_divided(sizes: Sizes, held: Items) -> Items:
    apart = sizes.sums > sizes.width
    summed = MemoryItem("gradients, divided", sizes.part * sizes.sums if apart else sizes.touched * sizes.width)
    norm = MemoryItem("gradient's norm", NORM * min(sizes.largest, sizes.part))
    full = MemoryItem("gradients in fp32, divided", sizes.part * FP32)
    at_last = _with_copies([*held, full], sizes.part * sizes.optimizer.copies)
    if apart:
        # The sums are one flat buffer, and fp32: nothing is copied.
        return most([*held, summed, norm], at_last)
    flat = MemoryItem("gradients, flat", sizes.part * sizes.width)
    converted = [full] if sizes.width < FP32 else []
    return most([*held, summed, norm], [*held, summed, flat, *converted], at_last)


def _with_copies(items: Items, size: float) -> Items:
    return [*items, MemoryItem("copies of the optimizer's step", size)]


def most(*choices: Items) -> Items:
    """Return the choice that takes most memory."""
    return max(choices, key=total)


def total(items: Items) -> float:
    """Bytes of all items."""
    return sum(item.size for item in items)
