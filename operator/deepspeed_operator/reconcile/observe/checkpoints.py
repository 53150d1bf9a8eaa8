"""What rank 0's agent tells of the run's checkpoints, as far as status can hold it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import BeforeValidator, ValidationError

from deepspeed_operator.api.checkpoint import MAX_PATH, MAX_TAG, CheckpointStatus
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.reconcile.observe.pods import timestamp

_LATEST_TIME: Final = 2**33  # seconds since 1970
_OF_A_REPAIR: Final = ("torn", "missing", "tag")


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """The newest complete checkpoint; whether it was completed in the latest round.

    `began_with`: the step of the one that was the newest when that round began; None if none was, or it is not known.
    """

    checkpoint: CheckpointStatus
    progressed: bool
    began_with: int | None = None


def checkpoint_of(said: object) -> CheckpointReport | None:
    """Return what an agent tells of checkpoints; None if it tells nothing that status could hold."""
    told = object_at(said)
    if not told:
        return None
    at, mended = told.get("time"), object_at(told, "repaired")
    known = {name: told.get(name) for name in ("path", "tag", "step", "sizeBytes", "seconds")}
    if isinstance(at, int) and 0 <= at < _LATEST_TIME:
        known["time"] = timestamp(datetime.fromtimestamp(at, tz=UTC))
    if mended:
        known["message"] = _mended(f"{known['path']}"[:MAX_PATH], *(_short(mended.get(each)) for each in _OF_A_REPAIR))
    try:
        checkpoint, began = CheckpointStatus.model_validate(known), told.get("beganWith")
        return CheckpointReport(checkpoint, told.get("progressed") is True, began if isinstance(began, int) else None)
    except ValidationError:
        return None


def _short(text: object) -> str | None:
    return text[:MAX_TAG] if isinstance(text, str) else None


def _mended(path: str, torn: str | None, missing: str | None, tag: str | None) -> str:
    now = f"it names {tag} now, the newest complete one" if tag else "it is latest.torn now, and the run began anew"
    return f"{path}/latest named {torn or 'nothing'}, which is not complete: {missing}; {now}"


ToldCheckpoint = Annotated[CheckpointReport | None, BeforeValidator(checkpoint_of)]
