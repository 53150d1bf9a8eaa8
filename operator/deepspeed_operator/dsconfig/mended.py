"""What an old version trains wrongly and a newer one does not."""

from collections.abc import Iterator

from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.migration import OLDEST, Config, Kind, Step
from deepspeed_operator.dsconfig.notes import Note, written
from deepspeed_operator.dsconfig.wrong_results import WRONG_RESULTS


def mended(config: Config, old: str | None, new: str) -> Iterator[Step]:
    """Yield what only the old version trains wrongly, whatever the world. `old` None: the oldest that is known."""
    left = {(note.path, note.code) for note in _wrong(config, new)}
    for note in _wrong(config, old or OLDEST):
        until = next(row.until for row in WRONG_RESULTS if (row.code, row.effect) == (note.code, note.message))
        if until is not None and (note.path, note.code) not in left:
            yield Step(Kind.BEHAVIOUR, until, written(note.path), f"no longer so: {note.message}")


def _wrong(config: Config, version: str) -> list[Note]:
    codes = {row.code for row in WRONG_RESULTS}
    return [note for note in validate(config, JudgementContext(None, version)).notes if note.code in codes]
