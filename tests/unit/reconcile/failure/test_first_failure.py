"""What goes wrong once a run has begun, and the words in which status says it."""

import pytest

from deepspeed_operator.api.status import ConditionType, State
from deepspeed_operator.reconcile.observe import messages
from deepspeed_operator.reconcile.observe.observed import AgentReport
from tests.unit.reconcile.simulation import agent_says
from tests.unit.reconcile.test_life_of_a_job import running, started


@pytest.mark.parametrize("last_words", ["ValueError: no data", "ValueError: no data."])
def test_what_to_do_next_follows_the_cause_after_one_full_stop(last_words: str) -> None:
    simulation = running()
    simulation.end(0, 1, agent_says(0, 0, 1, signature=last_words))
    simulation.end(1, 1, agent_says(0, 0, 1, signature=last_words))
    simulation.settle()
    assert (
        "ValueError: no data. Correct the cause, then set a new spec.runId to run it again."
        in simulation.condition(ConditionType.FAILED).message
    )


def test_the_failing_rank_is_named_with_pod_node_code_and_log() -> None:
    simulation = running()
    message = agent_says(1, 1, 7, signature="ValueError: no data")
    simulation.end(1, 7, message)
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING, "its peers may turn out to have failed first"
    simulation.end(0, 7, message)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.rank, failure.pod, failure.node) == ("RankFailed", 1, "pretrain-1-1", "node1")
    assert failure.exit_code == 7
    assert "ValueError: no data" in failure.message
    assert "last line of the log" in failure.message
    failed = simulation.condition(ConditionType.FAILED)
    assert "rank 1 in pod pretrain-1-1 on node node1 exited with code 7: ValueError: no data" in failed.message
    assert "last line of the log" not in failed.message


def test_a_rank_that_left_with_0_is_named_with_what_to_do() -> None:
    simulation = running()
    said = agent_says(1, 1, 0, "RankLeft", signature="rank 0 then failed: RuntimeError: Connection closed by peer")
    for index in (0, 1):
        simulation.end(index, 1, said)
    simulation.settle()
    failed, failure = simulation.condition(ConditionType.FAILED), simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.rank, failure.exit_code, failure.pod) == ("RankLeft", 1, 0, "pretrain-1-1")
    assert failed.message.startswith(
        "rank 1 in pod pretrain-1-1 on node node1 left with exit code 0 while the others trained: rank 0 then failed: "
    )
    assert "Give all ranks the same number of steps" in failed.message


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (
            "/ckpt is not writable by uid 1000: RuntimeError: Parent directory /ckpt/global_step5 does not exist.",
            "fsGroup",
        ),
        ("TypeError: '>' not supported between instances of 'str' and 'int'", 'If dsConfig says "auto"'),
        ("TypeError: '<' not supported between instances of 'list' and 'int'", "Correct the cause"),
        ("", "Correct the cause"),
    ],
)
def test_words_whose_cause_is_known_say_what_to_do(signature: str, expected: str) -> None:
    simulation = running(nodes=1)
    simulation.end(0, 1, agent_says(0, 0, 1, signature=signature))
    simulation.settle()
    assert expected in simulation.condition(ConditionType.FAILED).message


@pytest.mark.parametrize(
    ("exit_code", "signal", "signature", "expected"),
    [
        (2, None, "train.py: error: unrecognized arguments: --x", "exited with code 2: train.py: error: unrecognized"),
        (7, None, "", "on node node0 exited with code 7. Correct"),
        (None, 9, "out of memory?", "was killed by signal 9 (SIGKILL): out of memory?"),
        (None, 99, "", "was killed by signal 99. Correct"),
    ],
)
def test_an_end_is_said_once(exit_code: int | None, signal: int | None, signature: str, expected: str) -> None:
    simulation = running(nodes=1)
    simulation.end(0, exit_code or 137, agent_says(0, 0, exit_code, signal=signal, signature=signature))
    simulation.settle()
    assert expected in simulation.condition(ConditionType.FAILED).message


def test_a_silent_death_explains_the_lost_connections_of_its_peers() -> None:
    simulation = running(nodes=3)
    simulation.end(2, 137, "some log line", reason="OOMKilled")
    simulation.end(0, 1, agent_says(0, 0, 1, signature="RuntimeError: Connection reset by peer"))
    simulation.end(1, 1, agent_says(0, 0, 1, signature="RuntimeError: Connection reset by peer"))
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod, failure.node) == ("HostOutOfMemory", "pretrain-1-2", "node2")
    assert failure.signal == 9
    assert "container trainer of pod pretrain-1-2" in failure.message


def test_the_rank_is_named_when_the_agent_survived_its_oom_kill() -> None:
    simulation = running()
    simulation.end(1, 137, agent_says(1, 1, None, signal=9), reason="OOMKilled")
    simulation.end(0, 137, agent_says(1, 1, None, signal=9))
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.rank, failure.pod) == ("HostOutOfMemory", 1, "pretrain-1-1")


def test_a_gang_whose_peers_do_not_end_is_failed_after_a_while_and_removed() -> None:
    simulation = running()
    simulation.end(1, 7, agent_says(1, 1, 7))
    outcome = simulation.settle()
    assert outcome.check_at is not None
    simulation.now = outcome.check_at
    simulation.settle()
    assert simulation.job.status.state is State.FAILED
    assert simulation.pod(0).deleted_at is not None
    assert simulation.pod(1).deleted_at is None


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        ({"unschedulable": "0/2 nodes are available."}, "Unschedulable", "It starts when a node has room"),
        (
            {"unschedulable": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."},
            "Unschedulable",
            "Each pod requests 1 nvidia.com/gpu because spec.template names no accelerator, and the chart says so of "
            "its worker image (worker.accelerator). To train on CPUs, limit the trainer to nvidia.com/gpu: 0 in "
            "spec.template. "
            "It starts when a node has room",
        ),
        ({"unschedulable": 'persistentvolumeclaim "data" not found'}, "Unschedulable", "create or correct it"),
        (
            {"waiting_container": "trainer", "waiting_reason": "ErrImagePull", "waiting_message": "not found"},
            "ImagePullFailed",
            "container trainer of pod pretrain-1-1 on node node1 cannot pull its image: not found",
        ),
        (
            {"waiting_container": "trainer", "waiting_reason": "CreateContainerConfigError", "waiting_message": "x"},
            "ContainerCannotStart",
            "CreateContainerConfigError: x",
        ),
    ],
)
def test_what_keeps_a_pod_from_starting_is_said_while_waiting_and_at_the_deadline(
    fields: dict[str, str], reason: str, words: str
) -> None:
    simulation = started(lifecycle={"startupDeadlineSeconds": 60})
    simulation.change(1, node="node1", **fields)
    simulation.settle()
    assert simulation.condition(ConditionType.RUNNING).reason == reason
    assert words in simulation.condition(ConditionType.RUNNING).message
    simulation.wait(60)
    simulation.settle()
    failed, failure = simulation.condition(ConditionType.FAILED), simulation.job.status.failure
    assert (failed.status, failed.reason) == ("True", "StartupDeadlineExceeded")
    assert words in failed.message
    assert failure is not None
    assert (failure.pod, failure.node) == ("pretrain-1-1", "node1")


def test_the_agents_of_a_gang_whose_containers_run_get_to_say_first_who_is_missing() -> None:
    simulation = started(lifecycle={"startupDeadlineSeconds": 60})
    for index in (0, 1):
        simulation.change(index, phase="Running", node="n", address=f"10.0.0.{index + 1}")
    simulation.wait(60)
    simulation.settle()
    assert simulation.job.status.state is State.STARTING
    simulation.end(0, 1, agent_says(0, None, 1, "HostNotResolved", signature="pretrain-1-1.pretrain"))
    simulation.end(1, 1, agent_says(0, None, 1, "HostNotResolved", signature="pretrain-1-1.pretrain"))
    simulation.settle()
    assert simulation.condition(ConditionType.FAILED).reason == "HostNotResolved"


@pytest.mark.parametrize(
    ("exit_code", "reason", "message", "expected", "words"),
    [
        (128, "StartError", 'exec: "python3": executable file not found in $PATH', "PythonNotFound", "has no python3"),
        (128, "StartError", 'exec: "/run.sh": stat /run.sh: no such file', "ContainerCannotStart", "has no /run.sh"),
        (137, "Error", "log", "ContainerKilled", "signal 9"),
        (2, "Error", "usage: entrypoint", "ContainerFailed", "exited with code 2"),
        (255, "Unknown", "", "NodeLost", "ended with its node or its container runtime, which restarted"),
        (137, "ContainerStatusUnknown", "it could not be located", "NodeLost", "which restarted"),
    ],
)
def test_a_container_that_ended_without_the_agents_word_is_explained_by_its_state(
    exit_code: int, reason: str, message: str, expected: str, words: str
) -> None:
    simulation = running(nodes=1)
    simulation.end(0, exit_code, message, reason)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert failure.reason == expected
    assert words in failure.message
    assert "pod pretrain-1-0 on node node0" in failure.message


def test_an_evicted_pod_is_named_with_the_kubelets_words() -> None:
    simulation = running(nodes=1)
    simulation.change(0, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert failure.reason == "Evicted"
    assert "low on resource: memory" in failure.message


def test_a_pod_that_its_node_does_not_admit_fails_the_job_though_the_others_wait_for_it() -> None:
    simulation = started()
    simulation.change(0, phase="Running", node="node0", address="10.0.0.1")
    simulation.change(1, phase="Failed", node="node1", reason="UnexpectedAdmissionError", message="no healthy devices")
    simulation.wait(15)
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.pod == "pretrain-1-1"
    assert "UnexpectedAdmissionError: no healthy devices" in simulation.job.status.failure.message
    assert simulation.pod(0).deleted_at is not None


def test_a_pod_that_somebody_deletes_fails_the_job_in_those_words() -> None:
    simulation = running()
    said = agent_says(1, None, 143, "Terminated")
    simulation.end(1, 143, said, deleted_at=simulation.now)
    simulation.end(0, 143, said)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod) == ("PodDeleted", "pretrain-1-1")


@pytest.mark.parametrize(("exit_code", "reason"), [(143, "PodDeleted"), (137, "PodDeleted"), (1, "ContainerFailed")])
def test_a_pod_that_is_deleted_before_its_agent_can_say_so_was_deleted(exit_code: int, reason: str) -> None:
    simulation = started()
    simulation.change(0, node="node0", phase="Running")
    simulation.end(1, exit_code, "", deleted_at=simulation.now)
    simulation.wait(15)
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.reason == reason


def test_a_pod_that_vanishes_while_running_is_looked_for_once_and_fails_the_job() -> None:
    simulation = running()
    simulation.remove("pretrain-1-1")
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod) == ("PodDeleted", "pretrain-1-1")
    assert "pod pretrain-1-1" not in simulation.writes[-4:], "it is not created again"


@pytest.mark.parametrize(
    "forged",
    [
        '{"protocol": 3, "reason": ""}',
        '{"protocol": 3, "reason": "A b"}',
        '{"protocol": 3, "reason": "A", "rank": 1e400}',
        '{"protocol": 3, "reason": "A", "exitCode": 99999999999999999999}',
        '{"protocol": 4, "reason": "A"}',
        "[" * 5000,
        "null",
    ],
)
def test_a_termination_message_that_status_could_not_hold_is_taken_for_log(forged: str) -> None:
    simulation = running(nodes=1)
    simulation.end(0, 3, forged)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.exit_code) == ("ContainerFailed", 3)


def test_the_last_words_of_an_attempt_that_an_earlier_operator_started_are_read() -> None:
    simulation = running(nodes=1)
    simulation.end(0, 3, agent_says(0, 0, 3, protocol=2, signature="no data"))
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.rank, failure.exit_code) == ("RankFailed", 0, 3)


def test_a_pod_that_cannot_end_fails_its_run_in_its_agents_words() -> None:
    simulation = running(nodes=1)
    stuck = "Pod pretrain-1-0 does not end: process 7 (python3) is in uninterruptible sleep (state D)"
    said = messages.agent_message(agent_says(0, 1, 2, signature="no data", stuck=stuck).partition("\n")[0])
    simulation.agent = AgentReport(1, simulation.now, stuck=said)
    simulation.wait(61)
    simulation.settle()
    failed = simulation.condition(ConditionType.FAILED)
    assert (failed.status, failed.reason) == ("True", "RankFailed")
    assert failed.message.startswith(
        f"rank 1 in pod pretrain-1-0 on node node0 exited with code 2: no data. {stuck}. Correct the cause"
    )
    assert simulation.pod(0).deleted_at is not None


SUCCESS = '{"protocol":3,"reason":"Completed","round":1,"deepspeed":"0.19.8"}'


def test_a_pod_that_had_succeeded_before_it_was_deleted_has_succeeded() -> None:
    simulation = running()
    simulation.end(1, 0, SUCCESS)
    simulation.pods["pretrain-1-1"] = simulation.pod(1).last_view()
    simulation.settle()
    assert simulation.job.status.state is State.RUNNING
    simulation.end(0, 0, SUCCESS)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE
    assert simulation.writes.count("pod pretrain-1-1") == 1, "it is not created again"


@pytest.mark.parametrize("began", ["Running", "Starting"])
def test_one_agents_success_is_everybodys_though_a_pod_went_while_the_operator_was_away(began: str) -> None:
    simulation = running(nodes=3) if began == "Running" else started(nodes=3)
    simulation.end(1, 0, SUCCESS)
    simulation.remove("pretrain-1-0")
    simulation.settle()
    assert simulation.job.status.state.value == began  # type: ignore[union-attr]
    assert "pretrain-1-0" not in simulation.pods, "it is not created again"
    simulation.end(2, 0, SUCCESS)
    simulation.settle()
    assert simulation.job.status.state is State.COMPLETE


def test_an_exit_code_of_0_without_an_agents_word_speaks_for_its_pod_alone() -> None:
    simulation = running(nodes=3)
    simulation.end(1, 0, "bye")
    simulation.remove("pretrain-1-0")
    simulation.settle()
    assert simulation.job.status.failure is not None
    assert simulation.job.status.failure.reason == "PodDeleted"


def test_a_suspended_job_is_suspended_though_it_is_known_that_a_pod_had_succeeded() -> None:
    simulation = running()
    simulation.end(1, 0, "bye")
    simulation.edit(suspend=True)
    simulation.settle()
    simulation.pods["pretrain-1-1"] = simulation.pod(1).last_view()
    del simulation.pods["pretrain-1-0"]
    simulation.settle()
    assert simulation.job.status.state is State.SUSPENDED


def test_a_deleted_pod_is_named_though_it_is_gone_before_its_peers_have_ended() -> None:
    simulation = running()
    said = agent_says(1, None, 143, "Terminated", node="node1")
    simulation.remove("pretrain-1-1")
    simulation.end(0, 143, said)
    simulation.settle()
    failure = simulation.job.status.failure
    assert failure is not None
    assert (failure.reason, failure.pod, failure.node) == ("PodDeleted", "pretrain-1-1", "node1")
