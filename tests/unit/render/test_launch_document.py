"""The launch document: the operator writes it and the agent reads it, two programs that share no code."""

import json
from typing import Any

from deepspeed_operator.job.ports import ports
from tests.unit.agent.harness import load
from tests.unit.render.test_attempt import attempt_of


class Read(dict[str, Any]):
    """A JSON object that notes which of its keys are asked for, also those that it does not have."""

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def launch_of(data: dict[str, str], index: int) -> tuple[Any, list[Read]]:
    """The agent's view of the document, and all JSON objects in it."""
    objects: list[Read] = []

    def noted(pairs: list[tuple[str, Any]]) -> Read:
        objects.append(Read(pairs))
        return objects[-1]

    document = json.loads(data["launch.json"], object_pairs_hook=noted)
    environment = {"DEEPSPEED_OPERATOR_INDEX": str(index)}
    return load("dso_launch").LaunchDocument(document, data["hostfile"], environment), objects


def test_the_agent_reads_every_key_and_no_other() -> None:
    launch, objects = launch_of(attempt_of(nodes=2).config_map()["data"], 1)
    assert (launch.index, launch.pod) == (1, "pretrain-1-1")
    of_policy = [launch.failure_policy, *launch.failure_policy.values(), *launch.failure_policy["rules"]]
    load("dso_hang").HangDetector(launch.hang)
    apart = [id(each) for each in (launch.environment, *of_policy)]
    written_and_read = [(set(each), each.asked) for each in objects if id(each) not in apart]
    assert len(written_and_read) == 5
    for written, read in written_and_read:
        assert written == read


def test_all_ports_of_the_agent_are_those_that_the_attempt_has_reserved() -> None:
    attempt = attempt_of(nodes=2)
    launch, _ = launch_of(attempt.config_map()["data"], 0)
    rounds = [launch.master_port(number) for number in range(1, 10)]
    assert rounds[-1] == rounds[0], "the first is free again by then"
    reserved = ports(attempt.job.metadata.uid, attempt.attempt)
    assert (launch.agent_port, launch.preflight_port, *rounds[:-1]) == reserved.all
