"""What rank 0's agent says of itself, as far as status can hold it: whoever reaches its port may be answering."""

import hashlib
import json
from datetime import datetime
from typing import Any, get_args

from deepspeed_operator.api.transport import Transport
from deepspeed_operator.api.untyped import list_at, object_at
from deepspeed_operator.plan.time.measured import Measured
from deepspeed_operator.reconcile.observe.checkpoints import checkpoint_of
from deepspeed_operator.reconcile.observe.messages import AgentProtocol, agent_message
from deepspeed_operator.reconcile.observe.observed import AgentReport
from deepspeed_operator.reconcile.observe.read_as import read_as
from deepspeed_operator.reconcile.observe.rounds import Rounds
from deepspeed_operator.reconcile.observe.told_hang import ToldHang, told_stragglers_of
from deepspeed_operator.reconcile.observe.told_progress import ToldProgress
from deepspeed_operator.reconcile.observe.told_wall_time import AgentWallTime
from deepspeed_operator.reconcile.runtime.observed_engine import world_of_agent

_MAX_VERSION = 64
_MAX_REFUSAL = 200


def report_of(state: Any, uid: str, attempt: int, read_at: datetime) -> AgentReport | None:
    """Return what an agent's /state tells; None if it is of another attempt, or of a protocol that is not known."""
    digest = hashlib.sha256(uid.encode()).hexdigest()
    said = object_at(state)
    if (said.get("uidDigest"), said.get("attempt")) != (digest, attempt):
        return None
    if said.get("protocol") not in get_args(AgentProtocol):
        return None
    version = said.get("deepspeed")
    known = isinstance(version, str) and version.isascii() and len(version) <= _MAX_VERSION
    return AgentReport(
        attempt,
        read_at,
        refused={
            address: why[:_MAX_REFUSAL] for address, why in object_at(said, "refused").items() if isinstance(why, str)
        },
        deepspeed_version=version if known else None,
        missing=tuple(host for host in list_at(said, "missing") if isinstance(host, str)),
        warnings=tuple(warning for warning in list_at(said, "warnings") if isinstance(warning, str)),
        transport=read_as(Transport, said.get("transport")),
        measured=read_as(Measured, said.get("measured")),
        stuck=agent_message(json.dumps(said.get("stuck"))),
        world=world_of_agent(said.get("world")),
        rounds=read_as(Rounds, said.get("rounds")),
        progress=read_as(ToldProgress, said.get("progress")),
        hang=read_as(ToldHang, said.get("hang")),
        stragglers=told_stragglers_of(said.get("stragglers")),
        checkpoint=checkpoint_of(said.get("checkpoint")),
        wall_time=read_as(AgentWallTime, said.get("wallTime")),
    )
