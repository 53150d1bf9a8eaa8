"""What the ranks and their agents tell of an attempt, all together."""

from deepspeed_operator.api.transport import Transport
from deepspeed_operator.reconcile.observe.gang import Gang
from deepspeed_operator.reconcile.observe.observed import Observed
from deepspeed_operator.reconcile.report.draft import StatusDraft
from deepspeed_operator.reconcile.runtime.measured_plan import report_plan
from deepspeed_operator.reconcile.runtime.observed_checkpoint import report_checkpoint
from deepspeed_operator.reconcile.runtime.observed_engine import report_engine
from deepspeed_operator.reconcile.runtime.observed_hang import report_hang
from deepspeed_operator.reconcile.runtime.observed_transport import report_transport


def report_attempt(
    observed: Observed, gang: Gang, transport: Transport | None, draft: StatusDraft, *, at_the_end: bool = False
) -> None:
    """Write the attempt's network, plan, world, engine, checkpoints and hangs into the draft.

    `transport` is the latest that is known, None if none is. Unanswered is raised for what a plan or an engine is held
    against.
    """
    report_transport(observed, transport, draft)
    report_plan(observed, gang, draft)
    report_engine(observed, gang, draft)
    report_checkpoint(observed, gang, draft, at_the_end=at_the_end)
    report_hang(observed, draft, at_the_end=at_the_end)
