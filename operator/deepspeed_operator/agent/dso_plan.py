"""What this pod was asked to run: plan.json, the hostfile, and who this pod is."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Mapping, NamedTuple

PROTOCOL = 1
Cause = Mapping[str, Any]

# Overridden only by tests, which run several agents on one machine.
DIRECTORY = os.environ.get("DEEPSPEED_OPERATOR_DIR", "/etc/deepspeed-operator")
FILES = os.environ.get("DEEPSPEED_OPERATOR_FILES", "/etc/deepspeed-operator-files")
WORKSPACE = os.environ.get("DEEPSPEED_OPERATOR_WORKSPACE", "/workspace")
TERMINATION_LOG = os.environ.get("DEEPSPEED_OPERATOR_TERMINATION_LOG", "/dev/termination-log")

HOSTFILE = os.path.join(DIRECTORY, "hostfile")
DS_CONFIG = os.path.join(DIRECTORY, "ds_config.json")


class Plan(NamedTuple):
    job: str
    uid: str
    attempt: int
    generation: int
    nodes: int
    slots: int
    launcher: str
    kind: str
    value: list[str]
    args: list[str]
    python: str
    config: str | None
    integration: str
    files: bool
    deepspeed: str | None
    agent_port: int
    master_port: int
    deadline: float
    grace: float
    fence: float
    hosts: list[str]
    slots_of: list[int]
    index: int
    pod: str
    pod_uid: str
    node: str

    @property
    def beat(self) -> float:
        """Seconds that rank 0's agent holds a call: with many nodes longer, so that its load stays level."""
        return min(5.0, max(1.0, self.nodes / 500))

    def pod_of(self, index: int) -> str:
        return self.hosts[index].split(".")[0] if index != self.index else self.pod

    def cause(self, reason: str, signature: str, index: int | None = None, **more: Any) -> dict[str, Any]:
        """Why the gang ends: the object that every pod's termination message carries."""
        index = self.index if index is None else index
        return {
            "protocol": PROTOCOL,
            "reason": reason,
            "rank": None,
            "exitCode": None,
            "signal": None,
            "signature": signature[:300],
            "index": index,
            "pod": self.pod_of(index),
            "node": self.node if index == self.index else None,
            "deepspeed": None,
            "generation": self.generation,
            **more,
        }


class Failure(Exception):
    """Ends the run, with the cause that is told to the peers and to the operator."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause["signature"])
        self.cause = cause


def read_hostfile(text: str) -> tuple[list[str], list[int]]:
    entries = re.findall(r"^\s*([^\s#]\S*)\s+slots=(\d+)", text, re.MULTILINE)
    return [host for host, _ in entries], [int(slots) for _, slots in entries]


def load() -> Plan:
    with open(os.path.join(DIRECTORY, "plan.json"), encoding="utf-8") as file:
        raw = json.load(file)
    with open(HOSTFILE, encoding="utf-8") as file:
        hosts, slots_of = read_hostfile(file.read())
    if raw["protocol"] != PROTOCOL:
        raise ValueError(f"plan.json speaks protocol {raw['protocol']}, this agent {PROTOCOL}")
    environ = os.environ
    index = int(environ["DEEPSPEED_OPERATOR_INDEX"])
    return Plan(
        job=raw["job"],
        uid=raw["uid"],
        attempt=raw["attempt"],
        generation=raw.get("generation", 1),
        nodes=raw["nodes"],
        slots=raw["slotsPerNode"],
        launcher=raw["launcher"],
        kind=raw["program"]["kind"],
        value=raw["program"]["value"],
        args=raw["args"],
        python=raw["python"],
        config=raw["configPath"],
        integration=raw["integration"],
        files=raw["files"],
        deepspeed=raw["deepspeedVersion"],
        agent_port=raw["agentPort"],
        master_port=raw["masterPort"],
        deadline=raw["startupDeadlineSeconds"],
        grace=raw["terminationGraceSeconds"],
        fence=raw.get("fenceSeconds", 20),
        hosts=hosts,
        slots_of=slots_of,
        index=index,
        pod=environ.get("DEEPSPEED_OPERATOR_POD") or hosts[index].split(".")[0],
        pod_uid=environ.get("DEEPSPEED_OPERATOR_POD_UID", ""),
        node=environ.get("DEEPSPEED_OPERATOR_NODE", ""),
    )


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Kubernetes' rules: $(NAME) is the variable, $$ is a dollar sign, an unknown name stays as written."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)
