"""The ranks' first steps are measured beside the user's program, of which nothing is changed or dropped."""

import json
import math
import re
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.agent.harness import AGENT, NO_RESTARTS, PRINT_ENVIRONMENT, Gang, interpreters, load

Make = Callable[..., Gang]
MEASURE = {"measure": True}
# Of DeepSpeed what the hook touches; what it does with the real one is in tests/oracle and tests/e2e.
DEEPSPEED = """\
import time
from types import SimpleNamespace
class Engine:
    def __init__(self, basic_optimizer):
        self.basic_optimizer, self.device = basic_optimizer, SimpleNamespace(type="cpu")
    def train_micro_batch_size_per_gpu(self): return 8
    def gradient_accumulation_steps(self): return 1
    def zero_optimization_stage(self): return 2
    def bfloat16_enabled(self): return True
    def fp16_enabled(self): return False
    def _take_model_step(self, lr_kwargs):
        time.sleep(0.02)
        return lr_kwargs
def initialize(optimizer=None):
    return Engine(optimizer), None, None, None
"""
TRAIN = """\
import importlib.util, time
assert importlib.util.find_spec("deepspeed"), "as frameworks look for it before they import it"
import deepspeed
reference, *_ = deepspeed.initialize()
engine, *_ = deepspeed.initialize(optimizer=object())
begun = time.monotonic()
for step in range(25):
    assert engine._take_model_step(step) == step
assert "_take_model_step" not in vars(engine) and "_take_model_step" not in vars(reference)
print("trained in", time.monotonic() - begun, flush=True)
"""
STAY = """
import os
while not os.path.exists({until!r}):
    time.sleep(0.02)
"""


def installed(directory: Path, **modules: str) -> str:
    """Write modules into a directory for PYTHONPATH, and return it."""
    directory.mkdir(parents=True)
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    return str(directory)


@pytest.mark.parametrize("python", interpreters())
def test_rank_0s_agent_tells_what_20_steps_took_on_every_python(gang: Make, tmp_path: Path, python: str) -> None:
    users = installed(tmp_path / "users", deepspeed=DEEPSPEED)
    over = tmp_path / "over"
    made = gang(nodes=2, script=TRAIN + STAY.format(until=str(over)), launch=MEASURE, python=python)
    first, second = (made.start(index, PYTHONPATH=users) for index in range(2))
    first.wait_for(lambda: first.ask("/readyz") == 200 and first.get("/state")[1]["measured"])
    measured = first.get("/state")[1]["measured"]
    assert (measured["steps"], measured["allReduce"]) == (20, None)
    assert [measured[name] for name in ("microBatch", "accumulation", "stage", "precision")] == [8, 1, 2, "bf16"]
    first.wait_for_output("trained in")
    trained = float(re.findall(r"trained in (\S+)", first.output)[0])
    assert 0.02 <= measured["stepSeconds"] <= trained / 15, "those of steps 6 to 20"
    assert second.get("/state")[1]["measured"] is None
    over.touch()
    ended = [running.end() for running in (first, second)]
    assert [each.code for each in ended] == [0, 0], ended[0].output
    assert ended[0].cause["measured"] == measured
    assert "measured" not in ended[1].cause


@pytest.mark.parametrize(("users", "whole"), [(None, "{ours}"), ("/a:/b", "/a:/b:{ours}"), ("/a:", "/a::{ours}")])
def test_the_hook_comes_behind_the_users_path_and_is_taken_away(gang: Make, users: str | None, whole: str) -> None:
    given = {"PYTHONPATH": users} if users is not None else {}
    (ended,) = gang(script=PRINT_ENVIRONMENT, launch=MEASURE).run(**given)
    (env,) = ended.environments
    ours = env["PYTHONPATH"].rpartition(":")[2]
    assert env["PYTHONPATH"] == whole.format(ours=ours)
    assert not Path(ours).exists()


def test_without_a_plan_nothing_is_measured(gang: Make, tmp_path: Path) -> None:
    users = installed(tmp_path / "users", deepspeed=DEEPSPEED)
    (ended,) = gang(script=TRAIN).run(PYTHONPATH=users)
    assert (ended.code, "measured" in ended.cause) == (0, False), ended.output


def test_a_directory_that_cannot_be_made_is_no_reason_not_to_train(gang: Make) -> None:
    (ended,) = gang(launch=MEASURE).run(TMPDIR="/proc/none")
    assert (ended.code, "trained" in ended.output) == (0, True), ended.output


def test_a_sitecustomize_of_the_users_comes_instead(gang: Make, tmp_path: Path) -> None:
    users = installed(tmp_path / "users", deepspeed=DEEPSPEED, sitecustomize="print('the users')")
    (ended,) = gang(script=TRAIN, launch=MEASURE).run(PYTHONPATH=users)
    assert ended.code == 0, ended.output
    assert ended.output.count("the users") == 1, "the rank's process alone"
    done = {"protocol": 3, "reason": "Completed", "round": 1, "deepspeed": None}
    assert ended.cause == {**done, "stepped": None, "rounds": NO_RESTARTS}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs a program with the hook first on its path; returns what it prints."""
    hook = installed(tmp_path / "hook", sitecustomize=(AGENT / "dso_hook.py").read_text())
    (tmp_path / "hook/measure").touch()
    said = f"import sys; print('others', sys.path.count({hook!r}), sys.modules['sitecustomize'].__file__)"
    others = installed(tmp_path / "others", sitecustomize=said)

    def running(program: str, deepspeed: str = DEEPSPEED, rank: str = "0", **more: str) -> str:
        users = installed(tmp_path / f"users-{len(list(tmp_path.iterdir()))}", deepspeed=deepspeed)
        env = {"PYTHONPATH": f"{hook}:{others}:{users}", "RANK": rank, **more}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout + ("measured" if (tmp_path / "hook/measured.json").exists() else "")

    return running


def test_a_rank_that_takes_its_first_step_tells_what_it_has_imported_and_with_which_variables(
    run: Callable[..., str], tmp_path: Path
) -> None:
    watch_imports(tmp_path)
    program = "import os, csv\nos.environ['HF_HOME'] = '/models'\nimport html\n" + TRAIN
    run(program, rank="0", LOCAL_RANK="0", WORLD_SIZE="1")
    told = json.loads((tmp_path / "hook/imports.json").read_text())
    order = [name for name in told["modules"] if name in ("csv", "html", "html.entities", "deepspeed", "__main__")]
    assert order == ["csv", "html", "html.entities", "deepspeed"]
    assert "csv" not in told["changed"]
    assert told["changed"]["html"] == {"HF_HOME": zlib.crc32(b"/models")}


def test_nothing_is_told_of_imports_by_what_is_no_rank_or_where_nobody_asks(
    run: Callable[..., str], tmp_path: Path
) -> None:
    run(TRAIN, rank="0", LOCAL_RANK="0", WORLD_SIZE="1")
    assert not (tmp_path / "hook/imports.json").exists()
    watch_imports(tmp_path)
    run(TRAIN, rank="0")
    assert not (tmp_path / "hook/imports.json").exists()


def test_a_program_finds_no_module_that_watches_its_imports(run: Callable[..., str], tmp_path: Path) -> None:
    watch_imports(tmp_path)
    said = run("import sys; print('dso_imports' in sys.modules)", LOCAL_RANK="0", WORLD_SIZE="1")
    assert said.splitlines()[-1] == "False"


def watch_imports(tmp_path: Path) -> None:
    shutil.copy(AGENT / "dso_imports.py", tmp_path / "hook")


def test_the_next_sitecustomize_is_loaded_as_if_the_hook_were_not_there(run: Callable[..., str]) -> None:
    said = run("import sitecustomize; print(sitecustomize.__file__)").splitlines()
    assert said[0].startswith("others 0 ")
    assert said[0].endswith("others/sitecustomize.py")
    assert said[1].endswith("others/sitecustomize.py")


def test_what_is_no_rank_is_not_measured(run: Callable[..., str]) -> None:
    said = run(TRAIN, rank="")
    assert "trained" in said
    assert "measured" not in said


def test_the_hook_brings_no_module_that_a_user_may_have_too(tmp_path: Path) -> None:
    hook = installed(tmp_path / "hook", sitecustomize=(AGENT / "dso_hook.py").read_text())
    command = [sys.executable, "-c", "import importlib.machinery, sys; print(*sys.modules)"]
    hooked, plain = (
        set(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split())
        for env in ({"PYTHONPATH": hook}, {})
    )
    assert hooked - plain <= {"sitecustomize", "__future__"}


def test_only_rank_0_writes(run: Callable[..., str]) -> None:
    said = run(TRAIN, rank="1")
    assert "trained" in said
    assert "measured" not in said


def test_where_two_engines_train_neither_is_measured(run: Callable[..., str]) -> None:
    said = run(TRAIN.replace("initialize()", "initialize(optimizer=1)"))
    assert "trained" in said
    assert "measured" not in said


@pytest.mark.parametrize(
    "defect",
    ["self.device = ", "def _take_model_step"],
    ids=["an engine without a device", "an engine without the method"],
)
def test_another_deepspeed_is_not_measured_and_trains(run: Callable[..., str], defect: str) -> None:
    deepspeed = DEEPSPEED.replace(defect, defect.replace("device", "other").replace("_take", "_other"))
    program = "import deepspeed\nengine, *_ = deepspeed.initialize(optimizer=1)\n"
    program += "step = getattr(engine, '_take_model_step', None) or engine._other_model_step\n"
    said = run(program + "for number in range(25): step(number)\nprint('trained')", deepspeed)
    assert "trained" in said
    assert "measured" not in said


class Store:
    """torch.distributed's store of one process for all ranks."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.changed = threading.Condition()

    def add(self, key: str, amount: int) -> int:
        with self.changed:
            self.values[key] = self.values.get(key, 0) + amount
            return self.values[key]

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def wait(self, keys: list[str], timeout: Any) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: all(key in self.values for key in keys), timeout.total_seconds()):
                raise RuntimeError("timeout")

    def get(self, key: str) -> bytes:
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, 60)
            return self.values[key]


@pytest.mark.parametrize(
    ("patience", "delays", "agreed"),
    [
        (60, [0.0, 0.0, 0.1], True),
        (0.3, [0.0, 0.1, None], False),
        (0.3, [0.0, 0.0, math.inf], False),
        (0.3, [0.0, 0.2, 0.3], None),
    ],
    ids=["all come", "one never comes", "one comes late", "one comes as another loses patience"],
)
def test_ranks_agree_whether_all_have_come(
    monkeypatch: pytest.MonkeyPatch, patience: float, delays: list[float | None], agreed: bool | None
) -> None:
    hook, store = load("dso_hook"), Store()
    monkeypatch.setattr(hook, "PATIENCE_SECONDS", patience)

    def prefixed(_: str, store: Store) -> Store:
        return store

    dist = SimpleNamespace(PrefixStore=prefixed, get_world_size=lambda: len(delays))
    answers: list[bool] = []

    def rank(delay: float) -> None:
        if delay == math.inf:
            store.get("all")  # it comes once the others have decided
        else:
            time.sleep(delay)
        answers.append(hook.all_are_here(dist, store))

    threads = [threading.Thread(target=rank, args=(delay,)) for delay in delays if delay is not None]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1
    assert agreed is None or answers[0] is agreed
