"""`agent state` in a pod."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.unit.agent.harness import AGENT, Running

Make = Callable[..., Any]


def asked(pod: Running, **environment: str) -> subprocess.CompletedProcess[str]:
    etc = str(pod.gang.directory / "etc")
    given = {**os.environ, "DEEPSPEED_OPERATOR_DIR": etc, "DEEPSPEED_OPERATOR_INDEX": str(pod.index), **environment}
    command = [sys.executable, "-S", str(AGENT), "state"]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False)


def test_the_agent_of_a_pod_tells_its_state_to_who_may_run_commands_there(gang: Make) -> None:
    pod = gang(script="import time; print('ready', flush=True); time.sleep(60)").start()
    pod.wait_for_output("ready")
    state = json.loads(asked(pod).stdout)
    assert (state["index"], state["phase"], [rank["rank"] for rank in state["ranks"]]) == (0, "Running", [0])


def test_an_agent_that_does_not_answer_is_no_traceback(gang: Make) -> None:
    pod = gang().start()
    pod.end()
    answer = asked(pod)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("the agent does not answer: ")
