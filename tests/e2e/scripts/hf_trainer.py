"""The Hugging Face Trainer with a tiny random GPT-2 and a configuration full of "auto"."""

import json
import os
import sys
import time

import torch
from accelerate import PartialState
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


class Tokens(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    # Where there is no accelerator, accelerate has no backend of its own choice: named before TrainingArguments asks.
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    PartialState(backend="gloo")
    (arguments,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses(sys.argv[1:])
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=1))
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
    trained = trainer.train()
    engine = trainer.model_wrapped
    facts = {
        "engine": type(engine).__name__,
        "world": arguments.world_size,
        "zero": engine.zero_optimization_stage(),
        "micro": engine.train_micro_batch_size_per_gpu(),
        "batch": engine.train_batch_size(),
        "steps": trained.global_step,
    }
    if arguments.process_index == 0:
        print("RESULT", json.dumps(facts), flush=True)
    time.sleep(40)  # the operator asks the agent every 30 s how far it is


if __name__ == "__main__":
    main()
