"""The checkpoints of an attempt as they are known last, from its agents' last words or from rank 0's living agent."""

from deepspeed_operator.reconcile.observe.checkpoints import CheckpointReport
from deepspeed_operator.reconcile.observe.gang import Gang, last_messages
from deepspeed_operator.reconcile.observe.observed import Observed


def latest_checkpoint(observed: Observed, gang: Gang) -> CheckpointReport | None:
    """Return the latest that is known of the attempt's checkpoints; None if nothing is."""
    left = next((message.checkpoint for message in last_messages(gang) if message.checkpoint is not None), None)
    if left is not None:
        return left
    return observed.agent.checkpoint if observed.agent is not None else None


def has_saved(observed: Observed, gang: Gang) -> bool:
    """Whether the last round that is known has completed a checkpoint."""
    report = latest_checkpoint(observed, gang)
    return report is not None and report.progressed
