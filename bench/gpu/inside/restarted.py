"""A training script as users write them, which goes on from its checkpoint and prints when it got how far.

The 5th step after the start prints `ready`, and before it the losses of these steps. Which
of several runs makes the checkpoint that all of them go on from says its third argument.
"""

# pyright: basic, reportMissingImports=false

import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.gpu.inside.marks import mark, rank

mark("started")
import torch  # noqa: E402

from bench.gpu.inside import one_gpu  # noqa: E402

mark("torch")
import deepspeed  # noqa: E402

mark("deepspeed")
from transformers import AutoConfig, AutoModelForCausalLM, Trainer  # noqa: E402, F401  as fine-tunings import it

mark("imported")
# The last ones: DeepSpeed's launcher puts its own --local_rank before.
STAGE, DIRECTORY, SAVES = int(sys.argv[-3]), sys.argv[-2], sys.argv[-1] == "saves"
COMPLETE = Path(DIRECTORY, "complete")
SAVE_AT, READY_AFTER, SEQUENCE, MICRO = 20, 5, 1024, 1
# A dry run on CPUs.
CPU = os.environ.get("DS_ACCELERATOR") == "cpu"
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
if CPU:
    SEQUENCE = 8
    MODEL.update(hidden_size=64, intermediate_size=128, num_hidden_layers=2, vocab_size=100)
    vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": MICRO,
    "zero_optimization": {"stage": STAGE},
    # Not the fused one, which would be compiled first.
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": True}},
    "bf16": {"enabled": True},
    "steps_per_print": 1 << 30,
}


def main() -> None:
    local = one_gpu.device_of(int(os.environ.get("LOCAL_RANK", "0")))
    if not CPU:
        torch.cuda.set_device(local)
    deepspeed.init_distributed("gloo" if CPU else "nccl")
    device = torch.device("cpu") if CPU else torch.device("cuda", local)
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
    while not (SAVES or COMPLETE.exists()):
        time.sleep(0.1)
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
            if not CPU:
                torch.cuda.synchronize()
            mark("stepped")
        if engine.global_steps == SAVE_AT:
            engine.save_checkpoint(DIRECTORY)
            COMPLETE.touch()  # after a barrier
            mark("saved")
        if engine.global_steps == max(begun, SAVE_AT) + READY_AFTER:
            sys.stdout.write(f"losses {rank()} {' '.join(losses[-READY_AFTER:])}\n")
            mark("ready")
        # Nobody trains for long here, and others use these GPUs.
        time.sleep(0.05 if engine.global_steps < max(begun, SAVE_AT) + READY_AFTER else 3)


if __name__ == "__main__":
    main()
