"""MemoryFit in status, spec.admission, and what is said of a GPU that ran out of memory."""

import json
from typing import Any

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.job.node_selection import LabelledNode
from tests.unit.reconcile.simulation import Simulation, agent_says, job

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
MODEL: dict[str, Any] = {
    "fromConfig": LLAMA,
    "trainableParameters": 6_738_415_616,
    "sequenceLength": 2048,
    "attention": "SDPA",
    "activationCheckpointing": False,
}
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": 2},
}
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


def simulation(**spec: Any) -> Simulation:
    given = {"model": MODEL, "gpuMemory": "80Gi", "dsConfig": CONFIG, "slotsPerNode": 4, **spec}
    started = Simulation(job(**given))
    started.settle()
    return started


def said(found: Simulation) -> tuple[str, str]:
    condition = found.condition(ConditionType.MEMORY_FIT)
    return condition.status, condition.reason


def test_a_job_that_fits_says_so_and_runs() -> None:
    found = simulation(
        model={**MODEL, "activationCheckpointing": True}, dsConfig={**CONFIG, "zero_optimization": {"stage": 3}}
    )
    assert said(found) == ("True", "Fits")
    assert len(found.pods) == 2


def test_a_job_that_does_not_fit_runs_all_the_same_and_has_an_advice() -> None:
    found = simulation()
    assert said(found) == ("False", "DoesNotFit")
    assert (
        "backward pass and reduction, where activations take most" in found.condition(ConditionType.MEMORY_FIT).message
    )
    assert [(each.level, each.path) for each in found.job.status.findings if "GiB" in each.message] == [
        ("advice", "spec.model")
    ]
    assert len(found.pods) == 2


def test_required_fit_refuses_a_job_that_does_not_fit() -> None:
    found = simulation(admission="RequireFit")
    assert (found.job.status.state, found.pods) == (State.INVALID, {})
    assert found.condition(ConditionType.ACCEPTED).reason == "DoesNotFit"
    assert "spec.admission" in found.condition(ConditionType.ACCEPTED).message
    change = "train_micro_batch_size_per_gpu: 4 with gradient_accumulation_steps: 2"
    assert f"The smallest change that may fit: {change}." in found.condition(ConditionType.ACCEPTED).message


@pytest.mark.parametrize(
    ("unsaid", "named"),
    [
        ({"gpuMemory": None}, "spec.gpuMemory"),
        ({"image": "mine:1"}, "spec.deepspeedVersion"),
        ({"dsConfig": {**CONFIG, "train_micro_batch_size_per_gpu": "auto"}}, "batch sizes"),
        ({"model": {**MODEL, "activationCheckpointing": None}}, "activationCheckpointing, which is assumed"),
    ],
    ids=["GPU", "version", "batch", "fact"],
)
def test_what_is_not_known_is_named_and_refuses_nothing(unsaid: dict[str, Any], named: str) -> None:
    found = simulation(admission="RequireFit", **unsaid)
    assert said(found)[0] == "Unknown"
    assert named in found.condition(ConditionType.MEMORY_FIT).message
    assert len(found.pods) == 2


def test_facts_that_make_no_model_are_a_warning() -> None:
    found = simulation(model={"lora": {"rank": 8}})
    assert said(found) == ("Unknown", "NotKnown")
    assert [(each.level, each.path) for each in found.job.status.findings if each.path == "spec.model"] == [
        ("warning", "spec.model")
    ]


def test_a_gpu_is_known_by_the_nodes_that_the_template_demands() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    template = {"spec": {"nodeSelector": labels, "containers": [{"name": "trainer", "image": "worker:1"}]}}
    found = simulation(gpuMemory=None, template=template, deepspeedVersion="0.19.8")
    assert said(found)[0] != "Unknown"
    assert "140.4 GiB" in found.condition(ConditionType.MEMORY_FIT).message


H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559", "pool": "h100"}
T4 = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360", "pool": "t4"}
SMALL: dict[str, Any] = {"dsConfig": {**CONFIG, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}}


def on_nodes(*labels: dict[str, str], **spec: Any) -> Simulation:
    nodes = [LabelledNode(f"node{number}", each) for number, each in enumerate(labels)]
    started = Simulation(job(**{"model": MODEL, "dsConfig": CONFIG, "slotsPerNode": 4, **spec}), nodes=nodes)
    started.settle()
    return started


@pytest.mark.parametrize(
    ("labels", "spec", "status", "words"),
    [
        ([H100, H100], SMALL, "True", "79.6 GiB (NodeLabels: NVIDIA-H100-80GB-HBM3)"),
        ([H100, T4], SMALL, "Unknown", "15.0 GiB (NodeLabels: the smallest of NVIDIA-H100-80GB-HBM3, Tesla-T4)"),
        ([H100, T4], {}, "False", "79.6 GiB (NodeLabels: the largest of NVIDIA-H100-80GB-HBM3, Tesla-T4)"),
        ([H100, {"nvidia.com/gpu.product": "Next"}], SMALL, "Unknown", "memory is not known, and nodes have Next"),
        ([{"pool": "cpu"}], SMALL, "Unknown", "whose memory is not known."),
    ],
    ids=["alike", "differing", "too small each", "unheard of", "no GPU"],
)
def test_a_gpu_is_known_by_the_labels_of_nodes(
    labels: list[dict[str, str]], spec: dict[str, Any], status: str, words: str
) -> None:
    found = on_nodes(*labels, **spec)
    assert said(found)[0] == status
    assert words in found.condition(ConditionType.MEMORY_FIT).message
    assert len(found.pods) == 2


def test_nodes_where_no_pod_may_land_tell_nothing() -> None:
    template = {"spec": {"nodeSelector": {"pool": "t4"}, "containers": [{"name": "trainer", "image": "worker:1"}]}}
    found = on_nodes(H100, T4, template=template, deepspeedVersion="0.19.8", admission="RequireFit", **SMALL)
    assert found.condition(ConditionType.ACCEPTED).reason == "DoesNotFit"


def test_nodes_are_read_once_a_run_and_only_where_a_job_needs_it() -> None:
    found = on_nodes(H100, **SMALL)
    found.run_all()
    found.wait(3600)
    found.settle()
    assert found.node_reads == 1
    assert on_nodes(H100, gpuMemory="80Gi").node_reads == 0
    assert on_nodes(H100, model=None).node_reads == 0
    assert on_nodes(H100, dsConfig={**CONFIG, "train_micro_batch_size_per_gpu": "auto"}).node_reads == 0
    assert simulation(gpuMemory=None).node_reads == 0


def test_a_refused_job_is_judged_by_the_nodes_of_later() -> None:
    found = on_nodes(T4, admission="RequireFit", **SMALL)
    assert found.job.status.state is State.INVALID
    found.nodes = [LabelledNode("new", H100)]
    found.settle()
    assert found.node_reads == 1
    found.wait(600)
    found.settle()
    assert (found.node_reads, said(found)) == (2, ("True", "Fits"))


def test_a_pod_that_may_use_too_little_memory_for_what_is_offloaded_is_told() -> None:
    def advised(limit: str) -> list[str]:
        trainer = {"name": "trainer", "image": "worker:1", "resources": {"limits": {"memory": limit}}}
        zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
        found = simulation(
            template={"spec": {"containers": [trainer]}},
            deepspeedVersion="0.19.8",
            dsConfig={**CONFIG, "zero_optimization": zero},
        )
        return [each.message for each in found.job.status.findings if each.path == "spec.template"]

    assert ["4 ranks need about" in each for each in advised("32Gi")] == [True]
    assert advised("256Gi") == []


def test_without_facts_nothing_is_said() -> None:
    found = simulation(model=None)
    assert ConditionType.MEMORY_FIT not in [each.type for each in found.job.status.conditions]


def test_the_condition_stays_while_the_job_runs() -> None:
    found = simulation()
    before = found.condition(ConditionType.MEMORY_FIT)
    found.run_all()
    found.settle()
    assert found.condition(ConditionType.MEMORY_FIT) == before


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
