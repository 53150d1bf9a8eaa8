"""What the agents in a job's pods answer, run as commands in the pods: who may exec there needs no more than that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepspeed_operator.api.names import AGENT, LABEL_ATTEMPT, LABEL_INDEX, LABEL_REPLACEMENT
from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.cli.kubectl import ClusterError, Kubectl


@dataclass(frozen=True, slots=True)
class AgentPod:
    """A pod, the trainer's container, and how its interpreter runs the agent: as the pod does."""

    name: str
    index: int
    container: str
    command: tuple[str, ...]

    def asked(self, cluster: Kubectl, question: str) -> str:
        """Return what `agent QUESTION` prints in the pod; raises ClusterError."""
        return cluster.output("exec", self.name, f"--container={self.container}", "--", *self.command, question)


def agent_pods(cluster: Kubectl, job: JobView) -> list[AgentPod]:
    """Return the pods of the job's attempt in order, without those that were replaced; raises ClusterError."""
    newest: dict[int, tuple[int, AgentPod]] = {}
    for body in cluster.pods_of(job):
        labels: Mapping[str, str] = body["metadata"]["labels"]
        if labels[LABEL_ATTEMPT] != str(job.attempt):
            continue
        index, number = int(labels[LABEL_INDEX]), int(labels.get(LABEL_REPLACEMENT, 0))
        if index not in newest or newest[index][0] < number:
            newest[index] = number, _agent_pod(body, index)
    return [pod for _, (_, pod) in sorted(newest.items())]


def _agent_pod(body: Mapping[str, Any], index: int) -> AgentPod:
    for container in body["spec"]["containers"]:
        words = [*container.get("command", []), *container.get("args", [])]
        if AGENT in words:
            end = words.index(AGENT)
            begin = max((at for at in range(end) if not words[at].startswith("-")), default=0)
            return AgentPod(body["metadata"]["name"], index, container["name"], tuple(words[begin : end + 1]))
    raise ClusterError(f"{body['metadata']['name']}: none of its containers runs the agent")
