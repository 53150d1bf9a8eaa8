"""What is said of a GPU that ran out of memory: what was predicted, and what would fit."""

import json

import pytest

from deepspeed_operator.api.status import ConditionType, State
from tests.unit.reconcile.admission.test_memory_fit import CONFIG, MODEL, simulation
from tests.unit.reconcile.simulation import Simulation, agent_says, job

# As PyTorch 2.9 and 2.0 say it.
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried} GiB. GPU 0 has a total capacity of 79.11 "
    "GiB of which 1.06 GiB is free. Process 41 has 78.04 GiB memory in use. Of the allocated memory {allocated} GiB is "
    "allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
    "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
OUT_OF_MEMORY_BEFORE = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried} GiB (GPU 0; 79.15 GiB total capacity; "
    "{allocated} GiB already allocated; 1.06 GiB free; 76.71 GiB reserved in total by PyTorch) If reserved memory is "
    ">> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory "
    "Management and PYTORCH_CUDA_ALLOC_CONF"
)
TRACEBACK = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/workspace/train.py", line 41, in <module>
[rank3]:     engine.backward(loss)
[rank3]:   File "/usr/lib/python3/dist-packages/deepspeed/runtime/zero/stage_1_and_2.py", line 2145, in backward
[rank3]:     self.loss_scaler.backward(loss.float(), retain_graph=retain_graph)
[rank3]: {error}
"""


@pytest.mark.parametrize("words", [OUT_OF_MEMORY, OUT_OF_MEMORY_BEFORE], ids=["PyTorch 2.9", "PyTorch 2.0"])
def test_out_of_memory_names_the_phase_its_largest_term_and_the_smallest_change_that_fits(words: str) -> None:
    cause = cause_of(simulation(gpuMemory=None), words.format(tried="1.95", allocated="75.51"))
    assert "CUDA out of memory" in cause
    assert "Predicted: most memory in the backward pass and reduction, activations" in cause
    assert cause.endswith(
        "; the smallest change that fits: train_micro_batch_size_per_gpu: 4 with gradient_accumulation_steps: 2"
    )


def test_where_it_needed_more_than_was_predicted_so_does_the_change() -> None:
    predicted_to_fit = {**CONFIG, "train_micro_batch_size_per_gpu": 2}

    def change(tried: str, allocated: str) -> str:
        said = OUT_OF_MEMORY.format(tried=tried, allocated=allocated)
        cause = cause_of(simulation(dsConfig=predicted_to_fit, slotsPerNode=8), said)
        return cause.partition("the smallest change that fits: ")[2]

    assert change("1.95", "40.00") == "train_micro_batch_size_per_gpu: 1 with gradient_accumulation_steps: 2"
    assert change("35.00", "70.00") == "activation checkpointing in the script"


def test_the_cause_is_also_in_the_condition_and_in_the_event() -> None:
    found = simulation()
    cause_of(found, OUT_OF_MEMORY.format(tried="1.95", allocated="75.51"))
    assert "the smallest change that fits" in found.condition(ConditionType.FAILED).message
    assert "the smallest change that fits" in found.events[-1].message


def test_a_configuration_in_a_config_map_is_read_for_it() -> None:
    source = {"configMap": "shared", "key": "ds_config.json"}
    given = {"model": MODEL, "gpuMemory": "80Gi", "slotsPerNode": 4, "dsConfig": None, "dsConfigFrom": source}
    found = Simulation(job(**given))
    found.config_maps["shared"] = {"ds_config.json": json.dumps(CONFIG)}
    found.settle()
    found.wait(600)
    assert "the smallest change that fits" in cause_of(found, OUT_OF_MEMORY.format(tried="1.95", allocated="75.51"))


def test_out_of_memory_of_a_job_without_facts_is_left_as_it_is() -> None:
    assert "Predicted" not in cause_of(simulation(model=None), OUT_OF_MEMORY.format(tried="1.95", allocated="75.51"))


def cause_of(found: Simulation, error: str) -> str:
    """The first line of a failure, of which the agent tells the first 300 characters and the end of the log."""
    found.run_all()
    found.settle()
    words = agent_says(0, 3, 1, signature=error[:300]).partition("\n")[0]
    found.end(0, 1, f"{words}\n{TRACEBACK.format(error=error)}")
    found.settle()
    found.wait(60)
    found.settle()
    assert found.job.status.state is State.FAILED
    assert found.job.status.failure is not None
    return found.job.status.failure.message.partition("\n")[0]
