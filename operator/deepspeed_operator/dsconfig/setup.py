"""A configuration as DeepSpeed would hold it, with the world it will run in: what rules ask."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.auto import FILLED
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.parallelism import Division
from deepspeed_operator.dsconfig.schema import TOP, Schema
from deepspeed_operator.dsconfig.versions import Numbers

ZERO: Final = "zero_optimization"
FP16: Final = frozenset({"fp16", "float16", "half", "torch.float16"})


class ZeroStage(IntEnum):
    """What ZeRO partitions between data-parallel ranks. Each stage partitions what the ones before it do, too."""

    DISABLED = 0
    OPTIMIZER_STATES = 1
    GRADIENTS = 2
    PARAMETERS = 3


def written_stage(config: Mapping[str, Any]) -> object:
    """Return the stage that a configuration asks for, as it is written there: perhaps "auto", or no number."""
    section = config.get(ZERO)
    return int(section) if isinstance(section, bool) else object_at(section).get("stage", 0)


@dataclass(frozen=True)
class Setup:
    """`models` holds what the strict sections came to; a section that was refused, or is not given, has no values.

    `declared`: the version that will train, where the schema may be of an older one that judges it; None: the schema's.
    """

    schema: Schema
    config: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]
    division: Division
    world: int
    accelerator: str | None = None
    integration: Integration | None = None
    declared: Numbers | None = None

    @property
    def version(self) -> Numbers:
        return self.declared or self.schema.numbers

    @property
    def zero(self) -> Mapping[str, Any]:
        return self.models.get(ZERO, {})

    @cached_property
    def stage(self) -> ZeroStage:
        given = self.config.get(ZERO)
        if isinstance(given, bool):
            return ZeroStage(given)
        written = object_at(given).get("stage")
        # Where the section is refused, what it asks for is still the stage that other keys were meant for.
        meant = written if not self.zero and written in tuple(ZeroStage) else self.zero.get("stage")
        return ZeroStage(int(meant or 0))

    @property
    def name_of_inner_tp(self) -> str:
        """The name by which the file has the section inside tensor_parallel."""
        return "tp" if "tp" in self.section("tensor_parallel") else "tensor_parallel"

    @cached_property
    def fp16(self) -> bool:
        return self.on("fp16", "enabled")

    @cached_property
    def bf16(self) -> bool:
        return self.on("bf16", "enabled")

    @property
    def autocasts_to_fp16(self) -> bool:
        written = self.section("torch_autocast").get("dtype")
        return self.on("torch_autocast", "enabled") and isinstance(written, str) and written in FP16

    @property
    def names_optimizer(self) -> bool:
        """Whether an optimizer is made from the configuration; without one, a script may do no more than evaluate."""
        return self.section("optimizer").get("type") is not None

    @property
    def accumulates_in_fp32(self) -> bool:
        """Whether gradients are to be added up in fp32; the names that DeepSpeed takes for it."""
        return self.section("data_types").get("grad_accum_dtype") in ("fp32", "float32", "torch.float32", "float")

    @property
    def data_ranks(self) -> int:
        """Ranks that see different samples; all, where it is not known how they divide."""
        return self.division.shards or self.world

    def value(self, section: str, key: str) -> Any:
        """Return what DeepSpeed takes for a key of a section: given, or its default. What is filled in is not known."""
        entry = self.schema.sections[TOP].keys.get(section)
        if entry is None:
            return None
        section = self._bf16_name(entry.model) if section == "bf16" else section
        if entry.model is not None:
            found = self.models.get(section, {}).get(key)
            if found is not None:
                return found
            return self.schema.models[entry.model]["fields"].get(key, {}).get("default")
        described = self.schema.sections.get(section)
        default = described.keys[key].default if described is not None and key in described.keys else None
        found = self.section(section).get(key, default)
        return default if found == AUTO and f"{section}.{key}" in FILLED else found

    def on(self, section: str, key: str) -> bool:
        return bool(self.value(section, key))

    def plain(self, key: str) -> Any:
        """Return what DeepSpeed takes for a key of the top level; None for one that the version does not read."""
        entry = self.schema.sections[TOP].keys.get(key)
        if entry is None:
            return None
        found = self.config.get(key, entry.default)
        return entry.default if found == AUTO else found

    def section(self, name: str) -> Mapping[str, Any]:
        return object_at(self.config.get(name))

    def _bf16_name(self, model: str | None) -> str:
        """Older versions take the first of the two names that is there, newer ones the first that is not null."""
        there = self.config.get("bf16") is not None if model is not None else "bf16" in self.config
        return "bf16" if there or "bfloat16" not in self.config else "bfloat16"
