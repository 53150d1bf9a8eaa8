"""What a missing Workload means: it was deleted, or Kueue is being taken away."""

import pytest

from deepspeed_operator.controller.workloads import may_be_made

# As the API server tells them of a kind that it is about to delete.
LAST = ["delete", "deletecollection", "get", "list", "watch"]


@pytest.mark.parametrize(("verbs", "taken"), [([*LAST, "create", "patch", "update"], True), (LAST, False)])
def test_a_kind_that_is_being_deleted_takes_no_objects(verbs: list[str], *, taken: bool) -> None:
    of_status = {"name": "workloads/status", "verbs": ["get", "patch", "update"]}
    assert may_be_made({"resources": [of_status, {"name": "workloads", "verbs": verbs}]}) is taken


def test_a_group_without_the_kind_takes_none() -> None:
    assert not may_be_made({"resources": [{"name": "clusterqueues", "verbs": [*LAST, "create"]}]})
