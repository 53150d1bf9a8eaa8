"""What there is to say of an import: what was carried, what became something else and why, and what has no place."""

from dataclasses import dataclass
from enum import StrEnum


class Treatment(StrEnum):
    """What became of a part of the source."""

    CARRIED = "carried"
    CHANGED = "changed"
    LEFT_OUT = "left out"
    WARNING = "warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Remark:
    """What became of the part of the source at `path`, in a sentence."""

    treatment: Treatment
    path: str
    message: str


class Remarks(list[Remark]):
    """The remarks on one import, each once, in the order in which the source was read."""

    def carried(self, path: str, message: str) -> None:
        self._add(Treatment.CARRIED, path, message)

    def changed(self, path: str, message: str) -> None:
        self._add(Treatment.CHANGED, path, message)

    def left_out(self, path: str, message: str) -> None:
        self._add(Treatment.LEFT_OUT, path, message)

    def warn(self, path: str, message: str) -> None:
        self._add(Treatment.WARNING, path, message)

    def refuse(self, path: str, message: str) -> None:
        """Say why the job would not train what is meant; nothing is then made of it."""
        self._add(Treatment.REFUSED, path, message)

    @property
    def refused(self) -> bool:
        return any(remark.treatment is Treatment.REFUSED for remark in self)

    def _add(self, treatment: Treatment, path: str, message: str) -> None:
        remark = Remark(treatment, path, message.replace("\0", ""))  # around what only a shell knows
        if remark not in self:
            self.append(remark)
