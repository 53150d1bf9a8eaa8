"""MemoryFit in status, and spec.admission."""

from typing import Any

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.job.node_selection import LabelledNode
from tests.unit.reconcile.simulation import Simulation, job

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


def test_required_fit_refuses_nothing_for_a_copy_that_deepspeed_makes_on_the_host_where_a_gpu_is_full() -> None:
    config = {**CONFIG, "train_micro_batch_size_per_gpu": 1}
    model = {**MODEL, "activationCheckpointing": True}
    sizes = {"nodes": 16, "slotsPerNode": 8, "gpuMemory": "24Gi"}
    found = simulation(admission="RequireFit", model=model, dsConfig=config, **sizes)
    assert said(found) == ("True", "Fits")
    assert len(found.pods) == 16


def test_required_fit_refuses_nothing_for_activations_of_layers_that_may_be_frozen() -> None:
    found = simulation(admission="RequireFit", model={**MODEL, "trainableParameters": 100_000_000})
    assert said(found) == ("Unknown", "PredictionUncertain")
    assert "that frozen layers keep activations" in found.condition(ConditionType.MEMORY_FIT).message
    assert len(found.pods) == 2


def test_facts_that_make_no_model_are_a_warning() -> None:
    found = simulation(model={"lora": {"rank": 8}})
    assert said(found) == ("Unknown", "NotPredicted")
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


def offloading(limit: str, stage: int = 2, offload: str = "cpu", **spec: Any) -> Simulation:
    trainer = {"name": "trainer", "image": "worker:1", "resources": {"limits": {"memory": limit}}}
    zero = {"stage": stage, "offload_optimizer": {"device": offload}}
    return simulation(
        template={"spec": {"containers": [trainer]}},
        deepspeedVersion="0.19.8",
        dsConfig={**CONFIG, "zero_optimization": zero},
        **spec,
    )


def advised(found: Simulation) -> list[str]:
    return [each.message for each in found.job.status.findings if each.path == "spec.template"]


def test_a_pod_that_may_use_too_little_memory_for_what_is_offloaded_is_told() -> None:
    assert ["4 ranks need about" in each for each in advised(offloading("32Gi"))] == [True]
    assert advised(offloading("256Gi")) == []


def test_a_limit_that_leaves_nothing_for_data_loaders_is_told() -> None:
    found = offloading("90Gi")
    assert ["hardly any room beside that" in each for each in advised(found)] == [True]
    assert found.pods


@pytest.mark.parametrize(("policy", "runs"), [("Always", True), ("RequireFit", False)])
def test_a_pod_that_cannot_hold_the_states_that_are_offloaded_does_not_fit(policy: str, runs: bool) -> None:
    """8 bytes of 6.7 B parameters, of which 4 of 8 ranks hold a half: 25 GiB that no kernel leaves uncounted."""
    found = offloading("20Gi", admission=policy)
    assert said(found) == ("False", "DoesNotFit")
    assert "hold 25.1 GiB of optimizer states in the host's memory" in found.condition(ConditionType.MEMORY_FIT).message
    assert bool(found.pods) is runs


@pytest.mark.parametrize(
    "unsure",
    [
        {"model": {**MODEL, "trainableParameters": None}},
        {"offload": "none"},
        {"offload": "nvme"},
    ],
    ids=["some may be frozen", "not offloaded", "on a disk"],
)
def test_required_fit_refuses_no_pod_of_which_something_is_not_certain(unsure: dict[str, Any]) -> None:
    model = {**MODEL, "activationCheckpointing": True}
    given: dict[str, Any] = {"admission": "RequireFit", "model": model, **unsure}
    found = offloading("20Gi", **given)
    assert "optimizer states in the host's memory" not in found.condition(ConditionType.MEMORY_FIT).message


def test_ranks_that_each_load_the_whole_model_are_told_of_zero_init() -> None:
    model = {**MODEL, "activationCheckpointing": True}
    (message,) = advised(offloading("48Gi", stage=3, offload="none", model=model))
    assert "each of which loads the whole model unless zero.Init divides it, need 50.2 GiB for that" in message
    assert advised(offloading("64Gi", stage=3, offload="none", model=model)) == []


def test_without_facts_nothing_is_said() -> None:
    found = simulation(model=None)
    assert ConditionType.MEMORY_FIT not in [each.type for each in found.job.status.conditions]


def test_the_condition_stays_while_the_job_runs() -> None:
    found = simulation()
    before = found.condition(ConditionType.MEMORY_FIT)
    found.run_all()
    found.settle()
    assert found.condition(ConditionType.MEMORY_FIT) == before
