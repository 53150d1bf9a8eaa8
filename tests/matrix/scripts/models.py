"""Small models, and what each feature needs of its script besides a configuration."""

# torch and DeepSpeed are in the pod only.
# pyright: basic, reportMissingImports=false

import functools

import deepspeed
import torch
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from deepspeed.sequence.layer import DistributedAttention
from deepspeed.utils import groups
from torch import nn
from torch.nn import functional

WIDTH = 16


class Perceptron(nn.Module):
    """Its layers have the names that tensor parallelism's rules of the table split."""

    def __init__(self, hidden=64):
        super().__init__()
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, 1)
        self.forwards = 0

    def body(self, inputs):
        self.forwards += 1
        return torch.tanh(self.up(inputs))

    def forward(self, inputs):
        return self.down(self.body(inputs))


class Recomputing(Perceptron):
    """Keeps no activations of its body: DeepSpeed computes them again in the backward pass."""

    def forward(self, inputs):
        return self.down(deepspeed.checkpointing.checkpoint(self.body, inputs.requires_grad_()))


class Experts(nn.Module):
    """One expert on each of so many ranks."""

    def __init__(self, ranks):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.moe = MoE(WIDTH, nn.Linear(WIDTH, WIDTH), num_experts=ranks, ep_size=ranks, min_capacity=8)
        self.down = nn.Linear(WIDTH, 1)

    def forward(self, inputs):
        mixed, _, _ = self.moe(torch.tanh(self.up(inputs)))
        return self.down(mixed)


class Attention(nn.Module):
    """Attention over whole sequences of which each rank holds a part (Ulysses)."""

    HEADS = 2

    def __init__(self):
        super().__init__()
        self.projections = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(WIDTH, 1)
        self.seen = 0

    @functools.cached_property
    def distributed(self):
        """The groups of ranks are there only once the engine is."""
        return DistributedAttention(self.attend, groups._get_sequence_parallel_group(), scatter_idx=2, gather_idx=1)

    def attend(self, query, key, value):
        self.seen = query.shape[1]
        heads_first = (part.transpose(1, 2) for part in (query, key, value))
        return functional.scaled_dot_product_attention(*heads_first).transpose(1, 2).contiguous()

    def forward(self, inputs):
        batch, length, _ = inputs.shape
        parts = self.projections(inputs).view(batch, length, 3, self.HEADS, -1).unbind(2)
        mixed = self.distributed(*(part.contiguous() for part in parts), 0)
        return self.down(inputs + mixed.reshape(batch, length, WIDTH))


def stages():
    """The layers that pipeline parallelism divides between the ranks."""
    return [nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)]


def expert_parameters(model):
    return split_params_into_different_moe_groups_for_optimizer({"params": list(model.parameters()), "name": "all"})
