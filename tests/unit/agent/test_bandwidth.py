"""The bandwidth preflight: measured by the ranks' own interpreter before they start, told, and enforced.

Here torch is one whose all-reduce takes the time that 4 GB/s need; tests/oracle measures with the real one.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import Gang, Running

Make = Callable[..., Gang]
TORCH = """
import os, time
float64 = "float64"
device = str
class cuda:
    is_available = staticmethod(lambda: False)
class Tensor:
    is_cuda = False
    def __init__(self, values): self.values, self.device = values, "cpu"
    def item(self): return self.values[0]
def zeros(number, device): return Tensor([number])
def tensor(values, dtype, device): return Tensor(values)
"""
DISTRIBUTED = """
import os, time
spent = 0.0  # a clock of its own: the machine may be busy
time.perf_counter = lambda: spent
class ReduceOp: MAX = "max"
def init_process_group(backend, timeout):
    assert backend == "gloo"
    open(os.environ["PORTS"], "a").write(os.environ["MASTER_PORT"] + "\\n")
    if os.environ.get("BREAK") == os.environ["RANK"]: raise RuntimeError("no interface eth7")
def get_rank(): return int(os.environ["RANK"])
def all_reduce(data, op=None):
    global spent
    if op is None: spent += data.values[0] * 4 / 4e9
"""


@pytest.fixture
def torch(tmp_path: Path) -> dict[str, str]:
    """The environment in which the ranks find that torch."""
    package = tmp_path / "packages/torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TORCH)
    (package / "distributed.py").write_text(DISTRIBUTED)
    return {"PYTHONPATH": str(package.parent), "PORTS": str(tmp_path / "ports")}


def bandwidth(running: Running) -> int:
    return running.get("/state")[1]["transport"].get("busBandwidth", 0) if running.ask("/livez") else 0


def test_what_is_measured_is_told_before_the_ranks_train(gang: Make, torch: dict[str, str], tmp_path: Path) -> None:
    script = "import os, time; print('trains on', os.environ['MASTER_PORT'], flush=True); time.sleep(60)"
    first, second = gang(nodes=2, script=script, launch={"preflightBandwidth": 3_000_000_000}).start_all(**torch)
    for running in (first, second):
        running.wait_until_ready()
    # 2(n-1)/n of two ranks is 1: the bytes of an all-reduce by its time.
    assert bandwidth(first) == pytest.approx(4e9)
    assert "gloo all-reduce of 64 MiB: 4.000 GB/s" in first.output
    assert "all-reduce of" not in second.output
    first.wait_for_output("trains on 29500")
    assert set((tmp_path / "ports").read_text().split()) == {"24444"}, (
        "the port that is reserved for it: ranks that start early have another"
    )


def test_a_network_below_the_minimum_fails_the_run_with_the_numbers(gang: Make, torch: dict[str, str]) -> None:
    ended = gang(nodes=2, launch={"preflightBandwidth": 100_000_000_000}).run(**torch)
    for each in ended:
        assert each.cause["reason"] == "PreflightFailed"
        assert "minimumBusBandwidth asks for 100.000 GB/s; an all-reduce of 2 ranks" in each.cause["signature"]
        assert "over gloo reaches 4.000 GB/s" in each.cause["signature"]
        assert "trained" not in each.output
    assert ended[0].cause["transport"]["busBandwidth"] == pytest.approx(4e9)


def test_a_measurement_that_breaks_says_why(gang: Make, torch: dict[str, str]) -> None:
    ended = gang(nodes=2, launch={"preflightBandwidth": 0}).run(**torch, BREAK="1")
    for each in ended:
        assert (each.cause["reason"], each.cause["rank"], each.cause["index"]) == ("PreflightFailed", 1, 1)
        assert "RuntimeError: no interface eth7" in each.cause["signature"]
    assert "no interface eth7" in ended[1].log_tail


@pytest.mark.parametrize("launcher", ["None", "Ranks"])
def test_every_rank_takes_part_whoever_starts_them_later(gang: Make, torch: dict[str, str], launcher: str) -> None:
    program = {"kind": "command", "value": ["sh", "-c", "echo trained"]}
    launch: dict[str, Any] = {"preflightBandwidth": 0, "launcher": launcher, "program": program}
    made = gang(slots=2, launch=launch)
    (ended,) = made.run(**torch)
    assert ended.code == 0, ended.output
    assert len(Path(torch["PORTS"]).read_text().split()) == 2
    assert ended.output.count("trained") == (1 if launcher == "None" else 2)


def test_one_rank_has_no_network(gang: Make) -> None:
    (ended,) = gang(launch={"preflightBandwidth": 1}).run()
    assert ended.code == 0
    assert "one rank has no network to measure" in ended.output
    assert "busBandwidth" not in json.dumps(ended.cause)


def test_a_stop_from_outside_ends_the_measurement(gang: Make, torch: dict[str, str]) -> None:
    slow = Path(torch["PYTHONPATH"]) / "torch/distributed.py"
    slow.write_text(DISTRIBUTED.replace("    global spent", "    time.sleep(60)\n    global spent"))
    (running,) = gang(slots=2, launch={"preflightBandwidth": 0, "terminationGraceSeconds": 6}).start_all(**torch)
    running.wait_for(lambda: Path(torch["PORTS"]).exists())
    running.signal(15)
    ended = running.end()
    assert ended.cause["reason"] == "Terminated"
