"""Before a job begins its pod is tried with the API server: once for jobs that differ by name alone."""

import json
from typing import Any

from tests.faults.jobs import Jobs
from tests.faults.proxy import Proxy
from tests.faults.replica import Replica


def test_a_sweep_is_tried_once_and_another_pod_by_itself(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    for number in range(4):
        jobs.apply(f"sweep-{number}", nodes=1, training={"script": "train.py", "args": [f"--seed={number}"]})
    jobs.apply("other", nodes=1, image="registry.local/none:2")
    replica.start()
    for name in ("other", *(f"sweep-{number}" for number in range(4))):
        replica.eventually(lambda name=name: jobs.running(name), 30)
    assert sorted(images_tried(proxy)) == ["registry.local/none:1", "registry.local/none:2"]


def test_each_refused_job_is_told_of_its_own_pod(replica: Replica, jobs: Jobs, proxy: Proxy) -> None:
    jobs.create("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    for name in ("first", "second"):
        jobs.apply(name, nodes=1)
    replica.start()
    for name in ("first", "second"):
        replica.eventually(lambda name=name: jobs.condition("Ready", name).get("reason") == "PodsRefused", 20)
        assert f'pods "{name}-1-0" is forbidden: exceeded quota: none' in jobs.condition("Ready", name)["message"]
    assert len(images_tried(proxy)) == 2


def test_a_misspelt_field_of_the_template_is_refused_in_the_servers_words(replica: Replica, jobs: Jobs) -> None:
    container: dict[str, Any] = {"name": "trainer", "resource": {"limits": {"nvidia.com/gpu": 1}}, "envs": []}
    jobs.apply("typo", nodes=1, template={"spec": {"nodeSelectors": {"a": "b"}, "containers": [container]}})
    replica.start()
    replica.eventually(lambda: jobs.condition("Accepted", "typo").get("status") == "False", 20)
    accepted = jobs.condition("Accepted", "typo")
    assert accepted["reason"] == "TemplateRejected"
    for words in (
        'unknown field "spec.nodeSelectors"',
        'unknown field "spec.containers[0].resource"',
        'unknown field "spec.containers[0].envs"',
        "spec.template.spec.nodeSelectors: Write nodeSelector",
        "spec.template.spec.containers[0].envs: Write env",
    ):
        assert words in accepted["message"]


def images_tried(proxy: Proxy) -> list[str]:
    tried = (each for each in proxy.requests if each.method == "POST" and "dryRun" in each.query)
    return [json.loads(each.body)["spec"]["containers"][0]["image"] for each in tried]
