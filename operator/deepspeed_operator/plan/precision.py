"""The type in which a model's matrices are multiplied."""

from enum import StrEnum
from typing import Final

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
