"""What there is to say about a place in a configuration."""

from dataclasses import dataclass
from enum import StrEnum

from deepspeed_operator.api.status import Finding, Level

Path = tuple[str | int, ...]


class CheckPhase(StrEnum):
    """Where DeepSpeed meets it: while it reads the configuration, when its engine starts, or never by itself."""

    CONFIG = "config"
    ENGINE = "engine"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Note:
    """A finding without where the configuration stands; with the same `rule` and `path` versions say the same."""

    level: Level
    path: Path
    rule: str
    message: str
    fix: str = ""
    phase: CheckPhase = CheckPhase.CONFIG

    def finding(self, where: str) -> Finding:
        return Finding(level=self.level, path=written(self.path, where), message=self.message, fix=self.fix)


def error(path: Path, rule: str, message: str, fix: str, phase: CheckPhase = CheckPhase.CONFIG) -> Note:
    return Note(Level.ERROR, path, rule, message, fix, phase)


def warning(path: Path, rule: str, message: str, fix: str) -> Note:
    return Note(Level.WARNING, path, rule, message, fix, CheckPhase.SILENT)


def advice(path: Path, rule: str, message: str, fix: str) -> Note:
    return Note(Level.ADVICE, path, rule, message, fix, CheckPhase.SILENT)


def written(path: Path, where: str = "") -> str:
    """Write a path as `zero_optimization.stage`, after where the configuration stands."""
    text = where
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
