"""`dsjob logs -f` goes on through restarts, pods that are replaced and streams that are cut: each line comes once."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.cli.followed import Dsjob, FollowedJob


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FollowedJob]:
    made = FollowedJob(tmp_path)
    yield made
    made.cut()  # a watch of a dsjob that was killed would go on


@pytest.fixture
def dsjob(tmp_path: Path) -> Iterator[Callable[..., Dsjob]]:
    made: list[Dsjob] = []

    def make(*arguments: str) -> Dsjob:
        made.append(Dsjob(tmp_path, "logs", "pretrain", *arguments))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()


def stamped(second: int, *words: str) -> list[str]:
    """Return lines that were written in one second, one after another."""
    return [f"2026-01-01T00:00:{second:02}.{at:09}Z {each}" for at, each in enumerate(words)]


def two_pods(cluster: FollowedJob) -> None:
    cluster.job("Running")
    for index in range(2):
        cluster.pod(f"pretrain-1-{index}", kind="ADDED")
        told = f"[deepspeed-operator] pod {index}", f"[rank {2 * index + 1}] 1"
        cluster.write(f"pretrain-1-{index}", *stamped(1, *told))


def finish(cluster: FollowedJob, followed: Dsjob, *pods: str, state: str = "Complete") -> int:
    for pod in pods:
        cluster.end(pod)
    cluster.job(state, int(pods[0].split("-")[1]))
    return followed.process.wait(60)


@pytest.mark.parametrize("clean", [False, True], ids=["broken", "ended as if all had been said"])
def test_a_stream_that_is_cut_goes_on_with_the_line_after_the_last(
    clean: bool, cluster: FollowedJob, dsjob: Callable[..., Dsjob]
) -> None:
    two_pods(cluster)
    followed = dsjob("-f")
    followed.wait_for(lambda it: len(it.lines) == 4)
    for at in range(3):
        # Two lines of one time, and one that comes after a later one: stdout and stderr are written by two.
        cluster.write("pretrain-1-1", *stamped(2 + at, f"[rank 2] {at}a") * 2, *stamped(1 + at, f"[rank 2] {at}b"))
        followed.wait_for(lambda it, most=4 + 3 * (at + 1): len(it.lines) == most)
        cluster.cut(clean=clean)
    cluster.write("pretrain-1-0", *stamped(9, "last"))
    assert finish(cluster, followed, "pretrain-1-0", "pretrain-1-1") == 0
    told = [f"[rank 2] {at}{each}" for at in range(3) for each in "aab"]
    assert [line for line in followed.lines if line.startswith("[rank 2]")] == told
    assert sorted(followed.lines) == sorted(
        [
            *told,
            "[pretrain-1-0] [deepspeed-operator] pod 0",
            "[pretrain-1-1] [deepspeed-operator] pod 1",
            "[rank 1] 1",
            "[rank 3] 1",
            "[rank 0] last",
        ]
    )


def test_an_api_server_that_is_away_is_told_and_waited_for(cluster: FollowedJob, dsjob: Callable[..., Dsjob]) -> None:
    two_pods(cluster)
    followed = dsjob("-f")
    followed.wait_for(lambda it: len(it.lines) == 4)
    cluster.down()
    cluster.cut()
    followed.wait_for(lambda it: "no answer, trying again: The connection to the server was refused" in it.errors)
    followed.wait_for(lambda it: "the server is down" in it.errors)
    cluster.write("pretrain-1-0", *stamped(5, "again"))
    cluster.down(down=False)
    followed.wait_for(lambda it: "[rank 0] again" in it.lines)
    assert finish(cluster, followed, "pretrain-1-0", "pretrain-1-1") == 0
    assert len(followed.lines) == 5


def test_a_pod_in_the_place_of_a_lost_one_and_those_of_the_next_attempt_are_followed(
    cluster: FollowedJob, dsjob: Callable[..., Dsjob]
) -> None:
    two_pods(cluster)
    followed = dsjob("-f", "--rank", "2")
    followed.wait_for(lambda it: len(it.lines) == 1)
    cluster.pod("pretrain-1-1", kind="DELETED")
    (cluster.directory / "logs/pretrain-1-1").unlink()
    cluster.write("pretrain-1-1-r1", *stamped(3, "[rank 2] replaced"))
    cluster.pod("pretrain-1-1-r1", "waiting", kind="ADDED")
    cluster.pod("pretrain-1-1-r1")
    followed.wait_for(lambda it: "replaced" in it.lines)
    cluster.end("pretrain-1-0")
    cluster.end("pretrain-1-1-r1")
    cluster.job("Restarting", 2)
    cluster.write("pretrain-2-1", *stamped(5, "[rank 2] next", "[rank 3] another"))
    cluster.pod("pretrain-2-1", kind="ADDED")
    followed.wait_for(lambda it: "next" in it.lines)
    assert finish(cluster, followed, "pretrain-2-1") == 0
    assert followed.lines == ["[pretrain-1-1] [deepspeed-operator] pod 1", "replaced", "next"]
    assert not any("pretrain-1-0" in each for each in cluster.asked())


def test_a_pod_that_is_made_again_under_its_name_is_another(cluster: FollowedJob, dsjob: Callable[..., Dsjob]) -> None:
    two_pods(cluster)
    followed = dsjob("-f")
    followed.wait_for(lambda it: len(it.lines) == 4)
    log = cluster.directory / "logs/pretrain-1-1"
    log.unlink()
    cluster.cut()
    cluster.pod("pretrain-1-1", kind="DELETED")
    time.sleep(3)  # its stream has been asked for again
    cluster.write("pretrain-1-1", *stamped(5, "[rank 2] again"))
    cluster.pod("pretrain-1-1", uid="another")
    followed.wait_for(lambda it: "[rank 2] again" in it.lines)
    cluster.pod("pretrain-1-1", "terminated", uid="another")
    (cluster.directory / "logs/pretrain-1-1.ended").touch()
    assert finish(cluster, followed, "pretrain-1-0") == 0
    assert followed.lines.count("[rank 2] again") == 1


def test_what_is_written_while_the_job_comes_to_its_end_is_shown(
    cluster: FollowedJob, dsjob: Callable[..., Dsjob]
) -> None:
    two_pods(cluster)
    followed = dsjob("-f")
    followed.wait_for(lambda it: len(it.lines) == 4)
    cluster.job("Failed")
    time.sleep(0.5)
    cluster.write("pretrain-1-1", *stamped(9, "[rank 3] Traceback"))
    assert finish(cluster, followed, "pretrain-1-0", "pretrain-1-1", state="Failed") == 0
    assert followed.lines[-1] == "[rank 3] Traceback"


def test_a_job_that_is_deleted_ends_it_once_all_is_shown(cluster: FollowedJob, dsjob: Callable[..., Dsjob]) -> None:
    two_pods(cluster)
    followed = dsjob("-f")
    followed.wait_for(lambda it: len(it.lines) == 4)
    cluster.job("Running", kind="DELETED")
    cluster.write("pretrain-1-0", *stamped(9, "saved"))
    for index in range(2):
        cluster.pod(f"pretrain-1-{index}", kind="DELETED")
        (cluster.directory / f"logs/pretrain-1-{index}.ended").touch()
    assert followed.process.wait(60) == 2
    assert followed.lines[-1] == "[rank 0] saved"
    assert followed.errors == "dsjob: DeepSpeedJob pretrain was deleted\n"


def test_an_attempt_alone_is_followed_until_it_is_over(cluster: FollowedJob, dsjob: Callable[..., Dsjob]) -> None:
    two_pods(cluster)
    followed = dsjob("-f", "--attempt", "1", "--tail", "1")
    followed.wait_for(lambda it: len(it.lines) == 2)
    cluster.end("pretrain-1-0")
    cluster.end("pretrain-1-1")
    cluster.job("Starting", 2)
    assert followed.process.wait(60) == 0
    assert sorted(followed.lines) == ["[rank 1] 1", "[rank 3] 1"]


def test_no_proxy_outlives_it(cluster: FollowedJob, dsjob: Callable[..., Dsjob]) -> None:
    two_pods(cluster)
    followed = dsjob("-f")
    followed.wait_for(lambda it: len(it.lines) == 4)
    assert cluster.proxy_runs()
    followed.process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while cluster.proxy_runs():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_no_watch_outlives_it(cluster: FollowedJob, dsjob: Callable[..., Dsjob]) -> None:
    two_pods(cluster)
    followed = dsjob("-f")
    followed.wait_for(lambda it: len(it.lines) == 4)
    assert finish(cluster, followed, "pretrain-1-0", "pretrain-1-1") == 0
    until = time.monotonic() + 60
    while cluster.watches_run():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_what_is_there_is_printed_once_pod_by_pod(cluster: FollowedJob, dsjob: Callable[..., Dsjob]) -> None:
    two_pods(cluster)
    once = dsjob()
    assert once.process.wait(60) == 0
    assert once.lines == [
        "[pretrain-1-0] [deepspeed-operator] pod 0",
        "[rank 1] 1",
        "[pretrain-1-1] [deepspeed-operator] pod 1",
        "[rank 3] 1",
    ]
