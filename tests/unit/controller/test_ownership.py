"""Whose an object is that has a child's name."""

from typing import Any

import pytest

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import API_VERSION
from deepspeed_operator.controller.ownership import Owner, describe_owner, owner_of

JOB = DeepSpeedJob.model_validate(
    {"metadata": {"name": "pretrain", "uid": "now"}, "spec": {"training": {"script": "train.py"}}}
)


def live(uid: str | None, *, kind: str = "DeepSpeedJob", name: str = "pretrain", **metadata: Any) -> dict[str, Any]:
    reference = {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid}
    return {"metadata": {**metadata, **({"ownerReferences": [reference]} if uid else {})}}


@pytest.mark.parametrize(
    ("found", "whose"),
    [
        (live("now"), Owner.OURS),
        (live("now", deletionTimestamp="2026-11-28T00:00:00Z"), Owner.LEAVING),
        (live("before"), Owner.LEAVING),
        (live("before", name="another"), Owner.FOREIGN),
        (live("x", kind="Deployment"), Owner.FOREIGN),
        (live(None), Owner.FOREIGN),
        (live(None, deletionTimestamp="2026-11-28T00:00:00Z"), Owner.LEAVING),
    ],
)
def test_owner(found: dict[str, Any], whose: Owner) -> None:
    assert owner_of(found, JOB) is whose


def test_a_foreign_object_is_described_by_its_owner() -> None:
    assert describe_owner(live("x", kind="Deployment", name="web")) == "owned by Deployment web"
    assert describe_owner(live(None)) == "not owned by a DeepSpeedJob"
