"""What there is to say about a place in a configuration."""

from dataclasses import dataclass
from enum import StrEnum

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.status import Finding, Level

Path = tuple[str | int, ...]


class CheckPhase(StrEnum):
    """Where DeepSpeed meets it: while it reads the configuration, when its engine starts, or never by itself."""

    CONFIG = "config"
    ENGINE = "engine"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Note:
    """A finding without where the configuration stands; with the same `code` and `path` versions say the same."""

    level: Level
    path: Path
    code: Code
    message: str
    fix: str = ""
    phase: CheckPhase = CheckPhase.CONFIG

    def finding(self, where: str) -> Finding:
        where = written(self.path, where)
        return Finding(level=self.level, code=self.code, path=where, message=self.message, fix=self.fix)


def error(path: Path, code: Code, message: str, fix: str, phase: CheckPhase = CheckPhase.CONFIG) -> Note:
    return Note(Level.ERROR, path, code, message, fix, phase)


def refused(path: Path, code: Code, message: str, fix: str) -> Note:
    """Say what DeepSpeed refuses when its engine starts."""
    return error(path, code, message, fix, CheckPhase.ENGINE)


def warning(path: Path, code: Code, message: str, fix: str) -> Note:
    return Note(Level.WARNING, path, code, message, fix, CheckPhase.SILENT)


def advice(path: Path, code: Code, message: str, fix: str) -> Note:
    return Note(Level.ADVICE, path, code, message, fix, CheckPhase.SILENT)


def written(path: Path, where: str = "") -> str:
    """Write a path as `zero_optimization.stage`, after where the configuration stands."""
    text = where
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
