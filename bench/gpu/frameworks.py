"""What is measured under transformers' Trainer."""

from collections.abc import Mapping
from typing import Any, Final

from bench.gpu.configurations import Configuration

# Widths at which a GPU has done a module before the host has started the next one.
_NARROW: Final = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1000,
}
_NARROW_GPT2: Final = {"n_embd": 256, "n_inner": 1024, "n_head": 4, "vocab_size": 1000, "n_positions": 512}
# Else a narrow model's tensors are all so small that each rank keeps them.
_GATHERED: Final = {"stage3_param_persistence_threshold": 2560}


def _narrow(name: str, model: str, stage: int, *, framework: str = "trainer", **fields: Any) -> Configuration:
    widths: Mapping[str, Any] = _NARROW_GPT2 if model.startswith("gpt2") else _NARROW
    return Configuration(
        name,
        model,
        stage,
        micro=1,
        sequence=128,
        framework=framework,
        zero=_GATHERED if stage == 3 else {},
        overrides={**widths, **fields.pop("overrides", {})},
        **fields,
    )


def host() -> tuple[Configuration, ...]:
    """In order of importance; then two of a usual width, as the larger of host and GPU is to be told apart."""
    return (
        *(_narrow(f"mistral-s{stage}-g4", "mistral", stage, accumulation=4) for stage in (2, 3, 0, 1)),
        *(_narrow(f"loop-mistral-s{stage}-g4", "mistral", stage, accumulation=4, framework="") for stage in (2, 3, 0)),
        Configuration("wide-mistral-s2-g4", "mistral", 2, accumulation=4, framework="trainer"),
        Configuration("wide-mistral-s3-g4", "mistral", 3, accumulation=4, framework="trainer"),
        *(_narrow(f"mistral-s{stage}-g1", "mistral", stage) for stage in (2, 3)),
        *(
            _narrow(f"mistral-half-s{stage}-g4", "mistral", stage, accumulation=4, overrides={"num_hidden_layers": 11})
            for stage in (2, 3)
        ),
        *(
            _narrow(f"{model}-s{stage}-g4", model, stage, accumulation=4)
            for model in ("qwen3", "gpt2")
            for stage in (2, 3)
        ),
        Configuration("wide-mistral-s0-g4", "mistral", 0, accumulation=4, framework="trainer"),
        _narrow("mistral-s2-ckpt-g4", "mistral", 2, accumulation=4, checkpointing=True),
    )


# Model, stage, micro batch, accumulation: where stage 3 is, other stages of the same batch follow, since its steps are
# to tell of theirs.
_TRAINED: Final = (
    ("mistral", 3, 4, 4),
    ("mistral", 2, 4, 4),
    ("llama-3b", 3, 4, 2),
    ("llama-3b", 1, 4, 2),
    ("qwen3", 2, 1, 4),
    ("qwen3", 0, 16, 1),
    ("mistral", 0, 4, 4),
    ("llama-3b", 2, 8, 1),
    ("qwen3", 1, 8, 2),
    ("mistral", 1, 16, 1),
    ("qwen3", 3, 1, 4),
    ("llama-3b", 0, 1, 2),
)


# Trained on another day, after the planner learned from those above: the first two again, of the others none was seen.
_TRAINED_LATER: Final = (
    ("mistral", 2, 4, 4),
    ("mistral", 3, 4, 4),
    ("gpt2-large", 3, 4, 2),
    ("gpt2-large", 2, 4, 2),
    ("qwen3", 3, 1, 4),
    ("mistral", 1, 8, 2),
    ("llama-3b", 2, 2, 4),
    ("llama-3b", 3, 8, 1),
    ("qwen3-large", 1, 4, 4),
    ("llama-3b", 0, 1, 2),
    ("qwen3-large", 0, 16, 1),
)


# After the planner had learned what stage 3 visits: of these, none was measured before.
_TRAINED_LATEST: Final = (
    ("gpt2-large", 3, 1, 1),
    ("gpt2-large", 1, 1, 1),
    ("llama-3b", 3, 2, 1),
    ("llama-3b", 2, 2, 1),
    ("qwen3-large", 3, 4, 1),
    ("qwen3-large", 0, 4, 1),
    ("mistral", 0, 16, 1),
    ("qwen3-large", 1, 1, 4),
    ("mistral", 3, 16, 1),
    ("gpt2", 3, 8, 1),
    ("gpt2", 2, 8, 1),
)


# The same again of what was not measured by then, and with other batches: for pairs that tell of each other's stage.
_TRAINED_FRESH: Final = (
    ("gpt2", 3, 8, 1),
    ("gpt2", 2, 8, 1),
    ("qwen3-large", 3, 8, 1),
    ("qwen3-large", 1, 8, 1),
    ("mistral", 3, 8, 1),
    ("mistral", 2, 8, 1),
    ("llama-3b", 3, 4, 1),
    ("llama-3b", 1, 4, 1),
    ("gpt2-large", 2, 2, 2),
    ("qwen3", 1, 4, 2),
    ("mistral", 0, 2, 4),
)


def _under_the_trainer(model: str, stage: int, micro: int, accumulation: int) -> Configuration:
    name = f"{model}-s{stage}-b{micro}-g{accumulation}"
    return Configuration(name, model, stage, micro=micro, accumulation=accumulation, framework="trainer")


def trainer() -> tuple[Configuration, ...]:
    """What is predicted from the data sheet, then trained by the Trainer; in order of importance."""
    return tuple(_under_the_trainer(*each) for each in _TRAINED)


def trainer_later() -> tuple[Configuration, ...]:
    """The same of the later day."""
    return tuple(_under_the_trainer(*each) for each in _TRAINED_LATER)


def trainer_latest() -> tuple[Configuration, ...]:
    """The same after the planner had learned what stage 3 visits."""
    return tuple(_under_the_trainer(*each) for each in _TRAINED_LATEST)


def trainer_fresh() -> tuple[Configuration, ...]:
    """The same once more, of configurations that were never measured."""
    return tuple(_under_the_trainer(*each) for each in _TRAINED_FRESH)


def named(name: str) -> Configuration:
    """The configuration of that name."""
    known = (*host(), *trainer(), *trainer_later(), *trainer_latest(), *trainer_fresh())
    return next(each for each in known if each.name == name)


# Families as if the planner did not read their config.json: their size and widths are declared. Of mixtures, the width
# inside the MLP of a token is that of the experts that it goes through.
_DECLARED: Final[Mapping[str, Mapping[str, int]]] = {
    "gemma2": {"parameters": 284_492_800, "layers": 16, "intermediateSize": 4096},
    "gemma3": {"parameters": 284_496_896, "layers": 16, "intermediateSize": 4096},
    "mixtral": {"parameters": 493_437_952, "layers": 8, "intermediateSize": 2 * 2048},
    "qwen3-moe": {"parameters": 707_686_400, "layers": 12, "intermediateSize": 4 * 512},
    "qwen2-moe": {"parameters": 783_217_664, "layers": 12, "intermediateSize": 4 * 512 + 2048},
}
# Of these the planner reads the config.json.
_READ: Final = ("gpt-oss", "deepseek-v3", "gemma2", "gemma3", "mixtral", "qwen3-moe", "qwen2-moe")
_WIDTHS: Final = {"hiddenSize": 1024, "heads": 8, "keyValueHeads": 4, "vocabulary": 32000}


def families() -> tuple[Configuration, ...]:
    """Memory of one rank."""
    return tuple(
        Configuration(f"{model}-s2{end}", model, 2, declared={**_WIDTHS, **facts}, checkpointing=bool(end))
        for end in ("", "-ckpt")
        for model, facts in _DECLARED.items()
    )


def read_families() -> tuple[Configuration, ...]:
    """Memory of one rank, with samples enough for activations to decide."""
    return tuple(
        Configuration(
            f"{model}-s2-b8{end}",
            model,
            2,
            micro=8,
            attention="eager" if model == "gpt-oss" else "sdpa",
            checkpointing=bool(end),
        )
        for end in ("", "-ckpt")
        for model in _READ
    )
