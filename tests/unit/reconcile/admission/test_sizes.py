"""What one job may cost: what is too large is refused, and of users' data nothing is kept beyond a look."""

import json
import time
from typing import Any

from deepspeed_operator.api.bounds import LARGEST
from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.controller.bodies import Bodies
from deepspeed_operator.controller.marker import Marker
from deepspeed_operator.reconcile.actions import Outcome
from tests.unit.reconcile.simulation import Simulation, job
from tests.unit.reconcile.suspension import suspend_and_resume
from tests.unit.reconcile.test_life_of_a_job import started

POD: dict[str, Any] = {"containers": [{"name": "trainer", "env": [{"name": "A"}] * 1001}], "volumes": [{}] * 201}
LARGE = {"spec": POD}
SOURCE = {"configMap": "cfg", "key": "c"}
CONFIG = '{"train_micro_batch_size_per_gpu": 1}'


def test_what_is_too_large_is_refused_all_at_once_and_the_job_heals() -> None:
    simulation = started(template=LARGE, dsConfig={"a": "x" * LARGEST})
    accepted = simulation.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.reason) == ("False", "InvalidSpec")
    for words in ("spec.template.spec.volumes: has 201", "containers[0].env: has 1,001", "spec.dsConfig: has 262,"):
        assert words in accepted.message
    simulation.edit(template=None, dsConfig=json.loads(CONFIG))
    simulation.settle()
    assert simulation.job.status.state is State.STARTING


def test_a_job_that_was_read_without_what_is_too_large_is_refused_in_the_same_words() -> None:
    whole = job(template=LARGE, dsConfig={"a": "x" * LARGEST})
    read, _ = Bodies(Marker(None)).job(whole.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert read.spec.template is None
    assert read.spec.ds_config is None
    said: list[str] = []
    for each in (whole, read):
        simulation = Simulation(each)
        simulation.settle()
        said.append(simulation.condition(ConditionType.ACCEPTED).message)
    assert said[0] == said[1]


def test_a_template_that_becomes_too_large_in_a_run_makes_no_more_pods_of_it() -> None:
    simulation = started()
    body = simulation.job.model_dump(mode="json", by_alias=True, exclude_none=True)
    body["spec"]["template"] = LARGE
    body["metadata"]["generation"] += 1
    simulation.job, _ = Bodies(Marker(None)).job(body)
    for name in list(simulation.pods):
        del simulation.pods[name]
    simulation.settle()
    running = simulation.condition(ConditionType.RUNNING)
    assert running.reason == "InvalidSpec"
    assert "spec.template.spec.volumes: has 201 items" in running.message


def test_a_configuration_in_a_config_map_is_bounded_like_one_in_the_job() -> None:
    simulation = Simulation(job(dsConfig=None, dsConfigFrom=SOURCE))
    simulation.config_maps["cfg"] = {"c": json.dumps({"a": "x" * LARGEST})}
    simulation.settle()
    accepted = simulation.condition(ConditionType.ACCEPTED)
    assert accepted.reason == "InvalidDeepSpeedConfig"
    assert "spec.dsConfigFrom: ConfigMap cfg, key c, has 262,153 bytes" in accepted.message


def test_of_config_maps_nothing_is_kept_that_users_wrote() -> None:
    files = {"script": "train.py", "files": {"configMap": "code"}}
    simulation = Simulation(job(dsConfig=None, dsConfigFrom=SOURCE, training=files))
    simulation.config_maps |= {"cfg": {"c": CONFIG, "other": "x" * 1000}, "code": {"train.py": "print()"}}
    for _ in range(3):
        simulation.settle()
        assert set(simulation.facts.config_maps) >= {"cfg", "code"}
        kept = repr(simulation.facts.config_maps)
        assert "train_micro_batch_size_per_gpu" not in kept
        assert "print()" not in kept
        assert len(kept) < 2000
        simulation.run_all()
        simulation.wait(60)
    assert simulation.job.status.state is State.RUNNING


def test_a_source_that_is_as_it_was_is_not_judged_again_though_its_text_was_forgotten() -> None:
    simulation = Simulation(job(dsConfig=None, dsConfigFrom=SOURCE, suspend=True))
    simulation.config_maps["cfg"] = {"c": CONFIG}
    simulation.settle()
    assert simulation.judgements == 1
    for _ in range(3):
        simulation.wait(60)
        simulation.settle()
    assert simulation.judgements == 1
    simulation.config_maps["cfg"] = {"c": CONFIG.replace("1", "2")}
    simulation.wait(60)
    simulation.settle()
    assert simulation.judgements == 2


class Timed(Simulation):
    """A simulation that knows how long its longest pass took, in seconds of CPU time."""

    longest = 0.0

    def outcome(self) -> Outcome:
        begun = time.thread_time()
        outcome = super().outcome()
        self.longest = max(self.longest, time.thread_time() - begun)
        return outcome


def test_the_largest_configuration_is_read_where_runs_are_judged_and_in_no_pass() -> None:
    simulation = Timed(job(dsConfig=None, dsConfigFrom=SOURCE))
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, "mine": [1] * 125_000}, separators=(",", ":"))
    simulation.config_maps["cfg"] = {"c": text}
    simulation.train()
    suspend_and_resume(simulation)
    simulation.settle()
    assert simulation.objects["ConfigMap", "pretrain-2-job-1"]["data"]["ds_config.json"] == text
    assert simulation.longest < 0.05, "parsing takes some 0.3 s"
