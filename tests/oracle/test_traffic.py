"""The plan's payloads beside those that DeepSpeed really passes to torch.distributed, on gloo."""

from collections.abc import Mapping
from typing import Any

import pytest

from deepspeed_operator.plan.communication import communication
from deepspeed_operator.plan.model import Model, Tensor, of_modules
from deepspeed_operator.plan.reading import setup_of
from tests.oracle.traffic import counted

# Widths that nothing divides evenly, and one matrix that is larger than a bucket.
LAYERS = [(256, 1024), (1024, 259), (259, 1024), (1024, 512), (512, 640), (640, 256)]
BUCKET = 400_000
NOTHING_STAYS = {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}
LITTLE_STAYS = {
    "stage3_max_live_parameters": 600_000,
    "stage3_max_reuse_distance": 500_000,
    "stage3_prefetch_bucket_size": 300_000,
}
SMALL_PERSIST = {"stage3_param_persistence_threshold": 270_000}


def configuration(
    stage: int, accumulation: int, *, zero: Mapping[str, Any] | None = None, **top: Any
) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulation,
        "bf16": {"enabled": True},
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": BUCKET, **(zero or {})},
        **top,
    }


def cases(accumulation: int) -> dict[str, dict[str, Any]]:
    fp32_sums: dict[str, Any] = {"data_types": {"grad_accum_dtype": "fp32"}}
    fp32_on_the_wire: dict[str, Any] = {"communication_data_type": "fp32"}
    single: dict[str, Any] = {"use_multi_rank_bucket_allreduce": False}
    found = {f"stage {stage}": configuration(stage, accumulation) for stage in range(4)}
    for stage in (1, 2):
        found[f"stage {stage}, single-rank reduces"] = configuration(stage, accumulation, zero=single)
        found[f"stage {stage}, fp32 sums"] = configuration(stage, accumulation, **fp32_sums)
    found["stage 1, fp32 sums, single-rank reduces"] = configuration(1, accumulation, zero=single, **fp32_sums)
    found["stage 2, no reduce-scatter"] = configuration(2, accumulation, zero={"reduce_scatter": False, **single})
    found["stage 2, fp32 on the wire"] = configuration(2, accumulation, **fp32_on_the_wire)
    found["stage 3, fp32 on the wire"] = configuration(3, accumulation, **fp32_on_the_wire)
    found["stage 3, nothing stays"] = configuration(3, accumulation, zero=NOTHING_STAYS)
    found["stage 3, little stays"] = configuration(3, accumulation, zero=LITTLE_STAYS)
    found["stage 3, small matrices persist"] = configuration(3, accumulation, zero=SMALL_PERSIST)
    found["stage 0, fp32"] = configuration(0, accumulation, bf16={"enabled": False})
    return found


def linear_layers() -> Model:
    return of_modules(
        tuple(
            (Tensor(f"{index}.weight", wide * narrow), Tensor(f"{index}.bias", wide))
            for index, (narrow, wide) in enumerate(LAYERS)
        )
    )


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("version", ["0.15.4", "0.19.8"])
def test_a_step_costs_what_the_plan_says(version: str, world: int) -> None:
    asked = {f"{name}, accumulation {steps}": config for steps in (1, 4) for name, config in cases(steps).items()}
    wrong: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
    for (name, config), found in zip(asked.items(), counted(version, world, LAYERS, list(asked.values())), strict=True):
        setup = setup_of(config, world, version)
        traffic = communication(setup, linear_layers(), config["gradient_accumulation_steps"])
        planned = traffic.payload()
        assert traffic.unproven == (), name
        if planned.keys() != found.keys() or any(abs(planned[each] / found[each] - 1) > 0.01 for each in planned):
            wrong[name] = (planned, found)
    assert wrong == {}
