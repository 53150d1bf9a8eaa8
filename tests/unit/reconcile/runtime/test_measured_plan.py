"""What the ranks measured of their first steps is in status beside the plan, and a faster choice is advised once."""

import json
from dataclasses import replace
from typing import Any

import pytest

from deepspeed_operator.api.plan_status import PlanStatus
from deepspeed_operator.api.status import Finding, State
from deepspeed_operator.api.transport import Transport, TransportState
from deepspeed_operator.job.node_selection import LabelledNode
from deepspeed_operator.plan.time.measured import Measured
from deepspeed_operator.reconcile.observe.observed import AgentReport
from deepspeed_operator.reconcile.observe.read_as import read_as
from tests.unit.plan.machine import LLAMA
from tests.unit.reconcile.simulation import Simulation, agent_says, job
from tests.unit.reconcile.suspension import suspend_and_resume

# The recipe of bench/gpu on two H200s over TCP, as it was measured: docs/gpu.md.
MODEL: dict[str, Any] = {
    "fromConfig": LLAMA,
    "sequenceLength": 1024,
    "attention": "SDPA",
    "activationCheckpointing": False,
}
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "zero_optimization": {"stage": 2},
}
MEASURED: dict[str, Any] = {
    "steps": 20,
    "microBatch": 4,
    "accumulation": 4,
    "stage": 2,
    "precision": "bf16",
    "stepSeconds": 1.8612,
    "allReduce": {"ranks": 2, "points": [[256 << 10, 0.0002], [16 << 20, 0.0018], [128 << 20, 0.0137]]},
    "device": "NVIDIA H200",
    "deviceMemory": 150_110_011_392,
    "peakMemory": 23_085_449_216,
}


def running(said: Any = None, **spec: Any) -> Simulation:
    simulation = Simulation(job(**{"model": MODEL, "dsConfig": CONFIG, **spec}))
    says(simulation, said)
    return simulation.train()


def says(simulation: Simulation, said: Any, attempt: int = 1) -> None:
    simulation.agent = AgentReport(
        attempt, simulation.now, deepspeed_version="0.19.8", measured=read_as(Measured, said)
    )


def plan(simulation: Simulation) -> PlanStatus:
    found = simulation.job.status.plan
    assert found is not None
    return found


def advised(simulation: Simulation) -> list[Finding]:
    return [each for each in simulation.job.status.findings if each.message.startswith("Measured: ")]


def announced(simulation: Simulation) -> list[str]:
    return [event.type for event in simulation.events if event.reason == "FasterConfiguration"]


def test_the_agents_are_told_to_measure_what_has_a_plan_and_is_started_by_them() -> None:
    def told(**spec: Any) -> bool:
        simulation = Simulation(job(**{"model": MODEL, "dsConfig": CONFIG, **spec}))
        simulation.settle()
        return json.loads(simulation.config_maps["pretrain-1-job-1"]["launch.json"])["measure"]

    assert told()
    assert not told(model=None)
    assert not told(training={"script": "train.py", "launcher": "DeepSpeed"})


def test_the_plan_is_in_status_within_30_seconds_of_the_20th_step_and_written_once() -> None:
    simulation = running()
    assert simulation.job.status.plan is None
    says(simulation, MEASURED)
    simulation.wait(30)
    simulation.settle()
    found, writes = plan(simulation), len(simulation.writes)
    assert found.measured_step_seconds == 1.86
    assert found.predicted_step_seconds == pytest.approx(1.86, rel=0.25)
    assert found.network_percent == pytest.approx(67, abs=5)
    assert found.bus_bandwidth == pytest.approx(9.8e9, rel=0.02)
    assert found.measured_peak_memory == MEASURED["peakMemory"]
    assert found.predicted_peak_memory == pytest.approx(MEASURED["peakMemory"], rel=0.1)
    # 32 samples of 1024 tokens, 6 FLOPs a parameter and some 8 % for attention, on two H200s of 989 TFLOP/s.
    by_hand = 100 * 32 * 1024 * 6 * 1_345_423_360 * 1.08 / (2 * 989e12 * 1.8612)
    assert found.mfu_percent == pytest.approx(by_hand, rel=0.02)
    assert found.message is None
    for _ in range(5):
        simulation.wait(30)
        says(simulation, {**MEASURED, "stepSeconds": 2.5})
        simulation.settle()
    assert (len(simulation.writes), simulation.corrections) == (writes, 1)


def test_a_model_that_no_gpu_computes_as_fast_has_no_mfu_and_the_plan_says_so() -> None:
    found = plan(running({**MEASURED, "stepSeconds": 0.01}))
    assert found.mfu_percent is None
    assert "times what the GPUs can do" in (found.message or "")


def test_what_is_faster_is_one_advice_and_one_event() -> None:
    simulation = running(MEASURED)
    (finding,) = advised(simulation)
    assert (finding.level, finding.path) == ("advice", "spec.dsConfig")
    assert "zero_optimization.stage: 0 is predicted to be 2." in finding.message
    assert "at the same global batch" in finding.message
    assert "of the GPU's 139.8 GiB" in finding.message
    assert finding.fix.startswith("Write zero_optimization.stage: 0, and run again")
    assert announced(simulation) == ["Normal"]


def test_a_change_that_does_not_fit_by_the_memory_measured_is_not_advised() -> None:
    simulation = running({**MEASURED, "device": "NVIDIA L40S", "deviceMemory": 47_700_000_000, "peakMemory": 32 << 30})
    (finding,) = advised(simulation)
    assert "Measured: 1.86 s a step, of which its traffic takes 66 %. zero_optimization.stage: 1 is" in finding.message
    assert "in 37.3 GiB of the GPU's 44.4 GiB" in finding.message


def test_on_a_fast_network_nothing_is_advised() -> None:
    fast = {"ranks": 2, "points": [[256 << 10, 0.00004], [16 << 20, 0.0001], [128 << 20, 0.0005]]}
    simulation = running({**MEASURED, "stepSeconds": 0.6, "allReduce": fast})
    assert plan(simulation).network_percent is not None
    assert advised(simulation) == []
    assert announced(simulation) == []


@pytest.mark.parametrize(
    ("spec", "said", "remark"),
    [
        ({}, {"stage": 3, "microBatch": 8}, "the ranks run with ZeRO stage 3, not 2, micro batch 8, not 4"),
        ({}, {"allReduce": None}, "no all-reduce was measured"),
        ({"model": {**MODEL, "sequenceLength": None}}, {}, "sequenceLength is not declared"),
        ({}, {"device": "GeForce"}, "nothing is known here of the device GeForce"),
        ({}, {"stepSeconds": 0.5}, "takes longer at the measured all-reduce than the whole step"),
        (
            {"dsConfig": {**CONFIG, "zero_optimization": {"stage": 2, "overlap_comm": True}}},
            {},
            "the predicted step is an upper bound: overlap_comm may hide up to ",
        ),
    ],
    ids=["another configuration", "network", "sequence", "device", "contradiction", "upper bound"],
)
def test_what_is_not_known_is_said(spec: dict[str, Any], said: dict[str, Any], remark: str) -> None:
    simulation = running({**MEASURED, **said}, **spec)
    assert plan(simulation).measured_step_seconds is not None
    message = plan(simulation).message
    assert message is not None
    assert remark in message


def test_what_is_left_to_a_framework_is_as_the_ranks_have_it() -> None:
    automatic = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
    }
    simulation = running(MEASURED, dsConfig=automatic)
    assert plan(simulation).network_percent == pytest.approx(67, abs=5)
    (finding,) = advised(simulation)
    assert finding.fix.startswith("Write zero_optimization.stage: 0, and run again")


def test_of_a_device_that_is_not_known_only_less_of_everything_is_advised() -> None:
    cpu = {**MEASURED, "device": None, "deviceMemory": None, "peakMemory": None}
    simulation = running(cpu)
    found = plan(simulation)
    assert (found.predicted_step_seconds, found.predicted_peak_memory) == (None, None)
    assert found.network_percent == pytest.approx(67, abs=5)
    (finding,) = advised(simulation)
    assert "zero_optimization.stage: 1 is predicted" in finding.message
    assert "its memory was not predicted" in finding.message


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_run_that_was_too_short_to_be_asked_tells_it_in_its_last_words(exit_code: int) -> None:
    simulation = running()
    words = agent_says(0, 0, exit_code, "RankFailed" if exit_code else "Completed", measured=MEASURED)
    for index in range(2):
        simulation.end(index, exit_code, words)
    simulation.settle()
    assert simulation.job.status.state in {State.COMPLETE, State.FAILED}
    assert plan(simulation).measured_step_seconds == 1.86
    assert len(advised(simulation)) == 1


def test_a_new_run_begins_without_the_last_ones_plan_and_advice() -> None:
    simulation = running(MEASURED)
    for index in range(2):
        simulation.end(index)
    simulation.settle()
    assert len(advised(simulation)) == 1
    simulation.edit(runId="again")
    simulation.settle()
    assert simulation.job.status.plan is None
    assert advised(simulation) == []


def test_an_attempt_after_a_suspension_is_measured_anew() -> None:
    simulation = running(MEASURED)
    suspend_and_resume(simulation)
    simulation.agent = None
    simulation.settle()
    assert (simulation.job.status.attempt_number, simulation.job.status.plan, advised(simulation)) == (2, None, [])
    says(simulation, {**MEASURED, "stepSeconds": 2.0}, attempt=2)
    simulation.run_all()
    simulation.settle()
    assert plan(simulation).measured_step_seconds == 2.0
    assert (len(advised(simulation)), announced(simulation)) == (1, ["Normal", "Normal"])


def test_a_configuration_in_a_config_map_is_read_before_it_is_judged() -> None:
    simulation = Simulation(
        job(model=MODEL, dsConfig=None, dsConfigFrom={"configMap": "shared", "key": "ds_config.json"})
    )
    simulation.config_maps["shared"] = {"ds_config.json": json.dumps(CONFIG)}
    says(simulation, MEASURED)
    simulation.settle()
    simulation.run_all()
    simulation.wait(60)
    simulation.settle()
    (finding,) = advised(simulation)
    assert finding.path == "spec.dsConfigFrom"


FORGED: list[Any] = [
    None, [], "fast", {**MEASURED, "stepSeconds": 0}, {**MEASURED, "stepSeconds": 1e300}, {**MEASURED, "steps": -1},
    {**MEASURED, "allReduce": {"ranks": 1, "points": [[1, 1]]}}, {**MEASURED, "device": "x" * 100_000},
    {**MEASURED, "allReduce": {"ranks": 2, "points": [[1, 1]] * 99}}, {**MEASURED, "peakMemory": 2**70},
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_what_no_agent_would_say_is_not_taken(forged: Any) -> None:
    assert read_as(Measured, forged) is None
    simulation = running(forged)
    assert simulation.job.status.plan is None


def test_another_attempts_report_is_not_this_ones() -> None:
    simulation = running()
    assert simulation.facts.agent is not None
    said = replace(simulation.facts.agent, attempt=7, measured=read_as(Measured, MEASURED))
    simulation.facts = replace(simulation.facts, agent=said)
    simulation.agent = said
    simulation.step()
    assert simulation.job.status.plan is None


H100 = [LabelledNode("node", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"})]
KNOWN: dict[str, Any] = {**MODEL, "trainableParameters": 1_345_423_360}
# Stage 3 with as much accumulation as its Python loses by.
SLOW: dict[str, Any] = {**CONFIG, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}


def begun(labelled: list[LabelledNode] | None = H100, **spec: Any) -> Simulation:
    given = {"model": KNOWN, "dsConfig": SLOW, "nodes": 1, "slotsPerNode": 8, **spec}
    simulation = Simulation(job(**given), nodes=labelled)
    simulation.settle()
    return simulation


def foreseen(simulation: Simulation) -> list[Finding]:
    return [each for each in simulation.job.status.findings if each.message.startswith("Predicted: ")]


def test_what_is_much_faster_by_the_data_sheet_is_one_advice_as_the_job_is_accepted() -> None:
    simulation = begun()
    (finding,) = foreseen(simulation)
    assert (finding.level, finding.path) == ("advice", "spec.dsConfig")
    assert "s a step by the data sheet of H100-80G" in finding.message
    assert "at the same global batch" in finding.message
    assert "of the GPU's 79.6 GiB" in finding.message
    assert simulation.foresights == 1


def test_the_advice_comes_with_the_status_that_is_written_anyway() -> None:
    assert begun().writes == begun([]).writes


@pytest.mark.parametrize(
    ("labelled", "spec"),
    [
        ([], {}),
        ([LabelledNode("node", {**H100[0].labels, "nvidia.com/gpu.sharing-strategy": "time-slicing"})], {}),
        ([LabelledNode("node", {**H100[0].labels, "nvidia.com/gpu.product": "NVIDIA-H100-PCIe"})], {}),
        ([*H100, LabelledNode("other", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})], {}),
        (H100, {"nodes": 2}),
        (H100, {"model": {**KNOWN, "sequenceLength": None}}),
        (H100, {"model": {"parameters": 1_345_423_360, "sequenceLength": 1024}}),
        (H100, {"model": None}),
        (H100, {"dsConfig": CONFIG}),
    ],
    ids=["GPU", "shared GPU", "links", "two kinds", "network", "sequence", "layers", "model", "nothing much faster"],
)
def test_nothing_is_foreseen_of_what_is_not_known(labelled: list[LabelledNode], spec: dict[str, Any]) -> None:
    assert foreseen(begun(labelled, **spec)) == []


def test_a_change_that_may_not_fit_is_not_foreseen_to_help() -> None:
    assert foreseen(begun(model={**KNOWN, "attention": None})) != []
    tight = {**SLOW, "train_micro_batch_size_per_gpu": 16}
    found = foreseen(begun(dsConfig=tight, model={**KNOWN, "sequenceLength": 8192, "attention": None}))
    assert found == []


def test_what_was_measured_takes_the_place_of_what_was_foreseen() -> None:
    simulation = begun(dsConfig={**SLOW, "zero_optimization": {"stage": 3}}).train()
    assert len(foreseen(simulation)) == 1
    steps = {"microBatch": 1, "stage": 3, "stepSeconds": 0.9, "device": "NVIDIA H100 80GB HBM3"}
    says(simulation, {**MEASURED, **steps, "deviceMemory": 84_942_979_072, "peakMemory": 12 << 30})
    simulation.wait(60)
    simulation.settle()
    assert plan(simulation).measured_step_seconds == 0.9
    assert foreseen(simulation) == []


def connected(simulation: Simulation, bandwidth: int | None, measured: Any = None) -> None:
    transport = Transport(state=TransportState.SOCKET, bus_bandwidth=bandwidth)
    simulation.agent = AgentReport(
        1, simulation.now, deepspeed_version="0.19.8", transport=transport, measured=read_as(Measured, measured)
    )
    simulation.wait(60)
    simulation.settle()


PREFLIGHT = {"profile": "TCP", "preflight": "Bandwidth"}


def test_the_preflights_bandwidth_counts_where_the_ranks_measured_none() -> None:
    simulation = running(network=PREFLIGHT)
    connected(simulation, 9_800_000_000, {**MEASURED, "allReduce": None})
    found = plan(simulation)
    assert found.network_percent == pytest.approx(67, abs=5)
    assert found.bus_bandwidth == 9_800_000_000
    assert "by the preflight's" in (found.message or "")
    assert len(advised(simulation)) == 1


def test_what_the_ranks_measured_counts_before_the_preflights() -> None:
    simulation = running(network=PREFLIGHT)
    connected(simulation, 1_000_000, MEASURED)
    assert plan(simulation).bus_bandwidth == pytest.approx(9.8e9, rel=0.02)


def test_of_another_launchers_job_the_plan_is_by_the_data_sheet_and_the_preflight() -> None:
    """Nothing of ours is in its ranks, so that neither steps nor an all-reduce are measured."""
    script = {"script": "train.py", "launcher": "DeepSpeed"}
    spec = {"nodes": 2, "slotsPerNode": 1, "dsConfig": CONFIG, "training": script, "network": PREFLIGHT}
    simulation = begun([LabelledNode("node", {"nvidia.com/gpu.product": "NVIDIA-H200"})], **spec)
    assert foreseen(simulation) == []
    simulation.train()
    assert simulation.job.status.plan is None
    connected(simulation, 9_800_000_000)
    found = plan(simulation)
    assert (found.measured_step_seconds, found.bus_bandwidth) == (None, 9_800_000_000)
    assert found.predicted_step_seconds == pytest.approx(MEASURED["stepSeconds"], rel=0.25)
    assert found.network_percent == pytest.approx(67, abs=10)
    assert "the data sheet of H200-141G and the preflight's bus bandwidth" in (found.message or "")
    (finding,) = foreseen(simulation)
    assert finding.fix.startswith("Write zero_optimization.stage")
    writes = len(simulation.writes)
    connected(simulation, 9_800_000_000)
    assert len(simulation.writes) == writes


@pytest.mark.parametrize("bandwidth", [None, 0])
def test_without_a_bandwidth_another_launchers_job_has_no_plan(bandwidth: int | None) -> None:
    script = {"script": "train.py", "launcher": "DeepSpeed"}
    simulation = begun(training=script, network=PREFLIGHT).train()
    connected(simulation, bandwidth)
    assert simulation.job.status.plan is None
