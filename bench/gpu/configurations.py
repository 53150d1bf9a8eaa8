"""What is measured: which model, how it is trained, and the ds_config.json that says so."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

MODELS: Final = Path(__file__).parent / "models"


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Configuration:
    """`overrides` change the model's config.json, `zero` the section zero_optimization.

    `micro` is samples, `sequence` tokens, `lora` the rank of adapters beside a frozen model, 0 for none. The optimizer
    is AdamW: DeepSpeed's fused one, the one of torch, or the one for the host where states are offloaded. `framework`
    runs the steps; none: a plain loop. `declared`: what a job's spec.model would say instead of the config.json.
    """

    name: str
    model: str
    stage: int
    accumulation: int = 1
    micro: int = 4
    sequence: int = 1024
    dtype: str = "bf16"
    fused: bool = True
    offload: bool = False
    checkpointing: bool = False
    lora: int = 0
    attention: str = "sdpa"
    accumulate_in: str | None = None
    clipping: float | None = None
    zero: Mapping[str, Any] = field(default_factory=_nothing)
    overrides: Mapping[str, Any] = field(default_factory=_nothing)
    save: bool = False
    framework: str = ""
    declared: Mapping[str, Any] = field(default_factory=_nothing)

    def model_config(self) -> dict[str, Any]:
        """The model's config.json."""
        written: dict[str, Any] = json.loads((MODELS / f"{self.model}.json").read_text(encoding="utf-8"))
        return {**written, **self.overrides}

    def ds_config(self) -> dict[str, Any]:
        """What DeepSpeed is given."""
        zero: dict[str, Any] = {"stage": self.stage, **self.zero}
        if self.offload:
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        optimizer: dict[str, Any] = {"lr": 1e-5}
        if not self.fused and not self.offload:
            optimizer["torch_adam"] = True
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": self.micro,
            "gradient_accumulation_steps": self.accumulation,
            "zero_optimization": zero,
            "optimizer": {"type": "AdamW", "params": optimizer},
            "steps_per_print": 1_000_000,
        }
        if self.dtype != "fp32":
            config[self.dtype] = {"enabled": True}
        if self.accumulate_in is not None:
            config["data_types"] = {"grad_accum_dtype": self.accumulate_in}
        if self.clipping is not None:
            config["gradient_clipping"] = self.clipping
        return config

    def record(self) -> dict[str, Any]:
        """Everything above as JSON, for the process that measures and for whoever predicts."""
        return {**asdict(self), "model_config": self.model_config(), "ds_config": self.ds_config()}


SINGLE_ROOTS: Final = {"use_multi_rank_bucket_allreduce": False}
GATHER_ALWAYS: Final = {
    "stage3_max_live_parameters": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_prefetch_bucket_size": 0,
}


def _accumulations(name: str, *, accumulations: Iterable[int] = (1, 4), **fields: Any) -> Iterator[Configuration]:
    for accumulation in accumulations:
        yield Configuration(f"{name}-g{accumulation}", accumulation=accumulation, **fields)


def _stages(model: str, **fields: Any) -> Iterator[Configuration]:
    for stage in range(4):
        yield from _accumulations(f"{model}-s{stage}", model=model, stage=stage, **fields)


def _variations(model: str) -> Iterator[Configuration]:
    """Each feature that changes what memory holds, at the stages where it does."""
    for stage in (2, 3):
        yield from _accumulations(
            f"{model}-s{stage}-offload", accumulations=(4,), model=model, stage=stage, offload=True
        )
        yield from _accumulations(
            f"{model}-s{stage}-ckpt", accumulations=(4,), model=model, stage=stage, checkpointing=True
        )
    yield Configuration(f"{model}-s2-lora16", model, 2, lora=16)
    for stage in (1, 2):
        yield from _accumulations(
            f"{model}-s{stage}-acc32", accumulations=(4,), model=model, stage=stage, accumulate_in="fp32"
        )
    yield Configuration(f"{model}-s0-ckpt", model, 0, checkpointing=True)
    yield Configuration(f"{model}-s2-torchadam", model, 2, fused=False)
    yield Configuration(f"{model}-s2-roots", model, 2, accumulation=4, zero=SINGLE_ROOTS)
    yield Configuration(f"{model}-s3-gather", model, 3, accumulation=4, zero=GATHER_ALWAYS)


def _shapes(model: str) -> Iterator[Configuration]:
    """Batches and sequences apart, so that what grows with each can be told."""
    for micro, sequence in ((1, 1024), (8, 1024), (16, 1024), (8, 512), (2, 2048), (1, 4096)):
        yield Configuration(f"{model}-s2-b{micro}-t{sequence}", model, 2, micro=micro, sequence=sequence)
    for micro in (1, 8, 32):
        yield Configuration(f"{model}-s2-ckpt-b{micro}", model, 2, micro=micro, checkpointing=True)
    yield Configuration(f"{model}-s2-eager", model, 2, attention="eager")
    yield Configuration(f"{model}-s2-gqa4", model, 2, overrides={"num_key_value_heads": 4})
    yield Configuration(f"{model}-s2-tied", model, 2, overrides={"tie_word_embeddings": True})


def _precisions(model: str) -> Iterator[Configuration]:
    yield Configuration(f"{model}-s0-fp32", model, 0, micro=2, dtype="fp32")
    yield Configuration(f"{model}-s2-fp32", model, 2, micro=2, dtype="fp32")
    yield Configuration(f"{model}-s3-fp32", model, 3, micro=2, dtype="fp32")
    yield Configuration(f"{model}-s0-fp16", model, 0, dtype="fp16")
    yield Configuration(f"{model}-s2-fp16", model, 2, dtype="fp16")
    yield Configuration(f"{model}-s0-torchadam", model, 0, fused=False)
    yield Configuration(f"{model}-s3-lora16", model, 3, lora=16)


def _saved(configurations: Iterable[Configuration]) -> Iterator[Configuration]:
    """A checkpoint of the small model is quickly written: what that takes is measured with it."""
    for each in configurations:
        yield replace(each, save=each.accumulation == 1)


def _settings(model: str) -> Iterator[Configuration]:
    """What users write into zero_optimization, and clipping, one by one."""
    small, few = 50_000_000, 100_000_000
    written: dict[str, tuple[int, Mapping[str, Any]]] = {
        "s2-buckets": (2, {"reduce_bucket_size": small, "allgather_bucket_size": small}),
        "s2-scattered": (2, {"contiguous_gradients": False}),
        "s2-overlap": (2, {"overlap_comm": True}),
        "s3-buckets": (3, {"reduce_bucket_size": small, "stage3_prefetch_bucket_size": small}),
        "s3-few": (3, {"stage3_max_live_parameters": few, "stage3_max_reuse_distance": few}),
        "s3-no-overlap": (3, {"overlap_comm": False}),
        "s3-persistent": (3, {"stage3_param_persistence_threshold": 10_000_000}),
    }
    for name, (stage, zero) in written.items():
        yield Configuration(f"{model}-{name}", model, stage, accumulation=2, zero=zero)
    for stage in (0, 2, 3):
        yield Configuration(f"{model}-s{stage}-clip", model, stage, clipping=1.0)
    yield Configuration(f"{model}-s1-offload", model, 1, accumulation=2, offload=True)
    yield Configuration(
        f"{model}-s3-offload-all", model, 3, offload=True, zero={"offload_param": {"device": "cpu", "pin_memory": True}}
    )


# Models of other families, two sizes each.
FAMILIES: Final = ("qwen3", "qwen3-large", "gpt2", "gpt2-large")


def _family(model: str) -> Iterator[Configuration]:
    yield Configuration(f"{model}-s0", model, 0)
    yield Configuration(f"{model}-s2-g4", model, 2, accumulation=4)
    yield Configuration(f"{model}-s2-ckpt", model, 2, checkpointing=True)
    yield Configuration(f"{model}-s3", model, 3)
    yield Configuration(f"{model}-s2-eager", model, 2, attention="eager")


def memory(small: str = "small", large: str = "large") -> tuple[Configuration, ...]:
    """In order of importance, since time may end it."""
    return (
        *_saved(_stages(small)),
        *_stages(large),
        *_variations(small),
        *_variations(large),
        *(each for family in FAMILIES for each in _family(family)),
        *_settings(large),
        *_shapes(small),
        *_precisions(small),
        *_shapes(large),
        *_precisions(large),
    )


def traffic(model: str = "large") -> tuple[Configuration, ...]:
    """Those whose payload is predicted one by one."""
    found = [*_stages(model)]
    for stage in (1, 2):
        found += _accumulations(f"{model}-s{stage}-roots", model=model, stage=stage, zero=SINGLE_ROOTS)
        found += _accumulations(f"{model}-s{stage}-acc32", model=model, stage=stage, accumulate_in="fp32")
    found += _accumulations(f"{model}-s3-gather", model=model, stage=3, zero=GATHER_ALWAYS)
    return tuple(found)


def calibration(model: str = "large") -> tuple[Configuration, ...]:
    """One run a model and fabric, from which times are predicted; none of these is among them.

    Stage 0 twice, as its passes are made of samples and of what each micro step costs whatever its samples; stage 3
    three times, as its time is made of what it gathers, of modules that it visits, and of computing behind both.
    """
    fields: dict[str, Any] = {"model": model, "accumulation": 2}
    return (
        Configuration(f"{model}-s0-g2", stage=0, **fields),
        Configuration(f"{model}-s0-b16-g2", stage=0, micro=16, **fields),
        Configuration(f"{model}-s2-g2", stage=2, **fields),
        Configuration(f"{model}-s2-roots-g2", stage=2, zero=SINGLE_ROOTS, **fields),
        Configuration(f"{model}-s3-g2", stage=3, **fields),
        Configuration(f"{model}-s3-b16-g2", stage=3, micro=16, **fields),
        Configuration(f"{model}-s3-gather-g2", stage=3, zero=GATHER_ALWAYS, **fields),
    )


def timing(model: str = "large") -> tuple[Configuration, ...]:
    """What is predicted from the calibration, then measured; the article's four first."""
    stages = [each for each in traffic(model) if each.accumulate_in is None]
    article = [f"{model}-s{stage}-g{accumulation}" for stage in (0, 2) for accumulation in (1, 4)]
    stages.sort(key=lambda each: article.index(each.name) if each.name in article else len(article))
    return (
        *stages,
        Configuration(f"{model}-s0-g8", model, 0, accumulation=8),
        # The recipe's global batch with less accumulation.
        *(Configuration(f"{model}-s{stage}-b16-g1", model, stage, micro=16) for stage in range(4)),
        Configuration(f"{model}-s1-roots-b16-g1", model, 1, micro=16, zero=SINGLE_ROOTS),
        Configuration(f"{model}-s2-b8-g2", model, 2, accumulation=2, micro=8),
    )


def filled(table: Iterable[Configuration], micro: int = 16) -> tuple[Configuration, ...]:
    """The stages and what they vary, with micro batches that keep a GPU busy for longer than Python starts its work.

    What the host does besides decides little then, but at stage 3.
    """

    def named(each: Configuration) -> str:
        end = f"-g{each.accumulation}"
        return f"{each.name.removesuffix(end)}-b{micro}{end}"

    return tuple(replace(each, name=named(each), micro=micro) for each in table)


def filled_calibration(model: str = "large") -> tuple[Configuration, ...]:
    """The same of a calibration; half of that micro batch tells what a micro step costs whatever its samples."""
    measured = [each for each in calibration(model) if "-b16-" not in each.name]
    return (*filled(measured[:1], micro=8), *filled(measured))


def filled_timing(model: str = "large") -> tuple[Configuration, ...]:
    """What is predicted from that and measured."""
    return filled(each for each in timing(model) if each.micro == 4 and each.accumulation <= 4)


TABLES: Final = {
    "memory": memory,
    "traffic": traffic,
    "calibration": calibration,
    "timing": timing,
    "filled-calibration": filled_calibration,
    "filled-timing": filled_timing,
}


def chosen(table: Iterable[Configuration], patterns: Sequence[str]) -> list[Configuration]:
    """Those that a pattern names, or all; for a dry run on CPUs with a tiny model, where nothing is compiled."""
    found = [each for each in table if not patterns or any(fnmatchcase(each.name, pattern) for pattern in patterns)]
    if os.environ.get("DS_ACCELERATOR") != "cpu":
        return found
    return [replace(each, model="tiny", fused=False, sequence=32) for each in found]
