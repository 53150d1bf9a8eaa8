"""What the parts of a step cost on one rank, whatever its network: measured by a calibration, or assumed of a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.job.data_sheets import Device
from deepspeed_operator.job.precision import Precision
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.engine.partitioning import to_single_ranks
from deepspeed_operator.plan.model.architecture import Model, Shape, first_trained, total
from deepspeed_operator.plan.model.parts import GroupedExperts, Norm, Norming, Part, linears_of
from deepspeed_operator.plan.time.launching import USUAL, Host
from deepspeed_operator.plan.time.links import Link, Links


class Work(StrEnum):
    """Who handles gradients and the optimizer's states: it decides what a step does beside computing and sending."""

    WHOLE = "stage 0"
    DIVIDED = "stages 1 and 2"
    ROOTED = "stages 1 and 2 with use_multi_rank_bucket_allreduce: false"
    GATHERED = "stage 3"


def work_of(setup: Setup) -> Work:
    if setup.stage in (1, 2) and to_single_ranks(setup):
        return Work.ROOTED
    return (Work.WHOLE, Work.DIVIDED, Work.DIVIDED, Work.GATHERED)[setup.stage]


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: `sample` of one sample's forward and backward pass, beside `launch` for the passes of each micro step
    whatever its samples; `reduction` of a parameter that is reduced, `update` of a parameter that the rank's optimizer
    updates, `gather` of a parameter tensor that stage 3 gathers, `module` of a module that it visits. `hides`: the
    share of computing that goes on behind these two. `gathering`: how many times what was measured of each collective
    alone takes what stage 3 sends while it computes; `waits`: `gather` was measured on this network, waiting for it
    included. `slower`: how many times `sample` a sample takes in a precision, where it is not once; `measured_in`: the
    precision in which it was measured, if it was. `half`: the 16-bit type for this GPU. `byte`: of a byte that passes
    through the GPU's memory; None: not known apart from the rest. `host`: what its Python takes besides; nothing, where
    `launch` was measured with it.
    """

    sample: float
    reduction: Mapping[Work, float]
    update: Mapping[Work, float]
    gather: float
    module: float
    links: Links
    facts: tuple[Fact, ...]
    gathering: float = 1.0
    waits: bool = False
    launch: float = 0.0
    hides: float = 1.0
    slower: Mapping[Precision, float] = field(default_factory=dict[Precision, float])
    measured_in: Precision | None = None
    half: Precision = Precision.BF16
    byte: float | None = None
    host: Host = field(default_factory=Host)

    def on_host(self, factor: float) -> "Costs":
        """Return those of a host that takes so many times as long."""
        return replace(self, host=self.host.times(factor), gather=self.gather * factor, module=self.module * factor)

    def sample_in(self, precision: Precision) -> float:
        """Return the seconds of one sample's two passes, computed so."""
        return self.sample * self.slower.get(precision, 1.0)

    def within(self, inside: Link | None) -> "Costs":
        """Return the same with another link between the GPUs of a node: what was measured is between nodes."""
        return replace(self, links=Links(inside, self.links.between))


# Share of the peak that Llama-like models reach in plain PyTorch: 41 % was measured of 1.3 B parameters on an H100. Of
# other widths it follows from what products take and what passes through memory beside them; of a size alone, it is it.
_UTILIZATION: Final = 0.4
# Times as long as at the peak, and operations for which a byte stands, by steps of four models on H200s: 0.6 to 3.2 B
# parameters, 1,024 to 3,072 wide, 32,000 to 152,000 tokens. 1.3 B take as long on an H100, whose memory is slower.
_PRODUCTS: Final = 1.2
_A_BYTE: Final = 330
# At most, as of the widest of these models, on the GPUs that they were measured on; on others as of 1.3 B.
_MOST_UTILIZATION: Final = {"H100": 0.47, "H200": 0.47}
# As a fact is called, and what others reach by kernels of their own: Megatron-LM on A100s (arXiv 2205.05198, table 5).
UTILIZATION: Final = "share of the GPU's peak"
TUNED: Final = 0.56
# Of fp32's, more: its products take long, and all else hardly longer. NVIDIA's DeepLearningExamples had BERT-large read
# 40.3 sequences of 128 a second on a V100 in fp32 and 172 in fp16 (PyTorch 19.07): 68 and 36 % of the peaks.
_PLAIN_UTILIZATION: Final = 0.7
# Bytes that pass through a GPU's memory for each parameter, as measured on an H200; most of it is copies.
_UPDATE: Final = {Work.WHOLE: 210, Work.DIVIDED: 250, Work.ROOTED: 250, Work.GATHERED: 250}
_REDUCTION: Final = {Work.WHOLE: 35, Work.DIVIDED: 30, Work.ROOTED: 30, Work.GATHERED: 30}
# Of Python, on the host of H200s: for each tensor that stage 3 gathers, for each module that it visits, with or without
# parameters, beside the kernels: by all steps at stage 3 in bench/gpu/results, of six models in loops and under the
# Trainer on hosts that differ by a half.
_GATHER: Final = 300e-6
_MODULE: Final = 370e-6
# Of computing, what goes on behind that: by two rounds on H200s together, which alone tell 0.3 and 0.9.
_HIDES: Final = 0.7


def assumed(
    model: Model,
    device: Device,
    links: Links,
    *,
    tokens: int,
    precision: Precision = Precision.BF16,
    declared: float | None = None,
    framework: bool = False,
) -> Costs:
    """Return costs that nobody measured; `declared`: the seconds of a sample's two passes, as a user says.

    `framework`: whether one runs the steps, rather than the script itself.

    `precision`: what the job computes in, of which the facts are told. What a user says is of that: another precision
    is then taken to be as fast.
    """
    work = _work(model, tokens, device)
    sample, slower = work / device.flops, _slower(device)
    host = (USUAL if framework else USUAL.of_a_loop).times(device.host)
    facts = [
        Fact("optimizer step, bytes moved a parameter", _UPDATE[Work.WHOLE], Source.ASSUMED),
        Fact("kernels that the host starts a second", round(1 / host.kernel), Source.ASSUMED),
    ]
    if declared is not None:
        sample, slower = declared, {}
    elif precision in slower:
        facts.insert(0, Fact("share of the GPU's peak in fp32 without TF32", _PLAIN_UTILIZATION, Source.ASSUMED))
    else:
        share = round(flops(model, tokens) / work, 2)
        facts.insert(0, Fact(UTILIZATION, share, Source.ASSUMED))
    return Costs(
        sample=sample,
        reduction={work: size / device.memory_rate for work, size in _REDUCTION.items()},
        update={work: size / device.memory_rate for work, size in _UPDATE.items()},
        gather=_GATHER * device.host,
        module=_MODULE * device.host,
        host=host,
        links=links,
        facts=tuple(facts),
        hides=_HIDES,
        slower=slower,
        half=device.half,
        byte=1 / device.memory_rate if declared is None else 0.0,
    )


def _work(model: Model, tokens: int, device: Device) -> float:
    """Operations for which a GPU at its peak would take as long as for a sample's two passes."""
    if model.shape is None:
        return flops(model, tokens) / _UTILIZATION
    # Where less is computed, since part of it is frozen, less passes through memory.
    passed = flops(model, tokens) / flops(replace(model, trainable=model.parameters), tokens)
    work = _PRODUCTS * flops(model, tokens) + passed * _A_BYTE * tokens * moved(model.shape)
    most = _MOST_UTILIZATION.get(device.name.partition("-")[0], _UTILIZATION)
    return max(work, flops(model, tokens) / most)


def _slower(device: Device) -> dict[Precision, float]:
    """Return how many times as long as in its 16-bit type a GPU takes: bf16 that no tensor core knows is as fp32."""
    times = device.flops * _UTILIZATION / (device.plain_flops * _PLAIN_UTILIZATION)
    return {precision: times for precision in Precision if precision not in (Precision.FP16, device.half)}


def flops(model: Model, tokens: int) -> float:
    """Of one sample's two passes: 6 for each parameter and token, and attention's products (2204.02311, B).

    What is frozen has no gradient of its own, and the backward pass ends at the first module that is trained.
    """
    attention = 12 * model.shape.layers * model.shape.queries * tokens if model.shape else 0
    if model.trained == model.parameters:
        return tokens * (6 * model.passed + attention)
    if model.trainable is not None or not model.modules:
        return tokens * (4 * model.passed + attention)
    behind = total(model.modules[first_trained(model.modules) :]) / model.parameters
    # A third of attention's products are the forward pass's.
    return tokens * (2 * model.passed * (1 + behind) + 2 * model.trained + attention * (1 + 2 * behind) / 3)


# Bytes that a number of a token passes through memory in both passes, beside products: in a norm made of single
# operations in fp32, or in PyTorch's own; rotated; in a gated activation; added to the residual stream; a logit's, in
# bf16 and fp32.
_NORMED: Final = {Norming.RMS: 192, Norming.EXACT: 192, Norming.LAYER: 32}
_ROTATED: Final = 80
_ACTIVATED: Final = 36
_ADDED: Final = 24
_LOGIT: Final = 40


def moved(shape: Shape) -> float:
    """Bytes that a token passes through a GPU's memory in both passes, beside products."""
    return sum(_moved_in(shape, number) for number in range(shape.layers)) + shape.vocabulary * _LOGIT


def _moved_in(shape: Shape, number: int) -> float:
    parts = shape.parts(number)
    normed = sum(shape.width(part.of) for part in parts if isinstance(part, Norm)) * _NORMED[shape.family.norming]
    rotated = (shape.queries + shape.keys) * _ROTATED
    return normed + rotated + _inside(shape, parts) * _ACTIVATED + shape.hidden * _ADDED


def _inside(shape: Shape, parts: tuple[Part, ...]) -> int:
    """Numbers of a token inside the MLP, and inside the experts that it goes to."""
    linears = linears_of(parts)
    widths = {part.into: shape.width(part.into) for part in linears if part.into in ("intermediate", "shared")}
    chosen = shape.mixture.chosen if shape.mixture is not None else 0
    experts = sum(chosen * shape.width("expert") for part in parts if isinstance(part, GroupedExperts))
    return sum(widths.values()) + experts
