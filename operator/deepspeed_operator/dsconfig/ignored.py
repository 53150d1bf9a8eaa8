"""What DeepSpeed ignores or quietly changes, without a word in any log."""

from collections.abc import Iterator

from deepspeed_operator.api.status import Batch
from deepspeed_operator.dsconfig.notes import Note
from deepspeed_operator.dsconfig.setup import Setup


def ignored_notes(setup: Setup, batch: Batch | None, filled_in: bool) -> Iterator[Note]:
    yield from ()
