"""An elastic run for whose pods there is no room goes on with fewer nodes, and with all again at its next attempt."""

import json
from typing import Any

import pytest

from deepspeed_operator.api.attempt_status import AttemptOutcome, Phase
from deepspeed_operator.api.status import ConditionType, State
from tests.unit.reconcile.admission.test_memory_fit import CONFIG as FIT
from tests.unit.reconcile.admission.test_memory_fit import MODEL
from tests.unit.reconcile.simulation import Simulation, agent_says, job
from tests.unit.reconcile.suspension import suspend_and_resume
from tests.unit.reconcile.test_replacements import delete, replacements

NO_ROOM = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
CONFIG = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}


def elastic(nodes: int = 4, fewest: int = 1, config: Any = CONFIG, **spec: Any) -> Simulation:
    given = {"failurePolicy": {}, "elastic": {"minNodes": fewest}, **spec}
    return Simulation(job(nodes=nodes, dsConfig=config, **given))


def no_room(simulation: Simulation, *indices: int) -> None:
    """The scheduler places all pods of the attempt but these."""
    simulation.run_all()
    for index in indices:
        lacking = {"unschedulable": NO_ROOM, "unschedulable_since": simulation.now}
        simulation.change(index, phase="Pending", ready=False, node=None, address=None, **lacking)


def configuration(simulation: Simulation) -> dict[str, Any]:
    name = next(name for name in simulation.config_maps if name.startswith(f"pretrain-{simulation.attempt.number}-"))
    return json.loads(simulation.config_maps[name]["ds_config.json"])


def world(simulation: Simulation) -> tuple[int, int, int | None]:
    run = simulation.run
    assert run.batch is not None
    return run.world.nodes, run.world.size, run.batch.accumulation


def shrunk(simulation: Simulation, *lacking: int) -> Simulation:
    """An attempt begins for which there is not room enough, and gives way to one with fewer nodes."""
    simulation.settle()
    no_room(simulation, *lacking)
    simulation.settle()
    simulation.wait(301)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    return simulation


def test_a_run_begins_with_all_nodes_and_its_status_says_which_others_it_may_have() -> None:
    simulation = elastic().train()
    run = simulation.run
    assert run.elastic is not None
    assert (run.elastic.nodes, [each.nodes for each in run.elastic.sizes]) == (4, [1, 2, 3, 4])
    assert (world(simulation), configuration(simulation)) == ((4, 4, 3), CONFIG)
    assert simulation.attempt.resized is None


def test_without_room_for_all_the_next_attempt_has_as_many_as_there_is_room_for() -> None:
    simulation = elastic()
    simulation.settle()
    no_room(simulation, 2, 3)
    simulation.settle()
    simulation.wait(299)
    simulation.settle()
    assert simulation.attempt.number == 1, "room may still come"
    simulation.wait(2)
    simulation.settle()
    assert (simulation.attempt.number, world(simulation)) == (2, (2, 2, 6))
    (ended,) = simulation.job.status.attempts
    assert (ended.outcome, ended.nodes, ended.reason) == (AttemptOutcome.RESIZED, 4, "Unschedulable")
    resized = simulation.attempt.resized or ""
    assert resized.startswith("It has 2 nodes: pod pretrain-1-2 could not be scheduled within 300 s")
    assert resized.endswith("Its configuration has gradient_accumulation_steps 6, so that the batch stays.")
    assert [event.reason for event in simulation.events].count("Resized") == 1
    assert not [pod for pod in simulation.pods.values() if pod.attempt == 2], "the old pods may still write"
    simulation.remove()
    simulation.settle()
    assert configuration(simulation) == {**CONFIG, "gradient_accumulation_steps": 6}
    assert sorted(pod.name for pod in simulation.pods.values()) == ["pretrain-2-0", "pretrain-2-1"]
    simulation.run_all()
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert (simulation.job.status.restarts or 0, simulation.run.recent_restarts) == (0, None), "nothing has failed"


def test_the_next_attempt_has_all_nodes_again() -> None:
    simulation = shrunk(elastic(failurePolicy={"restartInPlace": False}), 3)
    simulation.run_all()
    simulation.settle()
    assert world(simulation) == (3, 3, 4)
    simulation.end(0, 1, agent_says(0, 0, None, "NodeLost"), reason="NodeLost")
    simulation.wait(60)
    simulation.settle()
    simulation.wait(60)
    simulation.remove()
    simulation.settle()
    assert (simulation.attempt.number, world(simulation)) == (3, (4, 4, 3))
    assert (simulation.attempt.resized, configuration(simulation)) == (None, CONFIG)


def test_after_the_replacement_deadline_the_next_attempt_has_the_nodes_that_answer() -> None:
    simulation = elastic().train()
    delete(simulation)
    simulation.settle()
    assert [each.index for each in replacements(simulation)] == [1]
    lacking = {"unschedulable": NO_ROOM, "unschedulable_since": simulation.now}
    simulation.change(1, **lacking)
    simulation.wait(301)
    simulation.settle()
    assert (simulation.attempt.phase, simulation.attempt.next_nodes) == (Phase.BACKING_OFF, 3)
    words = simulation.condition(ConditionType.RUNNING).message
    assert words.startswith("Attempt 2 begins with 3 nodes, for which there is room, in ")
    simulation.wait(30)
    simulation.settle()
    assert (simulation.attempt.number, world(simulation)) == (2, (3, 3, 4))
    assert "was deleted while its ranks ran" in (simulation.attempt.resized or "")


@pytest.mark.parametrize("lacking", [(1, 2, 3), (0, 1, 2, 3)])
def test_where_no_size_has_room_the_attempt_waits_as_ever(lacking: tuple[int, ...]) -> None:
    simulation = elastic(fewest=2)
    simulation.settle()
    no_room(simulation, *lacking)
    simulation.settle()
    simulation.wait(301)
    simulation.settle()
    assert (simulation.attempt.number, simulation.attempt.phase) == (1, Phase.STARTING)


def test_the_largest_size_that_the_batch_allows_is_taken() -> None:
    simulation = shrunk(elastic(config={"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}), 3)
    assert world(simulation) == (2, 2, 2)
    assert configuration(simulation) == {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}, "it is derived"


def test_a_pod_that_is_slow_on_its_node_costs_no_node() -> None:
    simulation = elastic()
    simulation.settle()
    simulation.run_all()
    simulation.change(3, phase="Pending", ready=False, waiting_reason="ErrImagePull", waiting_message="slow")
    simulation.settle()
    simulation.wait(301)
    simulation.settle()
    assert simulation.attempt.number == 1


def test_an_operator_that_dies_between_two_attempts_finds_what_was_decided() -> None:
    simulation = elastic().train()
    delete(simulation)
    simulation.settle()
    simulation.change(1, unschedulable=NO_ROOM, unschedulable_since=simulation.now)
    simulation.wait(301)
    while simulation.attempt.phase is not Phase.BACKING_OFF:
        simulation.step()
    successor = Simulation(simulation.job, now=simulation.now, config_maps=simulation.config_maps)
    successor.wait(30)
    successor.settle()
    assert (successor.attempt.number, world(successor)) == (2, (3, 3, 4))


def test_what_a_later_attempt_reads_is_the_runs_own_though_the_spec_has_changed_since() -> None:
    simulation = shrunk(elastic(), 3)
    simulation.edit(dsConfig={"train_micro_batch_size_per_gpu": 7})
    simulation.run_all()
    simulation.settle()
    suspend_and_resume(simulation)
    simulation.settle()
    assert (simulation.attempt.number, configuration(simulation)) == (3, CONFIG)


def test_sizes_that_certainly_do_not_fit_are_none_under_require_fit() -> None:
    config = {**FIT, "zero_optimization": {"stage": 3}, "checkpoint": {"load_universal": True}}
    given: dict[str, Any] = {"model": {**MODEL, "activationCheckpointing": True}, "gpuMemory": "80Gi"}
    always, required = (elastic(nodes=8, config=config, admission=each, **given) for each in ("Always", "RequireFit"))
    always.settle()
    required.settle()
    assert always.run.elastic is not None
    assert required.run.elastic is not None
    assert [each.nodes for each in always.run.elastic.sizes] == [1, 2, 4, 8]
    assert [each.nodes for each in required.run.elastic.sizes] == [2, 4, 8], "108 GB of states do not fit into one GPU"
    (said,) = [each for each in required.job.status.findings if each.code == "elastic-sizes"]
    assert "2 are the fewest that do" in said.message


def launch(simulation: Simulation) -> dict[str, Any]:
    name = next(name for name in simulation.config_maps if name.startswith(f"pretrain-{simulation.attempt.number}-"))
    return json.loads(simulation.config_maps[name]["launch.json"])


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_checkpoints_are_made_universal_from_the_first_change_of_the_number_on(stage: int) -> None:
    config = {**CONFIG, "zero_optimization": {"stage": stage}, "checkpoint": {"tag_validation": "Fail"}}
    simulation = elastic(config=config, checkpoint={"path": "/data/run", "conversionDeadlineSeconds": 600}).train()
    assert (configuration(simulation), launch(simulation)["checkpoint"]["conversionSeconds"]) == (config, 0)
    universal = {**config, "checkpoint": {"tag_validation": "Fail", "load_universal": True}}
    suspended_and_resumed(simulation)
    assert configuration(simulation) == config, "the ranks are the same"
    shrunk(simulation, 3)
    assert configuration(simulation) == {**universal, "gradient_accumulation_steps": 4}
    assert launch(simulation)["checkpoint"]["conversionSeconds"] == 600
    loads = "checkpoint.load_universal: true, since checkpoints may be of other ranks."
    assert (simulation.attempt.resized or "").endswith(f"so that the batch stays; and {loads}")
    suspended_and_resumed(simulation)
    assert (world(simulation), configuration(simulation)) == ((4, 4, 3), universal)
    assert simulation.attempt.resized == f"It has all nodes again. Its configuration has {loads}"


SAVES: dict[str, Any] = {"config": {**CONFIG, "zero_optimization": {"stage": 2}}, "checkpoint": {"path": "/data/run"}}


@pytest.mark.parametrize("nodes", [4, 3], ids=["it had fewer for a while", "it had another number"])
def test_a_run_after_one_that_had_other_ranks_loads_what_those_have_saved(nodes: int) -> None:
    simulation = elastic(**SAVES)
    simulation = shrunk(simulation, 3) if nodes == 4 else simulation.train()
    simulation.edit(runId="2", nodes=nodes)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert (simulation.run.id, simulation.run.world.nodes) == ("2", nodes)
    assert configuration(simulation) == {**SAVES["config"], "checkpoint": {"load_universal": True}}


def test_a_run_after_one_of_as_many_ranks_loads_it_as_it_is() -> None:
    simulation = elastic(**SAVES).train()
    simulation.edit(runId="2")
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert (simulation.run.id, configuration(simulation)) == ("2", SAVES["config"])


def suspended_and_resumed(simulation: Simulation) -> None:
    suspend_and_resume(simulation)
    simulation.settle()


def test_the_time_for_it_is_added_to_that_for_the_start() -> None:
    config = {**CONFIG, "zero_optimization": {"stage": 1}}
    limits: dict[str, Any] = {
        "checkpoint": {"path": "/data", "conversionDeadlineSeconds": 600},
        "lifecycle": {"startupDeadlineSeconds": 400},
    }
    simulation = shrunk(elastic(config=config, **limits), 3)
    for index in range(3):
        simulation.change(index, phase="Running", node=f"node{index}", address=f"10.0.0.{index}")
    simulation.settle()
    simulation.wait(990)
    simulation.settle()
    assert (simulation.attempt.number, simulation.attempt.phase) == (2, Phase.STARTING)
    simulation.wait(50)
    simulation.settle()
    assert simulation.job.status.attempts[-1].reason == "StartupDeadlineExceeded"


def test_layers_that_are_divided_by_one_are_not_divided() -> None:
    whole = {"tensor_parallel": {"autotp_size": 1}}
    config = {**SAVES["config"], **whole}
    run = elastic(config=config, checkpoint=SAVES["checkpoint"]).train().run
    assert run.elastic is not None
    assert run.elastic.converts


def test_a_checkpoint_that_any_ranks_load_stays_as_it_is() -> None:
    of_stage_0 = elastic().train()
    own = {**CONFIG, "zero_optimization": {"stage": 2}, "checkpoint": {"load_universal": True}}
    for simulation in (of_stage_0, elastic(config=own).train()):
        assert simulation.run.elastic is not None
        assert simulation.run.elastic.converts is None


@pytest.mark.parametrize(
    ("config", "spec", "why"),
    [
        ({}, {}, "it is not known where the run saves"),
        ({}, {"checkpoint": {"path": "s3://bucket/run"}}, "s3://bucket/run is on no volume"),
        ({"checkpoint": {"use_node_local_storage": True}}, {}, "each node has a part of it"),
        ({"optimizer": {"type": "Lion"}}, {}, "not those of Lion"),
        ({}, {"parallelism": {"tensor": 2}}, "divide layers or experts"),
        ({"zero_optimization": {"stage": 0}, "bf16": {"enabled": True}}, {}, "at stage 0"),
    ],
)
def test_what_cannot_be_made_universal_keeps_a_run_at_its_size(
    config: dict[str, Any], spec: dict[str, Any], why: str
) -> None:
    simulation = elastic(config={**CONFIG, "zero_optimization": {"stage": 2}, **config}, **spec).train()
    assert simulation.run.elastic is None
    (said,) = [each for each in simulation.job.status.findings if each.code == "elastic-checkpoint"]
    assert why in said.message
