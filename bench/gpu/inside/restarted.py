"""A training script as users write them, which goes on from its checkpoint and prints when it got how far.

A mark is a name, the rank, its process and the time. The 5th step after the start prints `ready`, and before it the
losses of these steps.
"""

# pyright: basic, reportMissingImports=false

import os
import sys
import time
from typing import Any

RANK = int(os.environ.get("RANK", "0"))


def mark(name: str) -> None:
    # One write: both ranks may share a pipe.
    sys.stdout.write(f"mark {name} {RANK} {os.getpid()} {time.time():.3f}\n")
    sys.stdout.flush()


mark("started")
import torch  # noqa: E402

mark("torch")
import deepspeed  # noqa: E402

mark("deepspeed")
from transformers import AutoConfig, AutoModelForCausalLM, Trainer  # noqa: E402, F401  as fine-tunings import it

mark("imported")
STAGE, DIRECTORY = int(sys.argv[1]), sys.argv[2]
SAVE_AT, READY_AFTER, SEQUENCE, MICRO = 20, 5, 1024, 4
# A Llama of 1.345 B parameters.
MODEL = {
    "hidden_size": 2048,
    "intermediate_size": 5504,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 32000,
    "max_position_embeddings": SEQUENCE,
}
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": MICRO,
    "zero_optimization": {"stage": STAGE},
    # Not the fused one, which would be compiled first.
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": True}},
    "bf16": {"enabled": True},
    "steps_per_print": 1 << 30,
}


def main() -> None:
    local = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local)
    deepspeed.init_distributed("nccl")
    device = torch.device("cuda", local)
    torch.ones(1, device=device)
    mark("device")
    torch.manual_seed(7)
    torch.set_default_dtype(torch.bfloat16)
    with deepspeed.zero.Init(config_dict_or_path=CONFIG, enabled=STAGE == 3), device:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **MODEL))
    torch.set_default_dtype(torch.float32)
    mark("model")
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    mark("initialized")
    engine.load_checkpoint(DIRECTORY)
    mark("loaded")
    begun = engine.global_steps
    losses: list[str] = []
    while True:
        tokens = torch.randint(0, MODEL["vocab_size"], (MICRO, SEQUENCE), device=device)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.item().hex())
        if engine.global_steps == begun + 1:
            torch.cuda.synchronize()
            mark("stepped")
        if engine.global_steps == SAVE_AT:
            engine.save_checkpoint(DIRECTORY)
            mark("saved")
        if engine.global_steps == max(begun, SAVE_AT) + READY_AFTER:
            sys.stdout.write(f"losses {RANK} {' '.join(losses[-READY_AFTER:])}\n")
            mark("ready")
        time.sleep(0.05)  # nobody trains for long here


if __name__ == "__main__":
    main()
