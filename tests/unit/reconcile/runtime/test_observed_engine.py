"""What the ranks' engine is, beside what was accepted; and a world that is another one, or that nobody saw."""

import json
from typing import Any

import pytest

from deepspeed_operator.api.status import Finding, State
from deepspeed_operator.reconcile.observe.observed import AgentReport
from deepspeed_operator.reconcile.runtime.observed_engine import world_of_agent
from tests.unit.reconcile.simulation import Simulation, agent_says, job

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 6,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
}
AS_ACCEPTED: dict[str, Any] = {
    "world": 2,
    "stage": 2,
    "precision": "bf16",
    "microBatch": 2,
    "accumulation": 6,
    "trainBatch": 24,
    "optimizer": "adamw",
    "ownOptimizer": False,
    "ownScheduler": False,
}
REFERENCE = {**AS_ACCEPTED, "stage": 0, "optimizer": None}
ALONE = "the ranks formed worlds of 1 (in pretrain-1-0, pretrain-1-1; each trained alone); planned is one of 2"
UNSEEN = "world not asserted: no process was seen to join a group of torch.distributed"


def told(*engines: dict[str, Any], note: str | None = None, config: Any = CONFIG, **spec: Any) -> Simulation:
    """A job that runs, and whose rank 0's agent has told this."""
    simulation = Simulation(job(dsConfig=config, **spec))
    simulation.agent = AgentReport(1, simulation.now)
    tell(simulation.train(), *engines, note=note)
    return simulation


def tell(simulation: Simulation, *engines: dict[str, Any], note: str | None = None) -> None:
    simulation.agent = AgentReport(1, simulation.now, world=world_of_agent({"note": note, "engines": list(engines)}))
    simulation.wait(30)
    simulation.settle()


def warnings(simulation: Simulation) -> list[Finding]:
    of_ranks = ("The engine differs", "is ignored: the script", "the ranks formed", "world not")
    return [each for each in simulation.job.status.findings if each.message.startswith(of_ranks)]


def events(simulation: Simulation, reason: str) -> list[str]:
    return [event.message for event in simulation.events if event.reason == reason]


def test_an_engine_as_accepted_is_in_status_without_a_warning() -> None:
    simulation = told(AS_ACCEPTED)
    engine = simulation.job.status.engine
    assert engine is not None
    assert (engine.stage, engine.precision, engine.train_batch, engine.optimizer) == (2, "bf16", 24, "adamw")
    assert (warnings(simulation), events(simulation, "EngineDiffers")) == ([], [])


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"stage": 0}, "ZeRO stage 0 (accepted: 2)"),
        ({"precision": "fp32"}, "precision fp32 (accepted: bf16)"),
        ({"world": 1, "trainBatch": 12}, "world 1 (accepted: 2), train batch 12 (accepted: 24)"),
        ({"microBatch": 4, "accumulation": 3}, "micro batch 4 (accepted: 2), accumulation 3 (accepted: 6)"),
        ({"optimizer": "lion"}, "optimizer lion (accepted: AdamW)"),
    ],
)
def test_what_differs_is_one_warning_and_one_event(differs: dict[str, Any], said: str) -> None:
    simulation = told({**AS_ACCEPTED, **differs})
    (finding,) = warnings(simulation)
    assert (finding.level.value, finding.path) == ("warning", "spec.dsConfig")
    assert finding.message == f"The engine differs from what was accepted: {said}."
    assert len(events(simulation, "EngineDiffers")) == 1
    writes = len(simulation.writes)
    for _ in range(3):
        simulation.wait(30)
        simulation.settle()
    assert (len(simulation.writes), len(events(simulation, "EngineDiffers"))) == (writes, 1)


def test_an_optimizer_and_a_scheduler_of_the_scripts_own_are_told_where_they_have_a_section() -> None:
    own = {**AS_ACCEPTED, "optimizer": "Muon", "ownOptimizer": True, "ownScheduler": True}
    simulation = told(own)
    (finding,) = warnings(simulation)
    assert finding.path == "spec.dsConfig.optimizer"
    assert finding.message == "is ignored: the script passes an optimizer of its own (Muon) to deepspeed.initialize."
    without = {key: value for key, value in CONFIG.items() if key != "optimizer"}
    assert warnings(told(own, config=without)) == []
    scheduled = {**CONFIG, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}
    assert [each.path.rpartition(".")[2] for each in warnings(told(own, config=scheduled))] == [
        "optimizer",
        "scheduler",
    ]


def test_what_a_framework_fills_in_may_be_anything() -> None:
    filled = {"enabled": "auto"}
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    config |= {"bf16": filled, "zero_optimization": {"stage": 2}}
    assert warnings(told({**AS_ACCEPTED, "precision": "fp16", "optimizer": "lamb"}, config=config)) == []
    assert warnings(told({**AS_ACCEPTED, "stage": 3}, config=None)) == []


def test_engines_that_train_nothing_and_a_second_one_that_is_as_accepted_are_no_warning() -> None:
    assert warnings(told(REFERENCE)) == []
    simulation = told(REFERENCE, {**AS_ACCEPTED, "stage": 1}, AS_ACCEPTED)
    assert warnings(simulation) == []
    engine = simulation.job.status.engine
    assert engine is not None
    assert engine.optimizer == "adamw"


def test_a_configuration_of_a_config_map_is_held_against_the_engine_too() -> None:
    simulation = Simulation(job(dsConfig=None, dsConfigFrom={"configMap": "source"}))
    simulation.config_maps["source"] = {"ds_config.json": json.dumps(CONFIG)}
    simulation.agent = AgentReport(1, simulation.now)
    tell(simulation.train(), {**AS_ACCEPTED, "stage": 3})
    assert [each.path for each in warnings(simulation)] == ["spec.dsConfigFrom"]


def ended(*messages: dict[str, Any]) -> Simulation:
    simulation = Simulation(job(dsConfig=CONFIG)).train()
    for index, message in enumerate(messages):
        failed = message["reason"] != "Completed"
        simulation.end(index, int(failed), agent_says(index=0, rank=None, exit_code=None, **message))
    simulation.settle()
    return simulation


def test_an_engine_of_a_run_too_short_to_be_asked_is_told_at_its_end() -> None:
    world: dict[str, Any] = {"note": UNSEEN, "engines": [{**AS_ACCEPTED, "stage": 1}]}
    simulation = ended({"reason": "Completed", "world": world}, {"reason": "Completed"})
    assert simulation.job.status.state is State.COMPLETE
    assert [each.path for each in warnings(simulation)] == ["spec.dsConfig", "spec.training.launcher"]
    assert len(events(simulation, "EngineDiffers")) == 1
    assert events(simulation, "WorldMismatch") == [], "what was not seen is no alarm"


def test_another_world_is_told_while_it_runs_once() -> None:
    simulation = told(AS_ACCEPTED, note=ALONE)
    assert [each.message for each in warnings(simulation)] == [ALONE]
    simulation.wait(30)
    simulation.settle()
    assert len(events(simulation, "WorldMismatch")) == 1
    tell(simulation, AS_ACCEPTED)
    assert warnings(simulation) == [], "the next program of its script formed the right one"


def test_a_world_of_a_preparation_is_forgotten_once_the_run_has_ended_well() -> None:
    simulation = told(note=ALONE)
    assert warnings(simulation)
    for index in (0, 1):
        simulation.end(index, 0, json.dumps({"protocol": 1, "reason": "Completed"}))
    simulation.settle()
    assert (simulation.job.status.state, warnings(simulation)) == (State.COMPLETE, [])


def test_a_run_of_another_world_is_failed_with_what_to_do() -> None:
    mismatch: dict[str, Any] = {"reason": "WorldMismatch", "signature": ALONE, "world": {"note": ALONE, "engines": []}}
    simulation = ended(mismatch, mismatch)
    status = simulation.job.status
    assert status.state is State.FAILED
    assert status.failure is not None
    assert status.failure.reason == "WorldMismatch"
    assert "NODE_RANK" in next(each.message for each in status.conditions if each.type == "Failed")
    assert len(events(simulation, "WorldMismatch")) == 1


def suspend_and_resume(simulation: Simulation) -> None:
    """Begin the next attempt, of which no agent has told anything yet."""
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    simulation.agent = None
    simulation.edit(suspend=False)
    simulation.settle()


STARTS = (
    "the ranks did not begin from one checkpoint: rank 0 (pod pretrain-1-0 on node a) loaded ck/global_step20 (step "
    "20); rank 1 (pod pretrain-1-1 on node b) did not load one"
)


def starts(simulation: Simulation) -> list[str]:
    return [each.message for each in simulation.job.status.findings if each.code == "resume-mismatch"]


def test_ranks_that_did_not_begin_from_one_checkpoint_are_told_once() -> None:
    simulation = told(AS_ACCEPTED)
    for words in (STARTS, STARTS.replace("rank 1", "ranks 1, 2")):
        world = world_of_agent({"note": None, "engines": [AS_ACCEPTED], "starts": words})
        simulation.agent = AgentReport(1, simulation.now, world=world)
        simulation.wait(30)
        simulation.settle()
        assert starts(simulation) == [words]
    (event,) = events(simulation, "ResumeMismatch")
    assert "$(RESUME_FROM)" in event
    suspend_and_resume(simulation)
    assert starts(simulation) == []


def test_a_run_whose_ranks_certainly_train_apart_is_failed_with_what_to_do() -> None:
    world: dict[str, Any] = {"note": None, "engines": [], "starts": STARTS}
    words: dict[str, Any] = {"reason": "ResumeMismatch", "signature": STARTS, "world": world}
    simulation = ended(words, words)
    status = simulation.job.status
    assert (status.state, starts(simulation)) == (State.FAILED, [STARTS])
    assert status.failure is not None
    assert status.failure.reason == "ResumeMismatch"
    assert "one directory" in next(each.message for each in status.conditions if each.type == "Failed")
    assert len(events(simulation, "ResumeMismatch")) == 1, "the failure's, which says the same as the finding"


def test_the_next_attempt_begins_without_what_the_last_one_told() -> None:
    simulation = told({**AS_ACCEPTED, "stage": 0}, note=ALONE)
    suspend_and_resume(simulation)
    assert (simulation.job.status.attempt_number, simulation.job.status.engine, warnings(simulation)) == (2, None, [])


@pytest.mark.parametrize("said", [None, [], "x", {"note": 1, "engines": [1, {"world": 0}, {"stage": 2}]}])
def test_what_status_could_not_hold_is_not_taken(said: Any) -> None:
    report = world_of_agent(said)
    assert (report.note, report.engines) == (None, ())
