"""What the agents do with the launch document of a job that is debugged: the operator writes it, they wait."""

import json
import signal
from collections.abc import Callable
from typing import Any

from tests.unit.agent.harness import Gang
from tests.unit.render.test_attempt import attempt_of

Make = Callable[..., Gang]


def launch(**training: Any) -> dict[str, Any]:
    """Return what the document says of the program."""
    given = {"script": "train.py", "args": ["--epochs", "3"], "debug": True, **training}
    lifecycle = {"progressDeadlineSeconds": 60, "hang": "Restart"}
    written = attempt_of(nodes=2, training=given, lifecycle=lifecycle).config_map()["data"]["launch.json"]
    document = json.loads(written)
    assert document["hang"]["progressSeconds"] is None, "who debugs takes no step for as long as he likes"
    return {name: document[name] for name in ("launcher", "program", "args", "hang", "measure")}


def test_pods_are_ready_and_run_nothing_until_they_are_told_to_end(gang: Make) -> None:
    pods = gang(nodes=2, script="print('started', flush=True)", launch=launch()).start_all()
    for pod in pods:
        pod.wait_until_ready()
    pods[0].signal(signal.SIGTERM)
    ended = [pod.end() for pod in pods]
    assert ended[0].code == 143
    assert not any("started" in each.output for each in ended)


def test_the_launcher_and_the_program_are_those_of_later() -> None:
    assert launch(launcher="DeepSpeed") == launch()
