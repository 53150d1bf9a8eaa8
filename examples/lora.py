"""Trains a LoRA adapter of a small language model with peft and the Hugging Face Trainer."""

import os

import torch
from accelerate import PartialState
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Counting(Dataset):
    """Sequences that count on from anywhere. Yours come from `datasets` and a tokenizer."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        tokens = (torch.arange(32) + index) % 128
        return {"input_ids": tokens, "labels": tokens}


on_gpus = torch.cuda.is_available()
if not on_gpus:
    PartialState(backend="gloo")  # on CPUs accelerate chooses none, and each rank would train alone

# Before the model, which is made in parts where ds_config says ZeRO-3.
arguments = TrainingArguments(
    output_dir="/tmp/output",  # on a volume, to outlive the pods: examples/resume.yaml
    deepspeed=os.environ["DEEPSPEED_CONFIG"],
    per_device_train_batch_size=8,
    learning_rate=1e-2,
    num_train_epochs=2,
    bf16=on_gpus,
    accelerator_config={"use_configured_state": not on_gpus},
    logging_steps=8,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
torch.manual_seed(0)
# Random weights, so that nothing is downloaded. Yours: AutoModelForCausalLM.from_pretrained(…).
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        use_cache=False,
    )
)
adapter = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules="all-linear")
model = get_peft_model(model, adapter)
trainer = Trainer(model=model, args=arguments, train_dataset=Counting())
if trainer.is_world_process_zero():
    model.print_trainable_parameters()
trainer.train()
trainer.save_model()  # by rank 0, and only the adapter: a few megabytes also of a large model
if trainer.is_world_process_zero():
    print(f"adapter saved in {arguments.output_dir}", flush=True)
