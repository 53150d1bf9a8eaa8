"""A backup that is restored without status: what has ended does not run a second time."""

import json
from collections.abc import Callable

from deepspeed_operator.api.names import ANNOTATION_ENDED_RUN
from tests.e2e.installation import Operator, now
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import Json, Namespace


def test_a_finished_job_that_is_restored_without_its_status_does_not_run_again(
    make_namespace: Callable[..., Namespace], operator: Operator, plain: str
) -> None:
    namespace = make_namespace("restore")
    namespace.config_map("rank", script("rank.py"))
    manifest = ranks("saved", plain, nodes=1)
    namespace.apply(manifest)
    saved = namespace.wait("saved", lambda job: ANNOTATION_ENDED_RUN in job.body["metadata"]["annotations"], 60)
    assert saved.outcome == "Complete"
    annotations: Json = saved.body["metadata"]["annotations"]
    assert json.loads(annotations[ANNOTATION_ENDED_RUN])["time"] == saved.run["completionTime"]
    namespace.apply(manifest)
    assert namespace.job("saved").body["metadata"]["annotations"] == annotations, "kubectl apply keeps it"
    namespace.delete("saved")
    namespace.gone("saved")

    since, backup = now(), {key: saved.body[key] for key in ("apiVersion", "kind", "spec")}
    backup["metadata"] = {"name": "saved", "annotations": annotations}
    namespace.cluster.api.request("POST", namespace.path("deepspeedjobs"), backup)
    restored = namespace.wait("saved", lambda job: job.outcome, 30)
    assert restored.status["state"] == "Complete"
    assert restored.reason("Complete") == "Restored"
    assert "run" not in restored.status
    assert f"was Complete at {saved.run['completionTime']}" in restored.message("Complete")
    assert operator.created(since, namespace.name) == []
    assert namespace.pods("saved") == []

    namespace.edit("saved", runId="again")
    again = namespace.wait("saved", lambda job: job.run.get("completionTime"), 60)
    assert (again.run["id"], again.outcome) == ("again", "Complete")
