"""What a user tells the planner about the model: spec.model."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.markers import Atomic, FreeForm

Count = Annotated[int, Field(ge=1, le=10**15)]
Width = Annotated[int, Field(ge=1, le=10**7)]


class AttentionKernel(StrEnum):
    EAGER = "Eager"
    SDPA = "SDPA"
    FLASH = "Flash"


class FrozenType(StrEnum):
    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"


class Quantization(StrEnum):
    NONE = "None"
    INT8 = "Int8"
    NF4 = "NF4"


class Lora(ApiModel):
    """Adapters beside a frozen model."""

    rank: int = Field(ge=1, le=65_536, description="Rank of the adapters. Example: 16")
    targets: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Atomic()] = Field(
        default=["q_proj", "v_proj"],
        min_length=1,
        max_length=16,
        description="Linear modules of each layer that have adapters, by their names in the model, or the ends of "
        "these: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj of Llama, c_attn, c_proj, c_fc of GPT-2. "
        "Default: [q_proj, v_proj]",
    )


class ExpertFacts(ApiModel):
    """Layers in which a token goes through a few of many experts, as deepspeed.moe.layer.MoE makes them."""

    count: int = Field(ge=1, le=65_536, description="Experts of each such layer (num_experts). Example: 8")
    layers: int = Field(ge=1, le=10_000, description="Layers with experts. Example: 16")
    parameters: Count = Field(description="Parameters of one expert of one layer. Example: 176160768")
    top_k: int = Field(default=1, ge=1, le=1024, description="Experts that a token goes to (k). Default: 1")
    capacity_percent: int = Field(
        default=100,
        ge=1,
        le=100_000,
        description="Tokens for which experts have room, in percent of those that they share evenly: "
        "100 × capacity_factor. Default: 100",
    )


class ModelFacts(ApiModel):
    """Facts by which the planner computes memory; each that is not given is taken from fromConfig, else assumed."""

    from_config: Annotated[dict[str, Any], FreeForm()] | None = Field(
        default=None,
        description="The model's config.json, as transformers writes it: model_type llama, mistral, qwen2, qwen3, "
        "gpt2, phi3, gpt_neox, opt, gemma2, gemma3 (gemma3_text), mixtral, qwen2_moe, qwen3_moe, gpt_oss, deepseek_v3, "
        "qwen3_vl (qwen3_vl_text) or qwen3_vl_moe (qwen3_vl_moe_text). It gives parameters, layers and widths. Unset: "
        "parameters says at least how many there are.",
    )
    parameters: Count | None = Field(
        default=None, description="All parameters of the model. Unset: those of fromConfig. Example: 6738415616"
    )
    trainable_parameters: Count | None = Field(
        default=None,
        description="Parameters that are trained. Unset: those of lora or trainable, else assumed to be all.",
    )
    trainable: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Modules of fromConfig's model that are trained, and all else is frozen: their names or parts of "
        'these, with * and [ ]. Example: ["layers.3[01]", lm_head] of 32 layers. Unset: those of lora or '
        "trainableParameters.",
    )
    experts: ExpertFacts | None = Field(
        default=None,
        description="Layers with experts, all of them trained, of a model whose parameters are given with theirs. "
        "parallelism.expert says how many ranks divide a layer's experts. Unset: no such layers.",
    )
    lora: Lora | None = Field(
        default=None, description="Adapters are trained, and all of the model is frozen. Unset: no adapters."
    )
    frozen_dtype: FrozenType | None = Field(
        default=None, description="Type that frozen parameters are held in. Unset: the type that dsConfig computes in."
    )
    quantization: Quantization = Field(
        default=Quantization.NONE,
        description="How frozen parameters of linear modules are stored, as bitsandbytes does it: Int8, NF4 or, the "
        "default, None.",
    )
    layers: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="Transformer layers. Without layers, hiddenSize and vocabulary, or fromConfig, activations are not "
        "known and MemoryFit stays Unknown. Example: 32",
    )
    hidden_size: Width | None = Field(
        default=None, description="Width of the residual stream. Unset: as for layers. Example: 4096"
    )
    intermediate_size: Width | None = Field(
        default=None, description="Width inside the MLP. Unset: assumed to be the one by which parameters come out."
    )
    heads: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Attention heads. Unset: assumed to be one for each 128 of hiddenSize."
    )
    key_value_heads: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Heads of keys and values. Unset: assumed to be as many as heads."
    )
    vocabulary: Width | None = Field(
        default=None, description="Tokens of the vocabulary. Unset: as for layers. Example: 32000"
    )
    sequence_length: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=None,
        description="Tokens of a sample, the longest of a batch. Unset: assumed to be max_position_embeddings of "
        "fromConfig (n_positions of GPT-2), at most 4096.",
    )
    attention: AttentionKernel | None = Field(
        default=None,
        description="attn_implementation of transformers: SDPA and Flash keep no scores, Eager keeps them all. "
        "Unset: assumed to be SDPA.",
    )
    activation_checkpointing: bool | None = Field(
        default=None,
        description="Whether the script computes each layer's activations again in the backward pass "
        "(gradient_checkpointing of transformers). Unset: assumed not to.",
    )
