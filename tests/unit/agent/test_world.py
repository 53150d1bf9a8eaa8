"""The agents assert the world that the ranks form, whoever starts them. torch is played by a stand-in here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Ended, Gang, launch_of, load

Make = Callable[..., Gang]
C10D = """
import os, tempfile
__all__ = ["get_backend", "get_rank", "get_world_size", "init_process_group"]
group = {}
class PrefixStore:
    def __init__(self, prefix, store): self.path = f"{store}-{prefix}"
    def compare_set(self, key, expected, desired):
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(self.path)) as file:
            file.write(desired)
            file.flush()
            try: os.link(file.name, f"{self.path}-{key}")
            except FileExistsError: pass
        return open(f"{self.path}-{key}", "rb").read()
def _get_default_store(): return f"{os.environ['STORES']}/{os.environ['MASTER_PORT']}"
def init_process_group(backend="gloo", rank=-1, world_size=-1):
    group.update(backend=backend)
    group.update(rank=int(os.environ["RANK"]) if rank < 0 else rank)
    group.update(size=int(os.environ["WORLD_SIZE"]) if world_size < 0 else world_size)
def get_backend(): return group["backend"]
def get_rank(): return group["rank"]
def get_world_size(): return group["size"]
"""
# Starts a rank as torchrun does.
LAUNCH = """
import os, subprocess, sys
rank, size, *command = sys.argv[1:]
given = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": "0"}
sys.exit(subprocess.call([sys.executable, *command], env={**os.environ, **given}))
"""
JOIN = "import torch.distributed as dist; dist.init_process_group()"
JOIN_ALONE = f"import os; os.environ.update(RANK='0', WORLD_SIZE='1'); {JOIN}"
# Each pod has a world of its own, of as many ranks as are planned.
BOTH_HERE = "(export MASTER_PORT=$NODE_RANK; LAUNCH 0 2 JOIN & LAUNCH 1 2 JOIN; wait)"
BY_ITSELF = "import torch.distributed as dist; dist.init_process_group(rank=0, world_size=1)"


@pytest.fixture
def torch(tmp_path: Path) -> str:
    """A path with a stand-in for torch."""
    distributed = tmp_path / "packages/torch/distributed"
    distributed.mkdir(parents=True)
    (distributed.parent / "__init__.py").touch()
    (distributed / "__init__.py").write_text("from .distributed_c10d import *")
    (distributed / "distributed_c10d.py").write_text(C10D)
    (tmp_path / "packages/launch.py").write_text(LAUNCH)
    return str(tmp_path / "packages")


@pytest.fixture
def shell(gang: Make, torch: str) -> Callable[..., list[Ended]]:
    """Runs a shell script in each of two pods, under launcher None; LAUNCH starts a rank, JOIN joins its world."""

    def run(script: str, nodes: int = 2, **environment: str) -> list[Ended]:
        words = script.replace("LAUNCH", f"python {torch}/launch.py").replace("JOIN", f'-c "{JOIN}"')
        command = {"kind": "command", "value": ["sh", "-ec", words]}
        given = {"PYTHONPATH": torch, "STORES": torch, **environment}
        return gang(nodes=nodes, launch={"launcher": "None", "program": command}).run(**given)

    return run


def reasons(ended: list[Ended]) -> list[tuple[int, str]]:
    return [(each.code, each.cause["reason"]) for each in ended]


def note(ended: list[Ended]) -> str | None:
    return ended[0].cause.get("world", {}).get("note")


FAILED, COMPLETED = [(1, "WorldMismatch")] * 2, [(0, "Completed")] * 2


def test_two_worlds_of_one_are_never_complete(shell: Callable[..., list[Ended]]) -> None:
    ended = shell("LAUNCH 0 1 JOIN")
    assert reasons(ended) == FAILED, ended[0].output
    expected = "the ranks formed worlds of 1 (in pretrain-1-0, pretrain-1-1; each trained alone); planned is one of 2"
    assert [each.cause["signature"] for each in ended] == [expected] * 2


def test_a_world_of_the_planned_size_in_each_pod_is_never_complete(shell: Callable[..., list[Ended]]) -> None:
    ended = shell(BOTH_HERE)
    assert reasons(ended) == FAILED, ended[0].output
    assert ended[0].cause["signature"] == (
        "the ranks formed worlds of 2 (in pretrain-1-0, pretrain-1-1; each trained alone); planned is one of 2 "
        "across 2 pods"
    )


def test_a_larger_world_than_planned_is_another_one(shell: Callable[..., list[Ended]]) -> None:
    assert reasons(shell("LAUNCH $NODE_RANK 4 JOIN")) == FAILED


@pytest.mark.parametrize(
    "script",
    [
        "LAUNCH $NODE_RANK 2 JOIN",
        "LAUNCH 0 1 JOIN; LAUNCH $NODE_RANK 2 JOIN",
        "LAUNCH $NODE_RANK 2 JOIN; LAUNCH 0 1 JOIN",
        "LAUNCH $NODE_RANK 2 JOIN & LAUNCH 0 1 JOIN; wait",
        "if [ $NODE_RANK = 0 ]; then LAUNCH 0 2 JOIN; fi",
        f"{BOTH_HERE}; LAUNCH $NODE_RANK 2 JOIN",
        f"export STORES=/none; {BOTH_HERE}",
    ],
    ids=[
        "alone",
        "after a preparation",
        "before an evaluation",
        "beside a helper",
        "one pod's ranks unseen",
        "after a preparation by as many",
        "a torch whose groups have no name",
    ],
)
def test_the_planned_world_is_asserted_whatever_else_the_command_does(
    shell: Callable[..., list[Ended]], script: str
) -> None:
    ended = shell(script)
    assert (reasons(ended), note(ended)) == (COMPLETED, None), ended[0].output


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("true", "no process was seen to join"),
        ("LAUNCH 0 1 -c pass", "no process was seen to join"),
        ("LAUNCH 0 1 -I JOIN || true", "no process was seen to join"),
        ("if [ $NODE_RANK = 0 ]; then LAUNCH 0 1 JOIN; fi", "its processes formed other groups"),
        (f'python -c "{BY_ITSELF}"', "its processes formed other groups"),
        ("RAY_NODE_ID=x LAUNCH 0 1 JOIN", "its processes formed other groups"),
    ],
    ids=["no Python", "exits before", "no site", "one pod's evaluation", "a server", "ray"],
)
def test_what_is_not_certain_is_complete_and_said(shell: Callable[..., list[Ended]], script: str, said: str) -> None:
    ended = shell(script)
    assert reasons(ended) == COMPLETED, ended[0].output
    assert f"world not asserted: {said}" in (note(ended) or "")
    assert "world" not in ended[1].cause, "rank 0's agent tells"


def test_one_rank_is_a_world_without_a_word(shell: Callable[..., list[Ended]]) -> None:
    ended = shell("true", nodes=1)
    assert (reasons(ended), note(ended)) == ([(0, "Completed")], None)


def test_ranks_that_the_agent_started_are_asserted_too(gang: Make, torch: str) -> None:
    assert reasons(gang(nodes=2, script=JOIN_ALONE).run(PYTHONPATH=torch)) == FAILED
    ended = gang(nodes=2, script=JOIN).run(PYTHONPATH=torch)
    assert (reasons(ended), note(ended)) == (COMPLETED, None)


def test_a_rank_that_does_what_another_does_not_is_no_other_world(gang: Make, torch: str) -> None:
    ended = gang(nodes=2, script=f"import os\nif os.environ['RANK'] == '1': exit()\n{JOIN_ALONE}").run(PYTHONPATH=torch)
    assert reasons(ended) == COMPLETED
    assert "not asserted" in (note(ended) or "")


def test_while_it_runs_rank_0s_agent_tells_what_has_been_formed(gang: Make, torch: str) -> None:
    made = gang(nodes=2, script=f"{JOIN_ALONE}\nimport time; time.sleep(60)")
    first = made.start(0, PYTHONPATH=torch)
    made.start(1, PYTHONPATH=torch)
    first.wait_until_ready()
    first.wait_for(lambda: "planned is one of 2" in (first.get("/state")[1]["world"]["note"] or ""))


@pytest.mark.parametrize(
    "report",
    [
        None,
        [],
        "x",
        {"worlds": 1, "engines": []},
        {"worlds": [["x", 1, 1]], "engines": []},
        {"worlds": [[1, 1]], "engines": []},
    ],
)
def test_what_is_no_agents_report_changes_nothing(report: Any) -> None:
    world = load("dso_world").RanksWorld(launch_of(2))
    world.take(0, report)
    assert world.summary(over=False) == {"note": None, "engines": []}


def test_of_many_reports_a_pod_tells_few() -> None:
    reports = [{"world": size, "rank": 0, "certain": size == 3} for size in range(1, 30)] * 2 + [{"world": "x"}, {}]
    report = load("dso_world").of_pod([*reports, *({"world": 1, "engine": {"stage": at}} for at in range(9))])
    assert report["worlds"] == [[size, size == 3, False] for size in range(1, 9)]
    assert [engine["stage"] for engine in report["engines"]] == [0, 1, 2, 3]


def test_engines_that_are_the_same_in_every_pod_are_told_once() -> None:
    world = load("dso_world").RanksWorld(launch_of(2))
    for index in range(2):
        world.take(index, {"worlds": [[2, True, False]], "engines": [{"stage": 2}, {"stage": 3}][: index + 1]})
    assert world.summary(over=False)["engines"] == [{"stage": 2}, {"stage": 3}]
