"""A job under a platform team's defaults, which change while it lives."""

from dataclasses import dataclass, replace
from typing import Any

from deepspeed_operator.api.fleet import Fleet
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.job.installation import Installation
from deepspeed_operator.reconcile.actions import CountRuns, Question
from deepspeed_operator.reconcile.observe.observed import RunCount
from tests.unit.reconcile.simulation import INSTALLATION, Simulation, job
from tests.unit.reconcile.suspension import suspend_and_resume

GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}


def of(fleet: Fleet) -> Installation:
    return replace(INSTALLATION, fleet=fleet)


def fleet(**defaults: Any) -> Fleet:
    return Fleet.model_validate({"namespaces": {"ml": {"defaults": defaults}}})


BEFORE = fleet(image="worker:2", nodeSelector={"pool": "old"}, tolerations=[GPU], failurePolicy={"maxRestarts": 7})
AFTER = fleet(image="worker:3", nodeSelector={"pool": "new"}, sharedMemory="1Gi", failurePolicy={"maxRestarts": 1})


def looks(simulation: Simulation) -> list[tuple[str, str]]:
    """Return image and pool of each pod of the current attempt."""
    pods = [each["spec"] for each in simulation.created if each["metadata"]["name"] in simulation.pods]
    return [(pod["containers"][0]["image"], pod["nodeSelector"]["pool"]) for pod in pods]


def test_defaults_reach_the_pods_and_status_names_them() -> None:
    spec = job(template={"spec": {"tolerations": [{"key": "mine"}]}})
    simulation = Simulation(spec, installation=of(BEFORE)).train()
    assert simulation.job.spec == spec.spec
    assert looks(simulation) == [("worker:2", "old")] * 2
    assert simulation.created[0]["spec"]["tolerations"][:2] == [{"key": "mine"}, GPU]
    run = simulation.run
    assert run.failure_policy is not None
    assert run.failure_policy.max_restarts == 7
    assert run.defaults is not None
    assert run.defaults.paths == [
        "spec.image",
        "spec.template.spec.nodeSelector",
        "spec.template.spec.tolerations",
        "spec.failurePolicy.maxRestarts",
    ]


def test_a_job_of_another_namespace_has_none() -> None:
    others = Fleet(namespaces={"other": BEFORE.namespaces["ml"]})
    simulation = Simulation(job(), installation=of(others)).train()
    assert simulation.run.defaults is None
    assert simulation.created[0]["spec"]["containers"][0]["image"] == "worker:1"


def test_a_change_does_not_disturb_a_running_job() -> None:
    simulation = Simulation(job(), installation=of(BEFORE)).train()
    writes, findings = len(simulation.writes), simulation.job.status.findings
    for now in (AFTER, Fleet()):
        simulation.installation = of(now)
        simulation.wait(60)
        simulation.settle()
    assert len(simulation.writes) == writes
    assert simulation.job.status.findings == findings


def test_a_run_keeps_its_defaults_when_it_is_suspended_and_resumed() -> None:
    simulation = Simulation(job(), installation=of(BEFORE)).train()
    before = simulation.run.defaults
    simulation.installation = of(AFTER)
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDED
    simulation.edit(suspend=False)
    simulation.train()
    assert simulation.attempt.number == 2
    assert looks(simulation) == [("worker:2", "old")] * 2
    assert simulation.run.defaults == before


def test_a_run_keeps_its_defaults_in_a_new_attempt_after_a_failure() -> None:
    simulation = Simulation(job(failurePolicy={}), installation=of(BEFORE)).train()
    simulation.installation = of(AFTER)
    simulation.change(0, deleted_at=simulation.now)
    simulation.remove("pretrain-1-0")
    simulation.settle()
    for _ in range(40):
        simulation.wait(10)
        simulation.settle()
        simulation.remove()
    assert simulation.attempt.number == 2
    assert looks(simulation) == [("worker:2", "old")] * 2


def test_the_next_run_takes_the_new_ones() -> None:
    simulation = Simulation(job(), installation=of(BEFORE)).train()
    simulation.installation = of(AFTER)
    simulation.edit(runId="second")
    simulation.settle()
    simulation.remove()
    simulation.train()
    assert simulation.run.id == "second"
    assert looks(simulation) == [("worker:3", "new")] * 2
    assert simulation.run.defaults is not None
    assert simulation.run.defaults.shared_memory == "1Gi"


def test_a_finished_job_stays_as_it_is() -> None:
    simulation = Simulation(job(), installation=of(BEFORE)).train()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    status, writes = simulation.job.status, len(simulation.writes)
    simulation.installation = of(AFTER)
    simulation.wait(60)
    simulation.settle()
    assert (simulation.job.status, len(simulation.writes)) == (status, writes)


def test_a_job_that_is_refused_is_judged_by_the_new_ones() -> None:
    """The operator that has new ones is a new process, which remembers no judgement."""
    simulation = Simulation(job(template={"spec": {"hostname": "a"}}), installation=of(BEFORE))
    simulation.settle()
    assert simulation.job.status.state is State.INVALID
    simulation.installation = of(AFTER)
    simulation.edit(template=None)
    simulation.train()
    assert looks(simulation) == [("worker:3", "new")] * 2


def test_a_queue_by_default_is_the_runs_queue() -> None:
    simulation = Simulation(job(), installation=of(fleet(queueName="team-a")))
    simulation.settle()
    assert simulation.job.status.queue is not None
    assert simulation.job.status.queue.name == "team-a"
    assert simulation.job.status.state is State.QUEUED
    (workload,) = simulation.workloads.values()
    assert workload["spec"]["queueName"] == "team-a"


def limited(**limits: Any) -> Fleet:
    return Fleet.model_validate({"namespaces": {"ml": {"limits": limits}}})


def refused_for_a_limit(simulation: Simulation) -> str:
    """Return the words by which the job is refused, of which nothing but its status is written."""
    simulation.settle()
    assert simulation.writes == ["status"]
    accepted = simulation.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.reason) == ("False", "LimitExceeded")
    return accepted.message


def test_a_job_beyond_a_limit_is_refused_and_nothing_is_made() -> None:
    simulation = Simulation(job(), installation=of(limited(maxNodes=1)))
    assert refused_for_a_limit(simulation).startswith(
        "1 error, nothing was created: spec.nodes: is 2, and the platform team allows 1 at most "
        "(fleet.namespaces.ml.limits.maxNodes of the operator's chart)."
    )
    simulation.edit(nodes=1, dsConfig=None)
    simulation.train()


def test_what_the_operator_adds_counts_too() -> None:
    own = limited(imagePrefixes=["registry.example.com/"])
    both = own.model_copy(update={"defaults": BEFORE.namespaces["ml"].defaults})
    simulation = Simulation(job(), installation=of(both))
    simulation.settle()
    assert "spec.image: is " in simulation.condition(ConditionType.ACCEPTED).message


def test_a_limit_that_comes_later_lets_the_run_go_on() -> None:
    simulation = Simulation(job(template={"spec": {"priorityClassName": "urgent"}})).train()
    writes = len(simulation.writes)
    simulation.installation = of(limited(maxNodes=1, priorityClasses=["batch"]))
    simulation.wait(60)
    simulation.settle()
    assert len(simulation.writes) == writes
    suspend_and_resume(simulation)
    simulation.train()
    assert simulation.attempt.number == 2


def test_a_template_that_is_changed_in_a_run_does_not_get_round_a_limit() -> None:
    simulation = Simulation(job(), installation=of(limited(priorityClasses=["batch"]))).train()
    simulation.edit(suspend=True, template={"spec": {"priorityClassName": "urgent"}})
    simulation.settle()
    simulation.remove()
    simulation.settle()
    simulation.edit(suspend=False)
    simulation.settle()
    assert not simulation.pods
    ready = simulation.condition(ConditionType.READY)
    assert 'spec.template.spec.priorityClassName: is "urgent", and the platform team allows batch' in ready.message
    simulation.edit(template=None)
    simulation.train()


def test_a_run_that_is_refused_leaves_the_one_before() -> None:
    simulation = Simulation(job(), installation=of(limited(maxNodes=2))).train()
    simulation.edit(runId="second", nodes=3, dsConfig=None)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    assert simulation.condition(ConditionType.ACCEPTED).reason == "LimitExceeded"


@dataclass
class Crowded(Simulation):
    """A job in a namespace where others have runs."""

    others: int = 0

    def _answer(self, question: Question[object]) -> None:
        if isinstance(question, CountRuns):
            self.facts = replace(self.facts, runs=RunCount(self.others, self.now))
        else:
            super()._answer(question)


def test_a_job_beyond_the_number_of_its_namespace_is_refused_until_another_has_ended() -> None:
    simulation = Crowded(job(), installation=of(limited(maxJobs=3)), others=3)
    assert refused_for_a_limit(simulation).startswith(
        "Namespace ml has as many jobs with a run that has not ended as the platform team allows, 3 at most "
        "(fleet.namespaces.ml.limits.maxJobs of the operator's chart); nothing was created."
    )
    simulation.wait(31)
    simulation.settle()
    assert simulation.writes == ["status"]
    simulation.others = 2
    simulation.wait(31)
    simulation.train()


def test_a_run_that_has_a_place_keeps_it_while_it_is_suspended_and_replaced() -> None:
    simulation = Crowded(job(), installation=of(limited(maxJobs=3)), others=2)
    simulation.train()
    simulation.others = 3
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.remove()
    simulation.settle()
    simulation.edit(suspend=False)
    simulation.train()
    simulation.edit(runId="second")
    simulation.settle()
    simulation.remove()
    simulation.train()
    assert simulation.run.id == "second"


def test_a_finished_job_needs_a_place_to_run_again() -> None:
    simulation = Crowded(job(), installation=of(limited(maxJobs=3)), others=2)
    simulation.train()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    simulation.others = 3
    simulation.wait(31)
    simulation.edit(runId="second")
    simulation.settle()
    assert simulation.condition(ConditionType.ACCEPTED).reason == "LimitExceeded"
    assert simulation.job.status.state is State.COMPLETE
