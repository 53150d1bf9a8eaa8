"""What the agents tell of the network: in status, and as a finding and an event where it is not what was asked for."""

import json
from contextlib import suppress
from typing import Final

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.reasons import Reason
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import DeepSpeedJobStatus, Finding
from deepspeed_operator.api.transport import Transport, TransportState
from deepspeed_operator.api.untyped import Json, object_at
from deepspeed_operator.job.fabric.guard import asked_fabric, fallbacks
from deepspeed_operator.job.fabric.wish import wish_of
from deepspeed_operator.reconcile.actions import JobEvent
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.observe.read_as import read_as
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.report.spec_changes import is_of_another_run

_PROFILE: Final = "spec.network.profile"
# As the agent says it (dso_transport.py): a short run tells no less than a long one.
_NOT_REPORTED = "NCCL wrote nothing about connections: the ranks may use another library, such as gloo or MPI."


def report_transport(observed: Observed, transport: Transport | None, draft: StatusDraft) -> None:
    """Write what a transport means for status; what contradicts the job's network profile is announced once."""
    draft.transport = transport
    found = mismatch(observed.job.spec, transport) if transport is not None else None
    if found is None or is_of_another_run(observed):
        return
    draft.findings.replace({Code.TRANSPORT_MISMATCH}, found)
    if not draft.findings.had(Code.TRANSPORT_MISMATCH):
        draft.events.append(JobEvent("Warning", Reason.TRANSPORT_MISMATCH, f"{found}"))


def mismatch(spec: DeepSpeedJobSpec, transport: Transport) -> Finding | None:
    """Return what is to be said of a transport that is not the fabric which the job asks for."""
    unwanted = [link for link in transport.links if link.kind in fallbacks(spec)]
    if not unwanted:
        return None
    link = unwanted[0]
    devices = f" ({', '.join(link.devices)})" if link.devices else ""
    where = "between nodes" if link.between == "Nodes" else "between ranks of a node"
    pairs = f" {', '.join(link.nodes)}" if link.nodes else ""
    words = f"NCCL reports {link.uses}{devices} {where}{pairs}, not {asked_fabric(spec)}."
    wish = wish_of(spec)
    name = f"Write spec.network.profile: {' or '.join(wish.profiles)}, which brings its devices. " if wish else ""
    fix = f"{name}See docs/transport.md for what keeps NCCL from it; spec.network.require: true ends such a run."
    return warning(_PROFILE, Code.TRANSPORT_MISMATCH, words, fix)


def reported(observed: Observed) -> Transport | None:
    """Return the latest that is known of the current attempt."""
    status, report = observed.job.status, observed.facts.agent
    if report is None or report.attempt != status.attempt_number or report.transport is None:
        return status.transport
    return report.transport


def last_words(gang: Gang) -> Json:
    """Return what rank 0's agent left when it ended; whoever writes to a termination log can say anything here."""
    first = gang.pods.get(0)
    if first is None or first.termination is None:
        return {}
    with suppress(ValueError, RecursionError):
        return object_at(json.loads(first.termination.message.partition("\n")[0]))
    return {}


def at_the_end(status: DeepSpeedJobStatus, gang: Gang) -> Transport | None:
    """Return what a finished attempt has used."""
    said = read_as(Transport, last_words(gang).get("transport"))
    if said is not None:
        return said
    known = status.transport
    if known is None or known.state is not TransportState.PENDING:
        return known
    return known.model_copy(update={"state": TransportState.UNKNOWN, "message": known.message or _NOT_REPORTED})
