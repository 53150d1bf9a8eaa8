"""ConfigMaps of earlier attempts go, also those of attempts that this operator has not seen."""

import json

from deepspeed_operator.reconcile.actions import CreatePods
from deepspeed_operator.reconcile.observe.observed import Facts
from tests.unit.reconcile.simulation import CONFIG, Simulation, job
from tests.unit.reconcile.suspension import suspend_and_resume
from tests.unit.reconcile.test_life_of_a_job import running


def kept(simulation: Simulation) -> list[str]:
    return sorted(name for name in simulation.config_maps if name.startswith("pretrain-"))


def test_an_operator_that_ends_before_it_has_deleted_them_leaves_them_to_the_next() -> None:
    simulation = running()
    suspend_and_resume(simulation)
    while not any(isinstance(each, CreatePods) for each in simulation.outcome().actions):
        simulation.step()
    simulation.step()
    simulation.config_maps |= {"pretrain-1-job-1": {}}  # created pods, and ended
    simulation.facts = Facts()
    simulation.train()
    assert kept(simulation) == ["pretrain-2-job-1"]


def test_those_of_attempts_before_the_last_go_too() -> None:
    simulation = running()
    for _ in range(3):
        simulation.edit(suspend=True)
        simulation.settle()
        simulation.edit(suspend=False)
        simulation.step()  # begun, and no pod was made
        simulation.facts = Facts()
    simulation.remove()
    simulation.train()
    attempt = simulation.job.status.attempt_number
    assert attempt == 4
    assert kept(simulation) == [f"pretrain-{attempt}-job-1"]
    assert simulation.job.status.oldest_config_map == attempt


def test_the_configuration_of_the_run_is_found_though_attempts_between_made_nothing() -> None:
    simulation = Simulation(job(dsConfig=None, dsConfigFrom={"configMap": "cfg", "key": "c"}))
    text = json.dumps(CONFIG)
    simulation.config_maps["cfg"] = {"c": text}
    simulation.train()
    simulation.config_maps["cfg"] = {"c": "{}"}
    simulation.wait(60)
    for _ in range(3):
        simulation.edit(suspend=True)
        simulation.settle()
        simulation.edit(suspend=False)
        simulation.step()
    simulation.remove()
    simulation.train()
    assert simulation.objects["ConfigMap", "pretrain-4-job-1"]["data"]["ds_config.json"] == text
