"""What must be known first is asked for in as few passes as can be, and keeps nothing else from being done."""

import pytest

from deepspeed_operator.reconcile.actions import Outcome, ReadAgent, ReadConfigMap
from deepspeed_operator.reconcile.observe.observed import Facts
from deepspeed_operator.reconcile.observe.unanswered import Unanswered, meanwhile, together_with
from tests.unit.reconcile.simulation import Simulation, job

SOURCE = {"configMap": "config", "key": "ds_config.json"}
FILES = {"script": "train.py", "files": {"configMap": "code"}}


def test_the_config_maps_that_a_run_names_are_read_in_one_pass() -> None:
    simulation = Simulation(job(dsConfig=None, dsConfigFrom=SOURCE, training=FILES))
    assert simulation.step().questions == (ReadConfigMap("code"), ReadConfigMap("config", "ds_config.json"))


def test_both_runs_of_a_job_are_asked_about_in_one_pass() -> None:
    simulation = Simulation(job()).train()
    simulation.edit(runId="b", dsConfig=None, dsConfigFrom=SOURCE)
    simulation.wait(600)
    asked = simulation.step().questions
    assert [type(each) for each in asked] == [ReadAgent, ReadConfigMap]


def test_no_question_is_asked_twice_in_a_pass() -> None:
    def ask() -> None:
        Facts().want(ReadConfigMap("a"), ReadConfigMap("b"))

    with pytest.raises(Unanswered) as raised, together_with(ask):
        Facts().get(ReadConfigMap("a"))
    assert raised.value.questions == (ReadConfigMap("a"), ReadConfigMap("b"))


def test_what_was_decided_before_a_question_is_done_all_the_same() -> None:
    status = job().status
    decided = Outcome(status.model_copy(update={"warnings": 1}))
    with pytest.raises(Unanswered) as raised, meanwhile(decided):
        Facts().get(ReadConfigMap("a"))
    outcome = raised.value.outcome(status)
    assert (outcome.status, outcome.questions) == (decided.status, (ReadConfigMap("a"),))
