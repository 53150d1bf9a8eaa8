"""What the planner expects of a configuration of bench/gpu."""

import json
from collections.abc import Mapping
from typing import Any, Final

from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.activations import activations
from deepspeed_operator.plan.memory.peaks import Memory, memory
from deepspeed_operator.plan.model.architecture import Model
from deepspeed_operator.plan.model.declared import model_of
from deepspeed_operator.plan.traffic.communication import Traffic, communication

WORLD: Final = 2
VERSION: Final = "0.19.8"
# bench/gpu/recipe.yaml among the configurations that are timed.
RECIPE: Final = "large-s2-g4"
TARGETS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def lines(text: str) -> list[dict[str, Any]]:
    """The objects of JSON lines."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def setup_and_model(record: Mapping[str, Any]) -> tuple[Setup, Model]:
    """A configuration's record, as the planner reads it."""
    facts: dict[str, Any] = {
        **(record.get("declared") or {"fromConfig": record["model_config"]}),
        "sequenceLength": record["sequence"],
        "attention": "Eager" if record["attention"] == "eager" else "SDPA",
        "activationCheckpointing": record["checkpointing"],
    }
    if record["lora"]:
        facts["lora"] = {"rank": record["lora"], "targets": list(TARGETS)}
    return setup_of(record["ds_config"], world_of(record), VERSION), model_of(ModelFacts.model_validate(facts))


def world_of(record: Mapping[str, Any]) -> int:
    """Return the ranks that were measured; a configuration that was not is for two."""
    return len(record["ranks"]) if "ranks" in record else record.get("world", WORLD)


def expected_memory(record: Mapping[str, Any]) -> Memory:
    """Each phase's peak on a GPU."""
    setup, model = setup_and_model(record)
    return memory(setup, model, record["micro"], record["accumulation"])


# How a narrow model's saved bytes are counted: in numbers of so many bytes, and what a job would say of it.
SAVED: Final[Mapping[str, tuple[int, Mapping[str, Any]]]] = {
    "bf16": (2, {"attention": "SDPA"}),
    "eager": (2, {"attention": "Eager"}),
    "fp32": (4, {"attention": "SDPA"}),
    "checkpointing": (2, {"attention": "SDPA", "activationCheckpointing": True}),
}
_SAMPLES: Final = 2
_TOKENS: Final = 128
_NO_SDPA: Final = ("gpt_oss",)


def expected_saved(record: Mapping[str, Any], usage: str) -> float:
    """Bytes of a token that autograd saves of a narrow model."""
    width, facts = SAVED[usage]
    if record["model_config"]["model_type"] in _NO_SDPA:
        facts = {**facts, "attention": "Eager"}
    said = {"fromConfig": record["model_config"], "sequenceLength": _TOKENS, **facts}
    found = activations(model_of(ModelFacts.model_validate(said)), _SAMPLES, width)
    return (found.kept + found.logits) / (_SAMPLES * _TOKENS)


def parameters_of(record: Mapping[str, Any]) -> int:
    """Parameters of a narrow model."""
    return model_of(ModelFacts.model_validate({"fromConfig": record["model_config"]})).parameters


def expected_traffic(record: Mapping[str, Any], nodes: int = 1) -> Traffic:
    """One step's payload."""
    setup, model = setup_and_model(record)
    return communication(setup, model, record["accumulation"], slots=world_of(record) // nodes)
