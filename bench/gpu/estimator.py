"""What DeepSpeed itself says a configuration needs: its own formulas, to be compared with."""

from collections.abc import Mapping
from typing import Any

from deepspeed_operator.plan.model.architecture import Model


def estimate(record: Mapping[str, Any], model: Model, world: int) -> int | None:
    """Bytes of a GPU by estimate_zero2_ and estimate_zero3_model_states_mem_needs of 0.19.8; stages 0 and 1 have none.

    Sources: runtime/zero/stage_1_and_2.py and stage3.py. Activations are not in them, nor is what is frozen apart.
    """
    parameters, offload = model.parameters, bool(record["offload"])
    if record["stage"] == 2:
        return 2 * parameters if offload else 2 * parameters + 18 * parameters // world
    if record["stage"] == 3:
        largest = 4 * max(sum(tensor.elements for tensor in module) for module in model.modules)
        return largest + (2 if offload else 18) * parameters // world
    return None
