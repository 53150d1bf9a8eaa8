"""Programs and their libraries tell rank 0's agent how far they are, and lose nothing by it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.harness import PRINT_ENVIRONMENT, Gang, Running, failure_policy, interpreters, launch_of, load

Make = Callable[..., Gang]

# As transformers' KubeflowCallback does it (5.4 to 5.24), then what a stranger would try.
POST = """\
import json, os, stat, time, urllib.error, urllib.request
url, path = os.environ["KUBEFLOW_TRAINER_SERVER_URL"], os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]
token = open(path, encoding="utf-8").read().strip()
def post(body, url=url, token=token):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, time.monotonic() - begun
    except urllib.error.HTTPError as error:
        return error.code, time.monotonic() - begun
def status(**metrics):
    said = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    return json.dumps({"trainerStatus": {"lastUpdatedTime": "x", "progressPercentage": 50, "metrics": said}}).encode()
print("mode", oct(stat.S_IMODE(os.stat(path).st_mode)), flush=True)
begin = post(status(total_steps=1000))
step = post(status(loss="0.31", learning_rate="1e-05", grad_norm="nan", current_step=500, total_steps=1000))
end = post(status(loss="nan"))
print("stored", begin[0], step[0], end[0], flush=True)
others = [post(status(), url=url + "/x"), post(status(), token="x"), post(b"{}"), post(b"[1]"), post(b"x" * 70000)]
print("others", *(code for code, _ in others), flush=True)
time.sleep(60)
"""


def progress_of(running: Running) -> dict[str, Any] | None:
    return running.get("/state")[1]["progress"] if running.ask("/livez") == 200 else None


@pytest.mark.parametrize("python", interpreters())
def test_the_callback_of_transformers_is_heard_on_every_python(gang: Make, python: str) -> None:
    running = gang(script=POST, python=python).start()
    running.wait_for_output("others")
    assert "mode 0o600" in running.output
    assert "stored 200 200 200" in running.output
    assert "others 404 403 400 400 400" in running.output
    state = progress_of(running)
    assert state is not None
    assert (state["source"], state["step"], state["totalSteps"]) == ("KubeflowCallback", 500, 1000)
    assert (state["loss"], state["learningRate"]) == ("nan", 1e-05)


def test_the_callback_is_answered_within_milliseconds(gang: Make) -> None:
    fastest = 'print("fastest", min(post(status(current_step=step))[1] for step in range(501, 521)))'
    script = POST.replace('print("stored"', f'{fastest}\nprint("stored"')
    running = gang(script=script).start()
    running.wait_for_output("stored")
    assert float(running.output.split("fastest ")[1].split()[0]) < 0.03, "Nagle's or a polling server would show"


def environment_of(gang: Make, **given: str) -> list[dict[str, str]]:
    (ended,) = gang(slots=2, script=PRINT_ENVIRONMENT).run(**given)
    return sorted(ended.environments, key=lambda each: each["RANK"])


def test_rank_0_alone_is_offered_both_ways(gang: Make) -> None:
    first, second = environment_of(gang)
    assert first["KUBEFLOW_TRAINER_SERVER_URL"].startswith("http://127.0.0.1:")
    assert first["DEEPSPEED_OPERATOR_PROGRESS"].endswith("/progress.jsonl")
    assert "KUBEFLOW_TRAINER_SERVER_URL" not in second
    assert second["DEEPSPEED_OPERATOR_PROGRESS"] == "/dev/null"


@pytest.mark.parametrize("name", ["KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN"])
def test_what_the_container_has_of_it_stays_alone(gang: Make, name: str) -> None:
    first, _ = environment_of(gang, **{name: "theirs"})
    assert {key: value for key, value in first.items() if key.startswith("KUBEFLOW")} == {name: "theirs"}


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        ({"http_proxy": "http://proxy:3128"}, False),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": ".local, 127.0.0.1"}, True),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "*"}, True),
        ({"https_proxy": "http://proxy:3128"}, True),
    ],
)
def test_a_proxy_that_would_hold_up_each_call_is_none_for_the_callback(
    gang: Make, given: dict[str, str], offered: bool
) -> None:
    first, _ = environment_of(gang, **given)
    assert ("KUBEFLOW_TRAINER_SERVER_URL" in first) is offered


TELL = """\
import json, os, time
for step in range(1, 4):
    with open(os.environ.get("DEEPSPEED_OPERATOR_PROGRESS", os.devnull), "a") as file:
        print(json.dumps({"step": step, "totalSteps": 10, "loss": float("nan"), "tokensPerSecond": 1e6}), file=file)
"""


def test_a_program_of_its_own_tells_it_in_two_lines(gang: Make) -> None:
    running = gang(slots=2, script=TELL + "print('told')\ntime.sleep(60)").start()
    running.wait_for(lambda: (progress_of(running) or {"step": 0})["step"] == 3)
    state = progress_of(running)
    assert state is not None
    assert (state["source"], state["totalSteps"], state["loss"], state["tokensPerSecond"]) == ("Script", 10, "nan", 1e6)


def test_what_it_has_told_last_stays_in_the_last_words(gang: Make) -> None:
    ended = gang(slots=2, nodes=2, script=TELL).run()
    told = [each.cause.get("progress", {}) for each in ended]
    assert (told[0]["source"], told[0]["step"], told[0]["totalSteps"], told[1]) == ("Script", 3, 10, {})


def test_a_shell_tells_it_too_and_other_lines_are_left(gang: Make) -> None:
    script = """exec 3>> $DEEPSPEED_OPERATOR_PROGRESS
    echo '{"step": 5}' >&3; echo 'no object' >&3; echo '[1]' >&3; printf '{"step": 7}\\n{"step"' >&3; sleep 60"""
    launch = {"program": {"kind": "command", "value": ["sh", "-c", script]}}
    running = gang(script=None, launch=launch).start()
    running.wait_for(lambda: (progress_of(running) or {"step": 0})["step"] == 7)


def test_a_file_of_any_length_is_read_and_does_not_grow(tmp_path: Path) -> None:
    module, progress = load("dso_progressinput"), load("dso_progress").Progress(list)
    source = module.ProgressInput(launch_of(1), str(tmp_path))
    path = tmp_path / "progress.jsonl"
    for step in range(1, 30000):
        with path.open("a") as file:
            file.write(f'{{"step": {step}, "totalSteps": 30000}}\n' + ("x" * 70000 + "\n" if step == 5 else ""))
        if step % 500 == 0:
            source.look(progress)
    for _ in range(40):
        source.look(progress)
    assert progress.state(1e9)["step"] == 29999
    assert path.stat().st_size < module.LARGEST
    path.write_text('{"step": 1, "totalSteps": 2}\n')
    source.look(progress)
    assert progress.state(1e9)["step"] == 1
    path.unlink()
    source.look(progress)


# Of DeepSpeed what the hook touches.
DEEPSPEED = """\
import time
class DeepSpeedEngine:
    def __init__(self):
        self.basic_optimizer = self.client_optimizer = self.optimizer = self
        self.param_groups, self.global_steps = [{"lr": 0.001}], 500
    def train_batch_size(self): return 8
    def train(self, mode=True): return self
    def eval(self): return self.train(False)
    def save_checkpoint(self, directory): time.sleep(directory)
    def _take_model_step(self, lr_kwargs=None): self.global_steps += 1
def initialize(): return DeepSpeedEngine(), None, None, None
"""
TRAIN = """\
import os, time
import deepspeed
print("begins", flush=True)
while os.environ["RANK"] == "1" and not os.path.exists("rank 0 has made its last step"):
    time.sleep(0.01)
engine, *_ = deepspeed.initialize()
held = vars(engine).keys() & {"train", "eval", "save_checkpoint"}
assert not held, "an engine that holds itself keeps its memory"
for _ in range(20):
    engine.train()
    engine._take_model_step()
    time.sleep(0.01)
open("rank 0 has made its last step", "w").close()
%s
print("done", flush=True)
time.sleep(60)
"""


def running_engine(gang: Make, tmp_path: Path, then: str = "", **fields: Any) -> Running:
    (tmp_path / "users").mkdir()
    (tmp_path / "users/deepspeed.py").write_text(DEEPSPEED)
    return gang(script=TRAIN % then, **fields).start(PYTHONPATH=str(tmp_path / "users"))


def steps_of(running: Running) -> list[dict[str, Any]]:
    return running.get("/state")[1]["rankSteps"] if running.ask("/livez") == 200 else []


@pytest.mark.parametrize("python", interpreters())
def test_each_rank_tells_its_steps_on_every_python(gang: Make, tmp_path: Path, python: str) -> None:
    running = running_engine(gang, tmp_path, python=python, slots=2)
    running.wait_for(lambda: running.output.count("done") == 2)
    first, second = steps_of(running)
    assert [(each["rank"], each["step"], each["phase"]) for each in (first, second)] == [
        (0, 520, "Step"),
        (1, 520, "Step"),
    ]
    assert 0 <= second["secondsSinceStep"] < first["secondsSinceStep"]
    running.wait_for(lambda: (progress_of(running) or {"step": 0})["step"] == 520)
    state = progress_of(running)
    assert state is not None
    assert (state["source"], state["totalSteps"], state["learningRate"]) == ("DeepSpeedEngine", None, 0.001)
    assert 0.01 <= state["stepSeconds"]["median"] < 0.1


@pytest.mark.parametrize(
    ("then", "phase"),
    [
        ("print('done', flush=True); engine.save_checkpoint(60)", "Saving"),
        ("engine.eval(); print('done', flush=True); time.sleep(60)", "Evaluation"),
        ("engine.save_checkpoint(0)", "Step"),
        ("engine.eval(); engine.train()", "Step"),
        ("engine, *_ = deepspeed.initialize(); print('done', flush=True); time.sleep(60)", "Step"),
    ],
)
def test_what_a_rank_does_between_two_steps_is_told(gang: Make, tmp_path: Path, then: str, phase: str) -> None:
    running = running_engine(gang, tmp_path, then)
    running.wait_for_output("done")
    running.wait_for(lambda: [each["phase"] for each in steps_of(running)] == [phase])


def test_before_its_first_step_a_rank_is_in_its_first_step(gang: Make, tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users/deepspeed.py").write_text(DEEPSPEED)
    script = "import time, deepspeed\nengine, *_ = deepspeed.initialize()\ntime.sleep(60)"
    running = gang(script=script).start(PYTHONPATH=str(tmp_path / "users"))
    running.wait_for(lambda: bool(steps_of(running)))
    (told,) = steps_of(running)
    assert (told["phase"], told["step"], told["secondsSinceStep"]) == ("FirstStep", 500, None)


@pytest.mark.parametrize("measure", [False, True])
def test_the_first_step_is_seen_too_and_while_first_steps_are_measured(
    gang: Make, tmp_path: Path, measure: bool
) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users/deepspeed.py").write_text(DEEPSPEED)
    script = "import time, deepspeed\nengine, *_ = deepspeed.initialize()\nengine._take_model_step()\ntime.sleep(60)"
    running = gang(script=script, launch={"measure": measure}).start(PYTHONPATH=str(tmp_path / "users"))
    running.wait_for(lambda: [(each["step"], each["phase"]) for each in steps_of(running)] == [(501, "Step")])


def test_a_round_begins_without_the_steps_of_the_one_before(gang: Make, tmp_path: Path) -> None:
    then = "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os._exit(3)"
    running = running_engine(gang, tmp_path, then, launch={"failurePolicy": failure_policy()})
    running.wait_for_output("done")
    assert running.get("/state")[1]["round"] == 2
    running.wait_for(lambda: [each["step"] for each in steps_of(running)] == [520])


def test_the_records_of_ranks_leave_nothing_in_shared_memory(gang: Make, tmp_path: Path) -> None:
    # What this rank maps there, and no other test's.
    then = "print(*[line for line in open('/proc/self/maps') if '/dev/shm/deepspeed-operator-' in line], flush=True)"
    running = running_engine(gang, tmp_path, then + "; os._exit(0)")
    running.end()
    (record,) = {Path(word) for word in running.output.split() if word.startswith("/dev/shm/deepspeed-operator-")}
    assert not record.parent.exists()


def test_a_step_costs_microseconds(tmp_path: Path) -> None:
    records = load("dso_progressranks").RankRecords(f"/tmp/deepspeed-operator-{tmp_path.name}-{time.monotonic_ns()}")
    try:
        recorder = load("dso_progresshook").Recorder(records.directory, 0)
        namespace: dict[str, Any] = {}
        exec(DEEPSPEED, namespace)
        engine = namespace["DeepSpeedEngine"]()
        recorder.watch(engine)
        begun = time.process_time()
        for _ in range(10000):
            engine._take_model_step()
        assert time.process_time() - begun < 10, "a millisecond a step on a machine that has other things to do"
        (told,) = records.ranks()
        assert (told.step, told.taken, len(told.seconds)) == (10500, 10000, 64)
    finally:
        records.end()
