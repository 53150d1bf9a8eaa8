"""An imagined machine whose steps take exactly as long as their parts: what a calibration must find out about it."""

from typing import Any

from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.model.hugging_face import from_hugging_face
from deepspeed_operator.plan.time.costs import Costs, Work
from deepspeed_operator.plan.time.links import Bandwidth, Links
from deepspeed_operator.plan.time.step_time import StepTime, step_time
from deepspeed_operator.plan.traffic.communication import communication

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5504,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "vocab_size": 32000,
}
MODEL = from_hugging_face(LLAMA)
SINGLE_ROOTS = {"use_multi_rank_bucket_allreduce": False}
NOTHING_STAYS = {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}
_SIZES = (2**18, 2**22, 2**25, 2**28, 2**30)


def configuration(stage: int, accumulation: int, micro: int = 4, **zero: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW"},
        "zero_optimization": {"stage": stage, **zero},
    }


def costs(rate: float, latency: float = 30e-6, hides: float = 1.0) -> Costs:
    link = Bandwidth(rate, latency)
    return Costs(
        sample=0.022,
        reduction={Work.WHOLE: 5e-12, Work.DIVIDED: 12e-12, Work.ROOTED: 4e-12, Work.GATHERED: 0.0},
        update={Work.WHOLE: 70e-12, Work.DIVIDED: 90e-12, Work.ROOTED: 90e-12, Work.GATHERED: 110e-12},
        gather=200e-6,
        module=450e-6,
        links=Links(link, link),
        facts=(),
        waits=True,
        launch=0.009,
        hides=hides,
    )


def time_of(config: dict[str, Any], costs: Costs) -> StepTime:
    setup, accumulation = setup_of(config, 2, "0.19.8"), config["gradient_accumulation_steps"]
    traffic = communication(setup, MODEL, accumulation, slots=1)
    micro = config["train_micro_batch_size_per_gpu"]
    found = step_time(setup, MODEL, traffic, costs, micro=micro, accumulation=accumulation)
    assert found is not None
    return found


def run(fabric: str, costs: Costs) -> list[dict[str, Any]]:
    """The lines of bench/gpu."""
    about = {"fabric": fabric, "world": 2, "deepspeed": "0.19.8"}
    configs = [configuration(stage, 2) for stage in (0, 2, 3)]
    configs += [
        configuration(0, 2, micro=16),
        configuration(2, 2, **SINGLE_ROOTS),
        configuration(3, 2, micro=8),
        configuration(3, 2, **NOTHING_STAYS),
    ]
    return [
        {**about, "collectives": list(_sweep(costs))},
        *({**about, **_measured(config, costs)} for config in configs),
    ]


def _sweep(costs: Costs) -> list[dict[str, Any]]:
    reached = costs.links.between
    assert isinstance(reached, Bandwidth)
    passes = {"all-reduce": 1.0, "all-gather": 0.5, "reduce-scatter": 0.5, "reduce": 0.5 * 1.3}
    return [
        {"collective": name, "bytes": size, "seconds": reached.latency + times * size / reached.rate}
        for name, times in passes.items()
        for size in _SIZES
    ]


def _measured(config: dict[str, Any], costs: Costs) -> dict[str, Any]:
    time, setup = time_of(config, costs), setup_of(config, 2, "0.19.8")
    traffic = communication(setup, MODEL, 2, slots=1)
    after = sum(costs.links.seconds(term) or 0 for term in traffic.terms if term.after)
    passes, step = time.seconds - time.update - after, time.update + after
    micro = config["train_micro_batch_size_per_gpu"]
    plain = costs.launch + micro * costs.sample
    first = plain if setup.stage == 0 else passes / 2
    phases = [[first / 3, first * 2 / 3, 0.0], [first / 3, passes - first * 4 / 3, step]]
    return {
        "ds_config": config,
        "model_config": LLAMA,
        "micro": micro,
        "accumulation": 2,
        "step_seconds": [time.seconds, time.seconds * 1.01, time.seconds * 0.99],
        "phases": phases,
    }
