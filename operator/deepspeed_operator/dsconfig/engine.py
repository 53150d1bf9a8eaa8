"""What DeepSpeed's engine refuses when it starts. Mirrored from its source: no configuration alone can ask it."""

from collections.abc import Iterator

from deepspeed_operator.dsconfig.notes import Note
from deepspeed_operator.dsconfig.setup import Setup


def engine_notes(setup: Setup) -> Iterator[Note]:
    yield from ()
