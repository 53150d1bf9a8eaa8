"""The type in which a model's matrices are multiplied."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.setup import Setup


class Precision(StrEnum):
    """FP32 is PyTorch's default of it: torch.backends.cuda.matmul.allow_tf32 is False since 1.12, so without TF32."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"


# As torch_autocast.dtype may be written, with or without torch in front of it.
_AUTOCAST: Final = {
    "bf16": Precision.BF16,
    "bfloat16": Precision.BF16,
    "fp32": Precision.FP32,
    "float32": Precision.FP32,
}


_HALVES: Final = (Precision.BF16.value, Precision.FP16.value)


def undecided(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections that a framework's arguments enable or not."""
    return tuple(name for name in _HALVES if object_at(config, name).get("enabled") == AUTO)


def decided(
    config: Mapping[str, Any], half: Precision = Precision.BF16, chosen: Precision | None = None
) -> Mapping[str, Any]:
    """Return the configuration with what it leaves undecided: as it is chosen, else in 16 bits.

    `half`: the 16-bit type that the GPU's tensor cores multiply. Who writes such a section means to train in 16 bits.
    """
    names = undecided(config)
    if not names:
        return config
    fixed = any(object_at(config, name).get("enabled") is True for name in _HALVES)
    usual = half.value if half.value in names else Precision.FP16.value
    wanted = None if fixed else chosen.value if chosen is not None else usual
    return {**config, **{name: {**object_at(config, name), "enabled": name == wanted} for name in names}}


def precision_of(setup: Setup) -> Precision:
    """Return what a configuration makes the passes compute in; autocast's default on GPUs is fp16, as Apex AMP's."""
    if setup.bf16 or setup.fp16:
        return Precision.BF16 if setup.bf16 else Precision.FP16
    if setup.section("amp").get("enabled"):
        return Precision.FP16
    autocast = setup.section("torch_autocast")
    if autocast.get("enabled"):
        return _AUTOCAST.get(str(autocast.get("dtype")).removeprefix("torch."), Precision.FP16)
    return Precision.FP32
