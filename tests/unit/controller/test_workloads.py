"""What a missing Workload means: it was deleted, or Kueue is being taken away."""

import pytest

from deepspeed_operator.controller.informer import readable
from deepspeed_operator.controller.workloads import may_be_made

# As the API server tells them of a kind that it is about to delete.
LAST = ["delete", "deletecollection", "get", "list", "watch"]


@pytest.mark.parametrize(("verbs", "taken"), [([*LAST, "create", "patch", "update"], True), (LAST, False)])
def test_a_kind_that_is_being_deleted_takes_no_objects(verbs: list[str], *, taken: bool) -> None:
    of_status = {"name": "workloads/status", "verbs": ["get", "patch", "update"]}
    assert may_be_made({"resources": [of_status, {"name": "workloads", "verbs": verbs}]}) is taken


def test_a_group_without_the_kind_takes_none() -> None:
    assert not may_be_made({"resources": [{"name": "clusterqueues", "verbs": [*LAST, "create"]}]})


def test_a_workload_that_cannot_be_read_keeps_no_other_jobs_news_back() -> None:
    metadata = {"name": "w", "namespace": "ml", "uid": "1", "resourceVersion": "7"}
    update = {"name": "ranks", "annotations": {"of-a-check": "x" * 5000}}
    checks = {"admissionChecks": [{"name": "check", "podSetUpdates": [update]}]}
    workload = {"metadata": metadata, "spec": {"podSets": [{"name": "ranks", "count": 2}]}}
    assert readable({**workload, "status": checks}) is None
    assert readable(workload) is not None
