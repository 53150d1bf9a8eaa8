"""Every golden file of gangs holds a job and, below it, its PodGroup and what makes a pod a member."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.gangs import GANG_SCHEDULERS, GangScheduling
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.job.gang_scheduler import SCHEDULER_NAMES, chosen_gang
from deepspeed_operator.render.attempt import Attempt
from tests.unit.reconcile.simulation import INSTALLATION, Simulation, job
from tests.unit.render.test_golden import GOLDEN, hold

NOBODY = frozenset[GangScheduling]()
ALL = frozenset(GANG_SCHEDULERS)


def under(scheduler: str, **spec: Any) -> DeepSpeedJob:
    return job(template={"spec": {"schedulerName": scheduler}}, **spec)


def first_pod(simulation: Simulation) -> dict[str, Any]:
    return Attempt(simulation.job, 1, simulation.run.world, None, INSTALLATION).pod(0)


def groups(simulation: Simulation) -> list[tuple[str, int]]:
    """Return the names of the PodGroups, and how many pods each waits for."""
    found = [(name, each) for (kind, name), each in simulation.objects.items() if kind == "PodGroup"]
    return [(name, each["spec"]["minMember"]) for name, each in sorted(found)]


def group_and_member(written: str) -> list[dict[str, Any]]:
    simulation = Simulation(DeepSpeedJob.model_validate(yaml.safe_load(written)))
    simulation.settle()
    (group,) = (each for (kind, _), each in simulation.objects.items() if kind == "PodGroup")
    pod = first_pod(simulation)
    member = {
        "metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")},
        "spec": {"schedulerName": pod["spec"]["schedulerName"]},
    }
    return [group, member]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("gangs/*.yaml")), ids=lambda path: path.stem)
def test_pod_groups_and_their_pods_are_the_golden_ones(path: Path, request: pytest.FixtureRequest) -> None:
    hold(path, request, group_and_member)


@pytest.mark.parametrize("gang", GANG_SCHEDULERS)
def test_auto_takes_the_scheduler_that_the_template_names_where_it_is_allowed(gang: GangScheduling) -> None:
    named = under(SCHEDULER_NAMES[gang]).spec
    assert chosen_gang(named, ALL) is gang
    assert chosen_gang(named, NOBODY) is None
    assert chosen_gang(under("default-scheduler").spec, ALL) is None
    assert chosen_gang(job().spec, ALL) is None
    assert chosen_gang(under(SCHEDULER_NAMES[gang], scheduling={"gang": "None"}).spec, ALL) is None


@pytest.mark.parametrize("kind", ["annotations", "labels"])
def test_auto_leaves_a_pod_group_of_the_users_own_alone(kind: str) -> None:
    member = "scheduling.k8s.io/group-name" if kind == "annotations" else "scheduling.x-k8s.io/pod-group"
    template = {"metadata": {kind: {member: "mine"}}, "spec": {"schedulerName": "volcano"}}
    assert chosen_gang(job(template=template).spec, ALL) is None


def test_what_the_template_names_is_kept() -> None:
    simulation = Simulation(under("a-scheduler-of-ours", scheduling={"gang": "Coscheduling"}))
    simulation.settle()
    assert first_pod(simulation)["spec"]["schedulerName"] == "a-scheduler-of-ours"


def test_a_pod_group_is_there_before_the_pods_and_each_attempt_has_its_own() -> None:
    simulation = Simulation(job(scheduling={"gang": "Volcano"}))
    simulation.settle()
    first = next(at for at, write in enumerate(simulation.writes) if write.startswith("pod "))
    assert "PodGroup/pretrain-1-job-1" in simulation.writes[:first]
    assert groups(simulation) == [("pretrain-1-job-1", 2)]
    assert simulation.run.gang is GangScheduling.VOLCANO


def test_the_gang_of_a_run_stays_while_spec_says_another() -> None:
    simulation = Simulation(job(scheduling={"gang": "Volcano"}))
    simulation.train()
    simulation.edit(scheduling={"gang": "None"})
    simulation.settle()
    assert simulation.run.gang is GangScheduling.VOLCANO
