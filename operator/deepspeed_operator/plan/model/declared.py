"""The model that a job declares, each fact with its source."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from deepspeed_operator.api.facts import AttentionKernel, ExpertFacts, FrozenType, Lora, ModelFacts, Quantization
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.model.architecture import (
    TOWERS,
    Attention,
    Experts,
    Guess,
    Model,
    Module,
    Quantized,
    Shape,
    Tensor,
    UnknownModelError,
    Usage,
    declared,
    is_of_tower,
)
from deepspeed_operator.plan.model.hugging_face import from_hugging_face
from deepspeed_operator.plan.model.parts import linears_of

_WIDTHS: Final[Mapping[FrozenType, float]] = {FrozenType.FP32: 4, FrozenType.FP16: 2, FrozenType.BF16: 2}
# bitsandbytes stores int8 with a scale a row, NF4 with an fp32 scale for each 64 numbers.
_QUANTIZED: Final[Mapping[Quantization, float]] = {Quantization.INT8: 1.0, Quantization.NF4: 0.5 + 4 / 64}
# Of what is not quantized beside it, where nothing is said.
_USUAL_WIDTH: Final = 2
# Numbers of an attention head: usually, and at most and at least among the models that are trained today.
_HEAD: Final = 128
_WIDEST: Final = 256
_NARROWEST: Final = 64
# Without a word, no sample is assumed to be longer, whatever the model could take.
_USUAL_SEQUENCE: Final = 4096


def model_of(facts: ModelFacts) -> Model:
    """Return the model; raises UnknownModelError where even its number of parameters is not known."""
    if facts.from_config is not None:
        model = from_hugging_face(facts.from_config, facts.parameters)
        if facts.parameters is not None and facts.parameters != model.parameters:
            raise UnknownModelError(
                f"parameters {facts.parameters} contradict fromConfig, which has {model.parameters}"
            )
    elif facts.parameters is not None:
        shape = _shape(facts)
        guesses = tuple(_guesses(facts, facts.parameters, shape)) if shape is not None else ()
        model = replace(declared(facts.parameters), shape=shape, guesses=guesses)
    else:
        raise UnknownModelError("neither parameters nor fromConfig is given: write one of them")
    if facts.experts is not None:
        model = replace(model, experts=_experts(facts, facts.experts))
    if facts.trainable is not None:
        model = _with_trained(model, facts)
    elif facts.lora is not None:
        model = _with_adapters(model, facts.lora)
    elif facts.trainable_parameters is not None:
        model = replace(model, trainable=min(facts.trainable_parameters, model.parameters))
    usage = _usage(facts, model)
    model = replace(model, usage=usage)
    if facts.quantization is not Quantization.NONE:
        model = quantized(model, facts.quantization)
    return replace(model, facts=(*model.facts, *_facts(facts, model)))


def _shape(facts: ModelFacts) -> Shape | None:
    layers, hidden, vocabulary = facts.layers, facts.hidden_size, facts.vocabulary
    if layers is None or hidden is None or vocabulary is None or facts.parameters is None:
        return None
    heads = facts.heads or max(1, hidden // _HEAD)
    keys = hidden // heads * (facts.key_value_heads or heads)
    intermediate = facts.intermediate_size or _intermediate(
        facts.parameters - 2 * vocabulary * hidden, layers, hidden, keys
    )
    return Shape(layers, hidden, intermediate, heads, vocabulary, queries=hidden, keys=keys)


def _intermediate(parameters: int, layers: int, hidden: int, keys: int) -> int:
    """Return the width inside the MLP by which the parameters of all layers come out."""
    return max(hidden, (parameters // layers - 2 * hidden * (hidden + keys)) // (3 * hidden))


def _guesses(facts: ModelFacts, parameters: int, shape: Shape) -> Iterator[Guess]:
    """Yield what is not told of a shape: heads of 64 to 256, of keys and values at least one, and embeddings tied."""
    hidden, groups = shape.hidden, facts.key_value_heads
    few, many = facts.heads or max(1, hidden // _WIDEST), facts.heads or max(1, hidden // _NARROWEST)
    least, most = (min(hidden, hidden // each * (groups or 1)) for each in (many, few))
    if facts.heads is None:
        widths = (least, most) if groups is not None else (shape.keys, shape.keys)
        yield Guess("heads", {"heads": few, "keys": widths[0]}, {"heads": many, "keys": widths[1]})
    if groups is None:
        yield Guess("keyValueHeads", {"keys": least}, {"keys": hidden})
    if facts.intermediate_size is None:
        ends = shape.vocabulary * hidden
        narrow, wide = (
            _intermediate(parameters - matrices * ends, shape.layers, hidden, keys)
            for matrices, keys in ((2, hidden if groups is None else most), (1, least))
        )
        yield Guess("intermediateSize", {"intermediate": narrow}, {"intermediate": wide})


def _experts(facts: ModelFacts, declared: ExpertFacts) -> Experts:
    if facts.from_config is not None or facts.parameters is None:
        raise UnknownModelError("experts need parameters, not fromConfig: they are those of deepspeed.moe")
    experts = Experts(
        declared.count, declared.layers, declared.parameters, declared.top_k, declared.capacity_percent / 100
    )
    if experts.total > facts.parameters:
        raise UnknownModelError(f"experts have {experts.total} parameters, more than all, which are {facts.parameters}")
    if facts.lora is not None or facts.trainable_parameters not in (None, facts.parameters):
        raise UnknownModelError("experts: how many of them are frozen is not known")
    return experts


def _usage(facts: ModelFacts, model: Model) -> Usage:
    longest = model.usage.longest
    sequence = facts.sequence_length
    if sequence is None and longest is not None:
        sequence = min(longest, _USUAL_SEQUENCE)
    return Usage(
        sequence=sequence,
        longest=longest,
        attention=_attention(facts.attention, model),
        checkpointing=bool(facts.activation_checkpointing),
        frozen_width=_WIDTHS[facts.frozen_dtype] if facts.frozen_dtype is not None else None,
        adapted=tuple(facts.lora.targets) if facts.lora else (),
    )


def _attention(kernel: AttentionKernel | None, model: Model) -> Attention:
    if kernel is None:
        no_kernel = model.shape is not None and model.shape.family.no_kernel
        return Attention.EAGER if no_kernel else Attention.SDPA
    return Attention(kernel.value)


def quantized(model: Model, kind: Quantization) -> Model:
    """Return the model with the frozen parameters of its layers stored so.

    The vocabulary's matrices, norms and biases stay as they are.
    """
    share, width = min(1.0, _ends(model) / model.parameters), _QUANTIZED[kind]
    plain = model.usage.frozen_width or _USUAL_WIDTH
    stored = Quantized(kind.value, width, max(0, round((1 - share) * model.parameters) - model.trained))
    usage = replace(model.usage, frozen_width=share * plain + (1 - share) * width, quantized=stored)
    return replace(model, usage=usage)


def _ends(model: Model) -> int:
    """Parameters before and after the layers."""
    ends = {tensor: tensor.elements for module in model.modules for tensor in module if _is_outside(tensor)}
    if model.shape is not None and not model.modules:
        return 2 * model.shape.vocabulary * model.shape.hidden
    return sum(ends.values())


def _is_outside(tensor: Tensor) -> bool:
    return not tensor.name.startswith("layers.")


def _with_trained(model: Model, facts: ModelFacts) -> Model:
    """Freeze all but the modules that are named."""
    patterns = facts.trainable or ()
    if not model.modules:
        raise UnknownModelError("trainable needs fromConfig, which tells the modules")
    if facts.lora is not None:
        raise UnknownModelError("trainable and lora are both given: lora freezes all but its adapters")
    names = dict.fromkeys(_module_name(tensor) for module in model.modules for tensor in module)
    for pattern in patterns:
        if not any(_names(pattern, name) for name in names):
            inside = dict.fromkeys(
                f"{name.partition('.')[0]}.*" if name.startswith(TOWERS) else name.split(".", 2)[-1] for name in names
            )
            raise UnknownModelError(f"trainable: {pattern} is none of layers.N, {', '.join(inside)}")
    modules = tuple(
        tuple(
            replace(tensor, trained=any(_names(pattern, _module_name(tensor)) for pattern in patterns))
            for tensor in module
        )
        for module in model.modules
    )
    model = replace(model, modules=modules)
    if facts.trainable_parameters not in (None, model.trained):
        raise UnknownModelError(
            f"trainableParameters {facts.trainable_parameters} contradict trainable, which has {model.trained}"
        )
    return model


def _module_name(tensor: Tensor) -> str:
    return tensor.name.rpartition(".")[0]


# What holds modules in transformers, and what holds a layer's in some families only.
_OUTSIDE: Final = frozenset({"model", "transformer", "language_model"})
_HOLDERS: Final = frozenset({"self_attn", "attn", "attention", "mlp"})


def _names(pattern: str, name: str) -> bool:
    """Whether a pattern is a name, or a part of one between dots, as transformers or the plan names it."""
    if name.startswith(TOWERS) and "language_model" in pattern:
        return False
    left_out = _OUTSIDE if _HOLDERS & set(name.split(".")) else _OUTSIDE | _HOLDERS
    plain = ".".join(part for part in pattern.split(".") if part not in left_out)
    return bool(plain) and fnmatchcase(f".{name}.", f"*.{plain}.*")


def _with_adapters(model: Model, lora: Lora) -> Model:
    """Freeze all, and add a pair of matrices beside each module that is named, as peft does it."""
    shape = model.shape
    if shape is None:
        raise UnknownModelError("lora needs fromConfig, or layers, hiddenSize and vocabulary")
    layers = [linears_of(shape.parts(number)) for number in range(shape.layers)]
    linears = tuple(dict.fromkeys(linear for layer in layers for linear in layer))
    unknown = [target for target in lora.targets if not any(each.adapted_by((target,)) for each in linears)]
    if unknown:
        names = ", ".join(dict.fromkeys(linear.name.rpartition(".")[2] for linear in linears))
        raise UnknownModelError(f"lora.targets: {', '.join(unknown)} is none of {names}")
    _refuse_unknown(model, shape, lora)
    pairs = {
        linear.name: (lora.rank * shape.width(linear.into), lora.rank * sum(map(shape.width, linear.out)))
        for linear in linears
        if linear.adapted_by(tuple(lora.targets))
    }
    added = sum(sum(pairs[linear.name]) for layer in layers for linear in layer if linear.name in pairs)
    frozen = tuple(tuple(replace(tensor, trained=False) for tensor in module) for module in model.modules)
    modules = tuple(each for module in frozen for each in _beside(module, pairs))
    return replace(model, parameters=model.parameters + added, modules=modules, trainable=added)


# As transformers called them before 5.0, too.
_OF_EXPERTS: Final = frozenset({"gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3"})


def _refuse_unknown(model: Model, shape: Shape, lora: Lora) -> None:
    """Adapters of experts are some of each expert's or of all together, by the version of peft and transformers.

    Whether modules of a tower that have such a name are adapted depends on how the script excludes them.
    """
    named = [target for target in lora.targets if target.rpartition(".")[2] in _OF_EXPERTS]
    if named and shape.mixture is not None:
        raise UnknownModelError(
            f"lora.targets: how {', '.join(named)} of experts are adapted is not known: declare trainableParameters"
        )
    tower = {_module_name(each) for module in model.modules for each in module if is_of_tower(each)}
    seen = [target for target in lora.targets if any(f".{name}".endswith(f".{target}") for name in tower)]
    if seen:
        raise UnknownModelError(
            f"lora.targets: whether {', '.join(seen)} of the vision tower are adapted is not known: "
            "declare trainableParameters"
        )


def _beside(module: Module, pairs: Mapping[str, tuple[int, int]]) -> Iterator[Module]:
    yield module
    name = module[0].name.removesuffix(".weight")
    pair = pairs.get(name.split(".", 2)[-1]) if name.startswith("layers.") else None
    if pair is not None:
        yield from ((Tensor(f"{name}_lora_{side}.weight", size),) for side, size in zip("AB", pair, strict=True))


def _facts(facts: ModelFacts, model: Model) -> Iterator[Fact]:
    usage = model.usage
    trained_is_said = any(each is not None for each in (facts.lora, facts.trainable, facts.trainable_parameters))
    if facts.from_config is None and model.shape is not None:
        yield from _facts_of(model.shape, facts)
    if facts.experts is not None:
        words = f"{facts.experts.count} in each of {facts.experts.layers} layers, {facts.experts.top_k} for a token"
        yield Fact("experts", words, Source.DECLARED)
    yield Fact("trainableParameters", model.trained, _source(trained_is_said))
    if usage.sequence is not None:
        yield Fact("sequenceLength", usage.sequence, _source(facts.sequence_length is not None))
    yield Fact("attention", usage.attention.value, _source(facts.attention is not None))
    checkpointing = "true" if usage.checkpointing else "false"
    yield Fact("activationCheckpointing", checkpointing, _source(facts.activation_checkpointing is not None))
    if usage.frozen_width is not None:
        yield Fact("bytes of a frozen parameter", round(usage.frozen_width, 3), Source.DECLARED)


def _facts_of(shape: Shape, facts: ModelFacts) -> Iterator[Fact]:
    yield Fact("layers", shape.layers, Source.DECLARED)
    yield Fact("hidden size", shape.hidden, Source.DECLARED)
    yield Fact("vocabulary", shape.vocabulary, Source.DECLARED)
    yield Fact("heads", shape.heads, _source(facts.heads is not None))
    groups = shape.keys * shape.heads // shape.queries
    yield Fact("keyValueHeads", groups, _source(facts.key_value_heads is not None))
    yield Fact("intermediateSize", shape.intermediate, _source(facts.intermediate_size is not None))


def _source(said: bool) -> Source:
    return Source.DECLARED if said else Source.ASSUMED
