"""A training loop of one's own with Accelerate. DeepSpeed comes in by the environment: the job's `integration`."""

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

EPOCHS = 2

# On CPUs accelerate chooses no backend, and each rank would train alone.
backend = InitProcessGroupKwargs(backend="nccl" if torch.cuda.is_available() else "gloo")
accelerator = Accelerator(kwargs_handlers=[backend])  # by the variables that `integration` sets, with DeepSpeed
set_seed(0)
# Random weights and sequences that count on from anywhere, so that nothing is downloaded.
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
data = TensorDataset((torch.arange(32) + torch.arange(512)[:, None]) % 128)
loader = DataLoader(data, batch_size=8, shuffle=True)  # of one rank: fills in train_micro_batch_size_per_gpu
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=8, num_training_steps=EPOCHS * len(loader))
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

for epoch in range(EPOCHS):
    for (tokens,) in loader:
        with accelerator.accumulate(model):  # gradient_accumulation_steps of ds_config
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    mean = accelerator.reduce(loss.detach(), "mean").item()
    if accelerator.is_main_process:
        print(f"epoch {epoch + 1} on {accelerator.num_processes} ranks: loss {mean:.4f}", flush=True)
