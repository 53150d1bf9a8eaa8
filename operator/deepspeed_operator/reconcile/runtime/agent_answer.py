"""What rank 0's agent says of itself, as far as status can hold it: whoever reaches its port may be answering."""

import hashlib
import json
from datetime import datetime
from typing import Any, get_args

from deepspeed_operator.api.untyped import list_at, object_at
from deepspeed_operator.reconcile.observe.checkpoints import checkpoint_of
from deepspeed_operator.reconcile.observe.messages import AgentProtocol, agent_message
from deepspeed_operator.reconcile.observe.observed import AgentReport
from deepspeed_operator.reconcile.observe.rounds import rounds_of
from deepspeed_operator.reconcile.observe.told_hang import told_hang_of, told_stragglers_of
from deepspeed_operator.reconcile.observe.told_progress import told_progress_of
from deepspeed_operator.reconcile.observe.told_wall_time import wall_time_of
from deepspeed_operator.reconcile.runtime.measured_plan import measured_of
from deepspeed_operator.reconcile.runtime.observed_engine import world_of_agent
from deepspeed_operator.reconcile.runtime.observed_transport import transport_of

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
        transport=transport_of(said.get("transport")),
        measured=measured_of(said.get("measured")),
        stuck=agent_message(json.dumps(said.get("stuck"))),
        world=world_of_agent(said.get("world")),
        rounds=rounds_of(said.get("rounds")),
        progress=told_progress_of(said.get("progress")),
        hang=told_hang_of(said.get("hang")),
        stragglers=told_stragglers_of(said.get("stragglers")),
        checkpoint=checkpoint_of(said.get("checkpoint")),
        wall_time=wall_time_of(said.get("wallTime")),
    )
