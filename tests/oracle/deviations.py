"""Where we do not say what DeepSpeed's configuration class says, and why."""

from collections.abc import Sequence

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.notes import Note
from tests.oracle.oracle import Answer, Config

# Code of ours → why it refuses what DeepSpeed accepts.
STRICTER = {
    "fractional-batch-size": "a batch size with a fraction: DeepSpeed accepts some, and computes with parts of samples",
    "number-too-large": "a batch size beyond 64 bits: status cannot hold it, and no data loader can",
    "indivisible-sequence": "a sequence_parallel_size that does not divide the ranks: DeepSpeed divides all the same",
    "loss-scale-power": "an initial_scale_power above 1023: no floating-point number holds 2 to the power of it",
    "sequence-size": "a sequence_parallel_size that is no whole number above 0: DeepSpeed divides by it all the same",
}
ELASTIC = "elasticity: the batch sizes that it computes when it starts are not computed here"


def reason_of(config: Config, errors: Sequence[Note], answer: Answer) -> str:
    """Why the two may differ here; empty where nothing explains it."""
    if object_at(config.get("elasticity")).get("enabled"):
        return ELASTIC
    codes = {note.code for note in errors}
    if answer.accepted and codes and codes <= set(STRICTER):
        return "; ".join(sorted(STRICTER[code] for code in codes))
    return ""
