"""Facts that a plan is made from, each with its source."""

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """Where a fact comes from; a verdict that an assumed one could flip is none."""

    DECLARED = "Declared"
    HUGGING_FACE_CONFIG = "HuggingFaceConfig"
    DS_CONFIG = "DsConfig"
    NODE_LABELS = "NodeLabels"
    MEASURED = "Measured"
    ASSUMED = "Assumed"


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: float | str
    source: Source
