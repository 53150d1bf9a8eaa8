"""What the agents in a job's pods answer, run as commands in the pods: who may exec there needs no more than that."""

import json
from collections.abc import Mapping
from typing import Any

from deepspeed_operator.api.names import AGENT
from deepspeed_operator.cli.kubectl import ClusterError, Kubectl


def asked(cluster: Kubectl, pod: str, question: str) -> str:
    """Return what `agent QUESTION` prints in the pod; raises ClusterError."""
    container, command = agent_of(cluster, pod)
    return cluster.output("exec", pod, f"--container={container}", "--", *command, question)


def agent_of(cluster: Kubectl, pod: str) -> tuple[str, list[str]]:
    """Return the trainer's container, and how its interpreter runs the agent: as the pod does. Raises ClusterError."""
    spec: Mapping[str, Any] = json.loads(cluster.output("get", "pod", pod, "-o=json"))["spec"]
    for container in spec["containers"]:
        words = [*container.get("command", []), *container.get("args", [])]
        if AGENT in words:
            end = words.index(AGENT)
            begin = max((at for at in range(end) if not words[at].startswith("-")), default=0)
            return container["name"], words[begin : end + 1]
    raise ClusterError("none of its containers runs the agent")
