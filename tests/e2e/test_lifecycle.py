"""Suspending, deleting and running again: never two pods of one index, nothing left behind."""

from collections.abc import Callable

import pytest

from tests.e2e.installation import Operator, now
from tests.e2e.jobs import NO_RESTARTS, job, ranks, script
from tests.e2e.kube import CORE, Job, Json, Namespace, eventually
from tests.e2e.pod_watch import PodWatch

FOREVER = "sleep=300"


@pytest.fixture
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    made = make_namespace("lifecycle")
    made.config_map("rank", script("rank.py"))
    return made


def nothing_left(namespace: Namespace) -> None:
    def look() -> bool:
        return namespace.children() == {"configmaps": ["rank"]}

    eventually(look, lambda: f"children remain: {namespace.children()}", 40)


def running_and_slow_to_end(namespace: Namespace, name: str) -> None:
    """Wait until the ranks of a first attempt would take their time after SIGTERM: before, it ends them at once."""
    namespace.running(name)
    for index in (0, 1):
        pod = f"{name}-1-{index}"
        eventually(lambda pod=pod: "slow on SIGTERM" in namespace.log(pod), lambda: namespace.report(name), 30)


def test_suspending_frees_the_accelerators_and_resuming_begins_a_new_attempt(namespace: Namespace, plain: str) -> None:
    seen = PodWatch(namespace)
    training = {"script": "rank.py", "files": {"configMap": "rank"}}
    all_of_a_kind = {"resources": {"limits": {"habana.ai/gaudi": 8}}}  # that no test beside this one takes
    namespace.apply(job("first", plain, training={**training, "args": [FOREVER]}, trainer=all_of_a_kind))
    namespace.running("first")
    namespace.apply(job("second", plain, training=training, trainer=all_of_a_kind))
    waiting = namespace.wait("second", lambda job: job.reason("Reconciling") == "Unschedulable", 30)
    assert waiting.says("Insufficient habana.ai/gaudi")

    namespace.edit("first", suspend=True)
    suspended = namespace.wait("first", lambda job: job.holds("Suspended"), 30)
    assert suspended.status["state"] == "Suspended"
    namespace.completed("second")
    assert namespace.pods("first") == []

    namespace.edit("first", suspend=False)
    resumed = namespace.wait("first", lambda job: job.holds("Running") and not job.holds("Suspended"), 60)
    assert resumed.attempt == 2
    assert {pod["metadata"]["name"] for pod in namespace.pods("first")} == {"first-2-0", "first-2-1"}
    begun = [f"{attempt}-{index}" for attempt in ("first-1", "second-1", "first-2") for index in (0, 1)]
    assert sorted(seen.created) == sorted(begun)
    assert not seen.overlaps
    namespace.edit("first", suspend=True)


def test_a_job_created_suspended_makes_nothing_until_it_is_resumed(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("later", plain, suspend=True))
    namespace.wait("later", lambda job: job.holds("Suspended"), 20)
    assert namespace.pods("later") == []
    namespace.edit("later", suspend=False)
    namespace.completed("later")


def test_deletion_leaves_nothing(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("short", plain, FOREVER))
    namespace.running("short")
    namespace.delete("short")
    nothing_left(namespace)


def test_nothing_is_created_while_a_foreground_deletion_waits_for_its_pods(
    namespace: Namespace, operator: Operator, plain: str
) -> None:
    namespace.apply(ranks("slow", plain, "slow-sigterm=4", FOREVER, pod={"terminationGracePeriodSeconds": 20}))
    namespace.running("slow")
    deleted = now()
    namespace.delete("slow", "--cascade=foreground")
    assert namespace.pods("slow") == [], "kubectl has waited for the job, and the job for its pods"
    nothing_left(namespace)
    assert operator.created(deleted, namespace.name) == []


def test_a_job_applied_again_waits_for_the_pods_of_its_predecessor(namespace: Namespace, plain: str) -> None:
    seen = PodWatch(namespace)
    slow = {"pod": {"terminationGracePeriodSeconds": 40}}
    namespace.apply(ranks("again", plain, "slow-sigterm=30", FOREVER, **slow))
    running_and_slow_to_end(namespace, "again")
    namespace.delete("again", "--cascade=background", "--wait=true")
    namespace.apply(ranks("again", plain, **slow))
    waiting = namespace.wait("again", lambda job: job.reason("Reconciling") == "WaitingForOldPods", 20)
    assert waiting.says("again-1-")
    namespace.completed("again")
    assert seen.created.count("again-1-0") == seen.created.count("again-1-1") == 2
    assert not seen.overlaps


def test_a_job_applied_again_runs_its_own_document_though_a_pod_holds_its_predecessors(
    namespace: Namespace, plain: str
) -> None:
    """A kubelet keeps an immutable ConfigMap by its name for as long as any pod of the node refers to that name."""
    namespace.apply(ranks("anew", plain, FOREVER))
    namespace.running("anew")
    held = next(each for each in namespace.children()["configmaps"] if each.startswith("anew-1"))
    volume = {"name": "held", "configMap": {"name": held}}
    mounts = [{"name": "held", "mountPath": "/held"}]
    container: Json = {"name": "holder", "image": plain, "command": ["sleep", "600"], "volumeMounts": mounts}
    for pod in namespace.pods("anew"):
        spec = {"nodeName": pod["spec"]["nodeName"], "containers": [container], "volumes": [volume]}
        name = f"holder-{pod['spec']['nodeName']}"
        grace = {"terminationGracePeriodSeconds": 0}
        namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**spec, **grace}})
        namespace.cluster.kubectl("wait", "-n", namespace.name, f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
    namespace.delete("anew", "--cascade=foreground", "--wait=true")

    reads = "import json; print(json.load(open('/etc/deepspeed-operator/launch.json'))['uid'])"
    namespace.apply(ranks("anew", plain, training={"script": None, "files": None, "command": ["python3", "-c", reads]}))
    uid = namespace.completed("anew").body["metadata"]["uid"]
    assert [uid in namespace.log(f"anew-1-{index}") for index in (0, 1)] == [True, True]


def test_a_changed_run_id_runs_a_finished_job_again(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("rerun", plain))
    first = namespace.finished("rerun")
    assert (first.outcome, first.attempt) == ("Complete", 1)
    namespace.edit("rerun", runId="second", training={"args": ["0:exit=4"]})
    second = namespace.wait("rerun", lambda job: job.run.get("id") == "second" and job.outcome, 60)
    assert (second.outcome, second.attempt) == ("Failed", 2)
    assert not second.holds("Complete")


def test_a_changed_run_id_replaces_a_running_run(namespace: Namespace, plain: str) -> None:
    seen = PodWatch(namespace)
    namespace.apply(ranks("replace", plain, FOREVER))
    namespace.running("replace")
    namespace.edit("replace", runId="better", training={"args": []})
    done = namespace.wait("replace", lambda job: job.run.get("id") == "better" and job.outcome, 60)
    assert (done.outcome, done.attempt) == ("Complete", 2)
    assert sorted(seen.created) == ["replace-1-0", "replace-1-1", "replace-2-0", "replace-2-1"]
    assert not seen.overlaps


def test_a_watch_that_has_ended_vouches_for_nothing(namespace: Namespace) -> None:
    seen = PodWatch(namespace, seconds=1)
    seen.join()
    with pytest.raises(AssertionError, match="the watch has ended"):
        assert not seen.overlaps


def test_a_finished_job_stays_finished_when_its_pods_vanish(
    namespace: Namespace, operator: Operator, plain: str
) -> None:
    namespace.apply(ranks("done", plain))
    namespace.finished("done")
    since = now()
    namespace.cluster.kubectl("delete", "-n", namespace.name, "pod", "--all", "--wait=true")
    namespace.cluster.kubectl("annotate", "-n", namespace.name, "dsj", "done", "touched=yes")
    assert namespace.job("done").outcome == "Complete"
    assert operator.created(since, namespace.name) == []


def test_a_deleted_pod_fails_a_run_without_restarts_and_is_named(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("robbed", plain, FOREVER, failurePolicy=NO_RESTARTS))
    namespace.running("robbed")
    namespace.cluster.kubectl("delete", "-n", namespace.name, "pod", "robbed-1-1", "--wait=false")
    job = namespace.finished("robbed")
    assert job.outcome == "Failed"
    assert (job.failure["reason"], job.failure["pod"]) == ("PodDeleted", "robbed-1-1")


def test_a_pod_that_is_evicted_through_the_api_is_told_so_also_by_force(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("drained", plain, FOREVER, failurePolicy=NO_RESTARTS))
    namespace.running("drained")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "drained-1-1"},
        "deleteOptions": {"gracePeriodSeconds": 0},
    }
    namespace.cluster.api.request("POST", f"{CORE}/namespaces/{namespace.name}/pods/drained-1-1/eviction", eviction)
    job = namespace.finished("drained")
    assert (job.failure["reason"], job.failure["pod"]) == ("Drained", "drained-1-1"), namespace.report("drained")
    assert "was evicted through the API, as by a drain of its node" in job.failure["message"]


def test_a_run_ends_when_its_time_is_over_and_its_ranks_may_save(namespace: Namespace, plain: str) -> None:
    limited = ranks("limited", plain, "slow-sigterm=2", FOREVER, lifecycle={"activeDeadlineSeconds": 3})
    namespace.apply(limited)
    job = namespace.finished("limited", 60)
    assert (job.outcome, job.failure["reason"]) == ("Failed", "DeadlineExceeded"), namespace.report("limited")
    assert job.run["activeSeconds"] >= 3
    assert "raise spec.lifecycle.activeDeadlineSeconds" in job.message("Failed")
    namespace.gone("limited")
    assert namespace.job("limited").attempt == 1


def test_a_finished_job_keeps_nothing_but_itself_and_does_not_run_again(
    namespace: Namespace, operator: Operator, plain: str
) -> None:
    applied = ranks("record", plain, lifecycle={"ttlSecondsAfterFinished": 0})
    namespace.apply(applied)
    namespace.completed("record")
    nothing_left(namespace)
    job = namespace.wait("record", lambda job: job.run.get("cleanupTime"), 20)
    since = now()
    namespace.apply(applied)  # as a GitOps tool does, now and then
    namespace.cluster.kubectl("label", "-n", namespace.name, "dsj", "record", "team=ml")
    namespace.edit("record", nodes=1)
    namespace.wait("record", lambda later: later.status["observedGeneration"] > job.status["observedGeneration"], 20)
    assert operator.created(since, namespace.name) == []
    namespace.edit("record", runId="second")
    again = namespace.wait("record", lambda job: job.run.get("id") == "second" and job.outcome, 60)
    assert (again.outcome, again.attempt) == ("Complete", 2)
    nothing_left(namespace)


def test_all_pods_go_where_none_is_to_stay(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("clean", plain, lifecycle={"cleanPodPolicy": "DeleteAll"}))
    namespace.completed("clean")
    namespace.gone("clean")
    assert "clean" in namespace.children()["services"]


def test_a_job_of_another_controller_gets_no_word_and_no_child(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("theirs", plain, managedBy="example.com/other"))
    namespace.apply(ranks("ours", plain))
    namespace.completed("ours")
    assert namespace.job("theirs").status == {}
    assert (namespace.pods("theirs"), namespace.events("theirs")) == ([], [])


def test_the_heads_success_is_the_runs_where_it_decides(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("head", plain, "0:sleep=2", "0:exit=0", FOREVER, successPolicy="Head"))
    job = namespace.completed("head")
    assert "Pod 0, which decides (spec.successPolicy), ended with success" in job.message("Complete")

    def phases() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in namespace.pods("head")}

    # The agents' word is there before their pods have ended for the kubelets.
    both = {"head-1-0": "Succeeded", "head-1-1": "Succeeded"}
    eventually(lambda: phases() == both, lambda: str(phases()), 30)


def test_a_worker_that_fails_before_the_head_has_ended_fails_the_run(namespace: Namespace, plain: str) -> None:
    namespace.apply(ranks("served", plain, "1:exit=5", FOREVER, successPolicy="Head", failurePolicy={"maxRestarts": 0}))
    job = namespace.finished("served")
    assert (job.outcome, job.failure["pod"]) == ("Failed", "served-1-1"), namespace.report("served")


@pytest.mark.parametrize("end", ["suspend", "replace", "deadline"])
def test_ranks_that_need_more_than_their_grace_are_killed_and_that_is_told(
    namespace: Namespace, plain: str, end: str
) -> None:
    limits = {"lifecycle": {"activeDeadlineSeconds": 10}} if end == "deadline" else {}
    namespace.apply(ranks("slow", plain, "slow-sigterm=60", FOREVER, **limits))
    if end != "deadline":
        running_and_slow_to_end(namespace, "slow")
        namespace.edit("slow", **({"suspend": True} if end == "suspend" else {"runId": "b", "training": {"args": []}}))

    def killed(job: Job) -> bool:
        return any(attempt.get("killedAfterSeconds") == 2 for attempt in job.status.get("attempts", []))

    namespace.wait("slow", killed, 60)
    (event,) = namespace.told("slow", "GraceExceeded")
    assert "were ended by SIGKILL after 2 s of grace" in event["message"]
