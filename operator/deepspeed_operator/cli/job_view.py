"""What the commands say of a DeepSpeedJob in a cluster, read from its status.

The models of api/ are not used: an operator of another version may have written it, and they take a second to import.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

FINISHED: Final = frozenset({"Complete", "Failed"})
_WAITING: Final = "Pending"
_ENDED: Final = "Ended"


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt that has ended."""

    number: int
    run_id: str
    start: str
    running: str | None
    end: str
    outcome: str
    reason: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as its status tells of it; times are as Kubernetes writes them (RFC 3339, UTC)."""

    name: str
    namespace: str
    uid: str
    run_id: str  # the one that spec asks for
    suspended: bool  # by spec
    current: bool  # whether status is about the spec as it is now
    state: str  # Pending where the operator has not said anything yet
    refused: bool  # what spec asks for, whatever becomes of a run that was accepted before
    reason: str
    message: str
    attempt: int
    phase: str | None
    run_start: str | None
    attempt_start: str | None
    running_since: str | None
    nodes: int
    slots: int
    restarts: int
    progress: Mapping[str, Any]
    failure: Mapping[str, Any]
    goodput: Mapping[str, Any]
    attempts: tuple[AttemptView, ...]
    errors: tuple[str, ...]

    @property
    def finished(self) -> bool:
        """Whether what spec asks for has come to its end."""
        return self.current and not self.refused and self.state in FINISHED

    @property
    def over(self) -> bool:
        """Whether no rank runs, nor will: a run goes on where spec asks for another one, which was refused."""
        return self.finished or (self.refused and self.phase in {None, _ENDED})

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "JobView":
        metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        attempt, run = status.get("attempt", {}), status.get("run", {})
        told = conditions.get("Ready", {})  # it has the words for the whole job
        holds = {kind for kind, each in conditions.items() if each["status"] == "True"}
        return cls(
            name=metadata["name"],
            namespace=metadata.get("namespace", ""),
            uid=metadata["uid"],
            run_id=spec.get("runId", ""),
            suspended=spec.get("suspend", False),
            current=status.get("observedGeneration") == metadata["generation"],
            state=status.get("state", _WAITING),
            refused="Stalled" in holds and "Accepted" not in holds,
            reason=told.get("reason", ""),
            message=told.get("message", ""),
            attempt=attempt.get("number", 0),
            phase=attempt.get("phase"),
            run_start=run.get("startTime"),
            attempt_start=attempt.get("startTime"),
            running_since=attempt.get("runningTime"),
            nodes=spec.get("nodes", 1),
            slots=run.get("world", {}).get("slotsPerNode", 1),
            restarts=status.get("restarts") or 0,
            progress=status.get("progress", {}),
            failure=status.get("failure", {}),
            goodput=status.get("goodput", {}),
            attempts=tuple(_attempt(each) for each in status.get("attempts", [])),
            errors=tuple(_finding(each) for each in status.get("findings", []) if each["level"] == "error"),
        )


def _attempt(ended: Mapping[str, Any]) -> AttemptView:
    return AttemptView(
        number=ended["number"],
        run_id=ended.get("runId", ""),
        start=ended["startTime"],
        running=ended.get("runningTime"),
        end=ended["endTime"],
        outcome=ended["outcome"],
        reason=ended.get("reason"),
        message=ended.get("message"),
    )


def _finding(finding: Mapping[str, Any]) -> str:
    fix = f" Fix: {finding['fix']}" if finding.get("fix") else ""
    return f"{finding['path']}: {finding['message']}{fix}"
