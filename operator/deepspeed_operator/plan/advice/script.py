"""What a script does otherwise in an alternative, which no configuration of DeepSpeed says: how it uses the model."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from deepspeed_operator.api.facts import Quantization
from deepspeed_operator.plan.model.architecture import Model
from deepspeed_operator.plan.model.declared import quantized


@dataclass(frozen=True, slots=True)
class Script:
    """None: as before. `quantization`: how frozen parameters are stored."""

    checkpointing: bool | None = None
    quantization: Quantization | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """What to write in the script, by the names of transformers."""
        found: list[str] = []
        if self.quantization is not None:
            bits = "load_in_4bit" if self.quantization is Quantization.NF4 else "load_in_8bit"
            found.append(f"{self.quantization} by bitsandbytes ({bits})")
        if self.checkpointing is not None:
            found.append(f"{'' if self.checkpointing else 'no '}activation checkpointing")
        return tuple(found)

    @property
    def facts(self) -> dict[str, Any]:
        """What spec.model says of it."""
        found: dict[str, Any] = {}
        if self.checkpointing is not None:
            found["activationCheckpointing"] = self.checkpointing
        if self.quantization is not None:
            found["quantization"] = self.quantization.value
        return found

    def used(self, model: Model) -> Model:
        """Return the model as this script uses it."""
        if self.quantization is not None:
            model = quantized(model, self.quantization)
        if self.checkpointing is None:
            return model
        return replace(model, usage=replace(model.usage, checkpointing=self.checkpointing))


AS_IT_IS = Script()
# What bitsandbytes and stage 3 do together. PEFT 0.10 with bitsandbytes 0.43, as PEFT's page on DeepSpeed says;
# DeepSpeed's issue 5660. The loss of adapters beside Int8 was ten times too high: bitsandbytes' issue 1451.
NF4_AT_STAGE_3: Final = (
    "stage 3 divides NF4 only where bnb_4bit_quant_storage is the type of the other parameters, and each rank loads "
    "the whole model first"
)
INT8_AT_STAGE_3: Final = "with bitsandbytes' Int8 adapters train wrongly at stage 3: take NF4, or stage 2"


def scripts(model: Model) -> Iterator[Script]:
    """Yield what is worth a look: checkpointing on or off and, where all but adapters is frozen, less for a number."""
    if model.shape is None or model.usage.sequence is None:
        return  # of what activations take, nothing is known
    toggled = Script(checkpointing=not model.usage.checkpointing)
    yield toggled
    if model.usage.adapted and model.usage.quantized is None:
        for kind in (Quantization.INT8, Quantization.NF4):
            yield Script(quantization=kind)
            yield replace(toggled, quantization=kind)
