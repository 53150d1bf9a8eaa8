"""The plan's memory beside the tensors that DeepSpeed really holds, between steps and at each phase's worst.

Activations are next to nothing here. GPUs were measured apart: tests/unit/plan/memory/test_memory_measured.py.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.engine.wrappers import Optimizer
from deepspeed_operator.plan.memory.peaks import Memory, PhaseName, memory
from deepspeed_operator.plan.model.architecture import Experts, Model, Tensor
from dev.versions import scripts
from tests.models import of_modules

LAYERS = [(256, 1024), (1024, 512), (512, 1024), (1024, 512), (512, 640), (640, 256)]
WORLD = 2
FP32: dict[str, Any] = {"bf16": {"enabled": False}}
FP32_SUMS: dict[str, Any] = {"data_types": {"grad_accum_dtype": "fp32"}}
FP32_SENT: dict[str, Any] = {"communication_data_type": "fp32"}
# On CPUs torch's Adam handles one tensor after another, with two copies of its second moments.
COPIES = 8


def configuration(stage: int, *, zero: Mapping[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    limits = {"reduce_bucket_size": 800_000, "stage3_prefetch_bucket_size": 200_000}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 2,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 2000, **limits, **(zero or {})},
        **top,
    }


def cases(version: str) -> dict[str, dict[str, Any]]:
    found = {f"stage {stage}": configuration(stage) for stage in range(4)}
    found |= {f"stage {stage}, fp32": configuration(stage, **FP32) for stage in (1, 2)}
    found |= {f"stage {stage}, fp32 sums": configuration(stage, **FP32_SUMS) for stage in (1, 2, 3)}
    found["stage 2, fp32 on the wire"] = configuration(2, **FP32_SENT)
    if version == "0.19.8":
        found["stage 3, fp32 on the wire"] = configuration(3, **FP32_SENT)
        found["stage 3, sub-groups"] = configuration(3, zero={"sub_group_size": 300_000})
        found["stage 3, hpZ"] = configuration(3, zero={"zero_hpz_partition_size": WORLD})
        found["stage 2, overlapping"] = configuration(2, zero={"overlap_comm": True})
        roots: dict[str, Any] = {"use_multi_rank_bucket_allreduce": False}
        found["stage 2, single-rank reduces"] = configuration(2, zero=roots)
    return found


def linear_layers() -> Model:
    sizes = enumerate(LAYERS)
    return of_modules(tuple((Tensor(f"{i}.weight", a * b), Tensor(f"{i}.bias", b)) for i, (a, b) in sizes))


def measured(version: str, configs: list[dict[str, Any]], **more: Any) -> list[dict[str, int]]:
    asked = json.dumps({"world": WORLD, "layers": LAYERS, "configs": configs, **more})
    return [json.loads(line) for line in scripts.output(version, "memory.py", given=asked).splitlines()]


def phase(found: Memory, name: PhaseName) -> float:
    """Without the workspaces that cuBLAS takes on GPUs."""
    items = next(each.items for each in found.phases if each.name is name)
    return sum(item.size for item in items if not item.what.startswith("cuBLAS"))


@pytest.mark.parametrize("version", ["0.15.4", "0.19.8"])
def test_a_rank_holds_what_the_plan_says(version: str) -> None:
    asked, model = cases(version), linear_layers()
    wrong: dict[str, tuple[float, int]] = {}
    for (name, config), found in zip(asked.items(), measured(version, list(asked.values())), strict=True):
        stage = config["zero_optimization"]["stage"]
        planned = memory(setup_of(config, WORLD, version), model, 1, 2, optimizer=Optimizer("torch", 8, COPIES))
        expected = {"held": phase(planned, PhaseName.SAVE)}
        if stage < 3:
            expected["backward"] = phase(planned, PhaseName.BACKWARD)
        # Without zero.Init stage 3 begins with a whole model, and stage 0 steps from tensor to tensor on CPUs.
        if stage in (1, 2):
            # On CPUs there is one memory: each version has the parameters twice in it.
            width = 2 if config["bf16"]["enabled"] else 4
            expected["init"] = max(phase(planned, PhaseName.INIT), 2 * width * model.parameters)
        if stage:
            expected["step"] = phase(planned, PhaseName.STEP)
        # The backward pass's peak on gloo has differed from one run to another by 7 %; why is not known.
        tolerance = {"held": 0.01, "init": 0.01, "step": 0.03, "backward": 0.10}
        for what, size in expected.items():
            if size != pytest.approx(found[what], rel=tolerance[what]):
                wrong[f"{name}: {what}"] = (size, found[what])
    assert wrong == {}


@pytest.mark.parametrize("version", ["0.15.4", "0.19.8"])
def test_a_rank_alone_gathers_nothing_at_stage_3(version: str) -> None:
    config = configuration(3)
    found = measured(version, [config], world=1)[0]
    planned = memory(setup_of(config, 1, version), linear_layers(), 1, 2, optimizer=Optimizer("torch", 8, COPIES))
    assert phase(planned, PhaseName.SAVE) == found["held"]
    assert phase(planned, PhaseName.BACKWARD) == pytest.approx(found["backward"], rel=0.05)


@pytest.mark.parametrize("version", ["0.15.4", "0.19.8"])
def test_a_rank_holds_its_own_experts_and_its_part_of_their_states(version: str) -> None:
    count, width = 4, LAYERS[-1][1]
    experts = Experts(count, 1, width * width + width)
    parameters = linear_layers().parameters + count * width + experts.total
    model = Model(parameters, (), None, (), experts=experts)
    configs = [configuration(stage) for stage in range(3)]
    for config, found in zip(configs, measured(version, configs, experts=count), strict=True):
        setup = setup_of(config, WORLD, version, ParallelDegrees(expert=WORLD))
        planned = memory(setup, model, 1, 2, optimizer=Optimizer("torch", 8, COPIES))
        assert phase(planned, PhaseName.SAVE) == pytest.approx(found["held"], rel=0.01), config["zero_optimization"]
