"""Parameters of narrow models of each family, and the bytes of a token that autograd saves of them.

    python3 -m bench.gpu.inside.saved > saved.jsonl

Of bench/gpu/models/narrow.json, 2 samples of 128 tokens; one JSON line a model: in bf16 with SDPA, with eager
attention, in fp32 with SDPA, in bf16 with activation checkpointing. A family without SDPA has eager attention in all
four. No GPU is needed, but on a CPU SDPA takes no grouped keys.
"""

# pyright: basic, reportMissingImports=false

import json
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bench.gpu.configurations import MODELS

SAMPLES, TOKENS = 2, 128
USAGES = {
    "bf16": (torch.bfloat16, "sdpa", False),
    "eager": (torch.bfloat16, "eager", False),
    "fp32": (torch.float32, "sdpa", False),
    "checkpointing": (torch.bfloat16, "sdpa", True),
}
_NO_SDPA = {"gpt_oss"}


def built(config: dict[str, Any], dtype: torch.dtype, attention: str, device: str) -> torch.nn.Module:
    """Return the model of a config.json with random weights."""
    torch.manual_seed(7)
    attention = "eager" if config["model_type"] in _NO_SDPA else attention
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), attn_implementation=attention, dtype=dtype)
    return model.to(device, dtype).train()


def saved(model: torch.nn.Module, vocabulary: int, device: str) -> float:
    """Bytes of a token in storages that autograd saves, parameters and buffers apart."""
    tokens = torch.randint(0, vocabulary, (SAMPLES, TOKENS), device=device)
    apart = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers(), tokens)}
    found: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in apart:
            found[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=tokens, labels=tokens, use_cache=False)
    return sum(each.nbytes() for each in found.values()) / (SAMPLES * TOKENS)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, config in json.loads((MODELS / "narrow.json").read_text(encoding="utf-8")).items():
        line: dict[str, Any] = {"name": name, "model_config": config, "device": device}
        for usage, (dtype, attention, checkpointing) in USAGES.items():
            model = built(dict(config), dtype, attention, device)
            line["parameters"] = sum(each.numel() for each in model.parameters())
            if checkpointing:
                model.gradient_checkpointing_enable({"use_reentrant": False})
            line[usage] = round(saved(model, config["vocab_size"], device))
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
