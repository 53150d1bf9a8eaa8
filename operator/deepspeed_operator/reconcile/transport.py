"""What the agents tell of the network, in status."""

from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from deepspeed_operator.api.spec import Model
from deepspeed_operator.api.status import DeepSpeedJobStatus
from deepspeed_operator.api.transport import Transport, TransportState
from deepspeed_operator.reconcile.gang import Gang
from deepspeed_operator.reconcile.observed import Observed

_NOT_REPORTED = "NCCL reported no connection before the run ended."


def transport_of(said: Any) -> Transport | None:
    """Return what an agent says of the transport; None if it says nothing that status could hold."""
    try:
        return Transport.model_validate(said)
    except ValidationError:
        return None


def reported(observed: Observed) -> Transport | None:
    """Return the latest that is known of the current attempt."""
    status, report = observed.job.status, observed.facts.agent
    if report is None or report.attempt != status.attempt or report.transport is None:
        return status.transport
    return report.transport


class _LastWords(Model):
    transport: Transport | None = None


def at_the_end(status: DeepSpeedJobStatus, gang: Gang) -> Transport | None:
    """Return what a finished attempt has used: rank 0's agent leaves it in its last words."""
    first = gang.pods.get(0)
    if first is not None and first.termination is not None:
        with suppress(ValidationError):
            said = _LastWords.model_validate_json(first.termination.message.partition("\n")[0])
            if said.transport is not None:
                return said.transport
    known = status.transport
    if known is None or known.state is not TransportState.PENDING:
        return known
    return known.model_copy(update={"state": TransportState.UNKNOWN, "message": known.message or _NOT_REPORTED})
