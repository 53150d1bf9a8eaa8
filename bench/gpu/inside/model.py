"""A causal language model of transformers, as users train it, from a configuration's record."""

# pyright: basic, reportMissingImports=false

import contextlib
import os
from typing import Any

import deepspeed
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def build(record: dict[str, Any], device: torch.device) -> torch.nn.Module:
    """Return the model in its dtype on the device; at stage 3 already divided, as transformers' Trainer does it."""
    config = AutoConfig.for_model(**record["model_config"])
    dtype = DTYPES[record["dtype"]]
    torch.manual_seed(7)
    with _divided(record, dtype), device, _default(dtype):
        model = AutoModelForCausalLM.from_config(config, attn_implementation=record["attention"], dtype=dtype)
    if record["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if record["lora"]:
        from peft import LoraConfig, get_peft_model  # noqa: PLC0415  nothing else depends on it

        model = get_peft_model(model, LoraConfig(r=record["lora"], lora_alpha=16, target_modules=_TARGETS))
    return model.train()


def _divided(record: dict[str, Any], dtype: torch.dtype) -> Any:
    if record["stage"] < 3:
        return contextlib.nullcontext()
    return deepspeed.zero.Init(config_dict_or_path=record["ds_config"], dtype=dtype)


@contextlib.contextmanager
def _default(dtype: torch.dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def engine_of(record: dict[str, Any], model: torch.nn.Module) -> Any:
    trained = [each for each in model.parameters() if each.requires_grad]
    return deepspeed.initialize(model=model, model_parameters=trained, config=record["ds_config"])[0]


def batch(record: dict[str, Any], device: torch.device) -> dict[str, torch.Tensor]:
    vocabulary = record["model_config"]["vocab_size"]
    tokens = torch.randint(0, vocabulary, (record["micro"], record["sequence"]), device=device)
    return {"input_ids": tokens, "labels": tokens}


def parameters(model: torch.nn.Module) -> dict[str, int]:
    """All and trained ones, whole though stage 3 divides them."""
    sizes = [(getattr(each, "ds_numel", each.numel()), each.requires_grad) for each in model.parameters()]
    return {"parameters": sum(size for size, _ in sizes), "trainable": sum(size for size, trained in sizes if trained)}


def versions() -> dict[str, str]:
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else ""
    return {
        "torch": torch.__version__,
        "nccl": nccl,
        "deepspeed": deepspeed.__version__,
        "transformers": transformers.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else os.uname().machine,
    }
