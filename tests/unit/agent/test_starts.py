"""Ranks that train together and did not begin from one checkpoint are told. torch and DeepSpeed are played here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Ended, Gang, interpreters, load
from tests.unit.agent.test_world import C10D

Make = Callable[..., Gang]
# Ranks of one group see each other's loads as little as DeepSpeed's do.
DEEPSPEED = """
import os, types
class DeepSpeedEngine:
    seq_data_parallel_group, enable_backward_allreduce = "all", True
    def __init__(self):
        self.basic_optimizer = self
        self.global_steps = 0
        self._config = types.SimpleNamespace(load_universal_checkpoint=False)
    def load_universal_checkpoint(self): return self._config.load_universal_checkpoint
    def load_checkpoint(self, directory, tag=None, load_module_only=False):
        if self.load_universal_checkpoint() and not tag and not os.path.isfile(directory + "/latest_universal"):
            raise ValueError("Invalid for universal checkpoint")
        path = os.path.join(directory, tag or open(directory + "/latest").read()) if os.path.isdir(directory) else None
        if path and not load_module_only:
            self.global_steps = int(path.rpartition("global_step")[2])
        return (os.path.join(path, "mp_rank_00_model_states.pt"), {}) if path else (None, None)
    def _take_model_step(self, lr_kwargs=None): self.global_steps += 1
def initialize(): return DeepSpeedEngine(), None, None, None
"""
PEERS = """
__all__.append("get_process_group_ranks")
def get_process_group_ranks(asked): return [group["rank"]] if asked == "own" else list(range(group["size"]))
"""
TRAIN = """
import os, time
import torch.distributed as dist
import deepspeed
dist.init_process_group()
engine, *_ = deepspeed.initialize()
here = "/".join((os.environ["VOLUMES"], os.environ["RANK"], "checkpoints"))
%s
for _ in range(3):
    engine._take_model_step()
assert not vars(engine).keys() & {"_take_model_step", "load_checkpoint"}, "an engine that holds itself keeps its memory"
print("trained", flush=True)
time.sleep(1)
"""


@pytest.fixture
def trained(gang: Make, tmp_path: Path) -> Callable[..., list[Ended]]:
    """Trains two ranks in two pods; each has a volume of its own, with a checkpoint of these steps, or none."""

    def run(load_it: str, *steps: int | None, nodes: int = 2, **fields: Any) -> list[Ended]:
        packages = tmp_path / "packages"
        (packages / "torch/distributed").mkdir(parents=True)
        (packages / "torch/__init__.py").touch()
        (packages / "torch/distributed/__init__.py").write_text("from .distributed_c10d import *")
        (packages / "torch/distributed/distributed_c10d.py").write_text(C10D + PEERS)
        (packages / "deepspeed.py").write_text(DEEPSPEED)
        for rank, step in enumerate(steps):
            root = tmp_path / f"volumes/{rank}/checkpoints"
            if step is not None:
                (root / f"global_step{step}").mkdir(parents=True)
                (root / "latest").write_text(f"global_step{step}")
        environment = {"PYTHONPATH": str(packages), "STORES": str(packages), "VOLUMES": str(tmp_path / "volumes")}
        return gang(nodes=nodes, script=TRAIN % load_it, **fields).run(**environment)

    return run


LOAD = "engine.load_checkpoint(here)"
APART = "the ranks did not begin from one checkpoint: "


def starts(ended: list[Ended]) -> str | None:
    return ended[0].cause.get("world", {}).get("starts")


@pytest.mark.parametrize("python", interpreters())
def test_ranks_that_load_different_steps_fail_at_the_first(trained: Callable[..., list[Ended]], python: str) -> None:
    ended = trained(LOAD, 20, 10, python=python)
    for each in ended:
        assert (each.code, each.cause["reason"]) == (1, "ResumeMismatch"), each.output
        assert each.cause["signature"] == (
            f"{APART}rank 0 (pod pretrain-1-0 on node node0) loaded checkpoints/global_step20 (step 20); "
            "rank 1 (pod pretrain-1-1 on node node1) loaded checkpoints/global_step10 (step 10)"
        )


def test_ranks_of_which_one_finds_no_checkpoint_fail(trained: Callable[..., list[Ended]]) -> None:
    ended = trained(LOAD, 20, None)
    assert [each.cause["reason"] for each in ended] == ["ResumeMismatch"] * 2, ended[0].output
    assert ended[0].cause["signature"].endswith("rank 1 (pod pretrain-1-1 on node node1) found none to load")


@pytest.mark.parametrize(
    ("load_it", "steps"),
    [
        (LOAD, (20, 20)),
        (LOAD, (None, None)),
        ("pass", (20, 10)),
        (f"engine.seq_data_parallel_group = 'own'; {LOAD}", (20, 10)),
        (f"engine.seq_data_parallel_group = None; {LOAD}", (20, 10)),
        (f"engine.enable_backward_allreduce = False; {LOAD}", (20, 10)),
        (f"engine._take_model_step(); {LOAD}", (20, 20)),
    ],
    ids=["one", "none", "not at all", "trainings apart", "peers unknown", "gradients kept apart", "after a step"],
)
def test_what_does_not_differ_is_not_told(
    trained: Callable[..., list[Ended]], load_it: str, steps: tuple[int | None, ...]
) -> None:
    ended = trained(load_it, *steps)
    assert [(each.code, each.cause["reason"]) for each in ended] == [(0, "Completed")] * 2, ended[0].output
    assert starts(ended) is None


@pytest.mark.parametrize(
    ("load_it", "second", "words"),
    [
        (f"if os.environ['RANK'] == '0': {LOAD}", 10, "node1) did not load one"),
        (f"{LOAD}; engine.global_steps = 20  # rank 0's, broadcast", None, "node1) found none to load"),
        ("engine.load_checkpoint(here, load_module_only=True)", 10, "node1) loaded checkpoints/global_step10 (step 0)"),
    ],
    ids=["one rank gives the others its parameters", "and its step", "parameters alone"],
)
def test_what_may_be_meant_is_told_and_goes_on(
    trained: Callable[..., list[Ended]], load_it: str, second: int | None, words: str
) -> None:
    ended = trained(load_it, 20, second)
    assert [(each.code, each.cause["reason"]) for each in ended] == [(0, "Completed")] * 2, ended[0].output
    assert (starts(ended) or "").startswith(APART)
    assert (starts(ended) or "").endswith(words)


def test_where_the_head_decides_another_pods_training_is_its_own_affair(trained: Callable[..., list[Ended]]) -> None:
    ended = trained(LOAD, 20, 10, launch={"successPolicy": "Head"})
    assert ended[0].cause["reason"] == "Completed", ended[0].output
    assert (starts(ended) or "").startswith(APART)


UNIVERSAL = f"engine._config.load_universal_checkpoint = True; {LOAD}; assert engine.load_universal_checkpoint()"


@pytest.mark.parametrize(
    ("seconds", "steps", "reason"),
    [(60, (None, None), "Completed"), (0, (None, None), "DataOrCheckpoint"), (60, (None, 20), "DataOrCheckpoint")],
    ids=["where the operator says load_universal", "where the user does", "where there is a checkpoint"],
)
def test_what_is_resized_before_its_first_checkpoint_begins_without_one(
    trained: Callable[..., list[Ended]], tmp_path: Path, seconds: int, steps: tuple[int | None, ...], reason: str
) -> None:
    place = {"path": str(tmp_path / "none"), "declared": True, "repairLatest": True, "since": 0}
    ended = trained(UNIVERSAL, *steps, launch={"checkpoint": {**place, "conversionSeconds": seconds}})
    assert ended[1].cause["reason"] == reason, ended[1].output


def report(rank: int, path: str, step: int, loads: bool = True, peers: str = "a 0 8") -> dict[str, Any]:
    return {"stepped": True, "start": {"rank": rank, "peers": peers, "loads": loads, "path": path, "step": step}}


def known(*pods: list[dict[str, Any]]) -> Any:
    module = load("dso_starts")
    made = module.Starts()
    for index, reports in enumerate(pods):
        made.take({"starts": module.starts_of(reports)}, f"pod {index}")
    return made


def test_another_tag_of_the_same_step_is_told_and_the_same_tag_elsewhere_is_not() -> None:
    other = known([report(0, "/a/best", 20)], [report(1, "/a/last", 20)])
    assert other.words.endswith("rank 0 (pod 0) loaded a/best (step 20); rank 1 (pod 1) loaded a/last (step 20)")
    assert not other.wrong
    assert "loaded a?/las?t (step 20)" in known([report(0, "/a\n/las\udcfft", 20)], [report(1, "", 0)]).words
    elsewhere = known([report(0, "/mnt/node-a/last", 20)], [report(1, "/mnt/node-b/last", 20)])
    assert (elsewhere.words, elsewhere.wrong) == ("", False)


def test_of_many_ranks_few_are_named() -> None:
    pods = [
        [report(8 * pod + each, "/c/global_step20" if pod else "", 20 if pod else 0) for each in range(8)]
        for pod in range(9)
    ]
    made = known(*pods)
    assert made.wrong
    assert made.words == (
        f"{APART}ranks 0, 1, 2 and 5 more (pod 0) found none to load; "
        "ranks 8, 9, 10 and 61 more (pod 1 and 7 more) loaded c/global_step20 (step 20)"
    )


def test_each_of_sixteen_ranks_of_a_pod_may_train_with_others() -> None:
    pods = [
        [report(16 * pod + each, "/c/x", 20 - (each == pod == 15), peers=f"a {each} 16") for each in range(16)]
        for pod in range(16)
    ]
    made = known(*pods)
    assert made.wrong
    assert made.words.endswith("rank 255 (pod 15) loaded c/x (step 19)")


@pytest.mark.parametrize(
    "start", [1, "x", [], {}, {"rank": 0, "peers": "a"}, {**report(0, "/c", 1)["start"], "step": None}]
)
def test_what_a_rank_tells_that_is_no_start_is_left_out(start: Any) -> None:
    told = load("dso_starts").starts_of([{"start": start}, {"world": 2}, report(1, "/c/x", 20)])
    assert told == [["a 0 8", True, "c/x", 20, [1]]]


def test_of_what_a_pod_reports_no_more_is_kept_than_it_may_have() -> None:
    made = known()
    made.take({"starts": [["a" * 1000, True, "c" * 1000, 20, list(range(1000))]]}, "pod 0")
    ((peers, starts),) = made.peers.items()
    ((start, ranks),) = starts.items()
    assert (len(peers), len(start.path), len(ranks)) == (64, 81, 64)


STRANGERS: list[Any] = [
    *(None, [], "x", {"starts": 1}, {"starts": [[1]]}, {"starts": [["a", 1, "", "x", []]]}),
    *({"starts": [["a", 1, "", 0, []]]}, {"starts": [["a", 1, "", 0, 5]]}, {"starts": [["a", 1, "", 0, ["x"]]]}),
    *({"starts": [["a", 1, "", each, [0]]]} for each in (float("inf"), float("nan"))),
]


@pytest.mark.parametrize("told", STRANGERS)
def test_what_is_no_agents_report_changes_nothing(told: Any) -> None:
    made = known()
    made.take(told, "pod 0")
    assert (made.words, made.wrong, made.peers) == ("", False, {})
