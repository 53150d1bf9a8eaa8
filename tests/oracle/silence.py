"""What DeepSpeed passes over in silence, and the warnings that say so."""

from collections.abc import Mapping
from typing import Any

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate_for
from deepspeed_operator.dsconfig.notes import CheckPhase, Note, written
from deepspeed_operator.dsconfig.schema import TOP, Schema, schema_of
from deepspeed_operator.dsconfig.wrong_results import WRONG_RESULTS
from tests.oracle.filling import filled

# What is handed on as it stands: the optimizer, the scheduler, the pipeline or a program of the user's reads it.
_HANDED_ON = ("optimizer.params.", "scheduler.params.", "pipeline.", "data_efficiency.", "curriculum_learning.", "amp.")
# Notes about a script that is not known here, or a framework: not about what the configuration says.
_ABOUT_SCRIPTS = frozenset({"script-optimizer", "auto-unfilled"})
_ABOUT_VERSIONS = frozenset(row.code for row in WRONG_RESULTS)


def silent_notes(version: str, config: Mapping[str, Any]) -> list[Note]:
    """Our warnings about what DeepSpeed ignores or overrides, on one rank."""
    notes = validate_for(schema_of(version), filled(config, 1), JudgementContext(1)).notes
    ours = [note for note in notes if note.phase is CheckPhase.SILENT and note.level is Level.WARNING]
    return [note for note in ours if note.code not in _ABOUT_SCRIPTS | _ABOUT_VERSIONS]


def unnamed(version: str, config: Mapping[str, Any], unread: list[str]) -> list[str]:
    """Keys that DeepSpeed never asked for and that none of our findings is about.

    A key that it would ask for if the section were enabled sleeps: that is what disabling means.
    """
    schema = schema_of(version)
    notes = validate_for(schema_of(version), filled(config, 1), JudgementContext(1)).notes
    said = {written(note.path) for note in notes}
    silent = [path for path in unread if path not in said and not path.startswith(_HANDED_ON)]
    return [path for path in silent if not _sleeps(schema, path)]


def _sleeps(schema: Schema, path: str) -> bool:
    section, _, key = path.rpartition(".")
    entry = schema.sections[TOP].keys.get(section)
    if entry is not None and entry.model is not None:
        return True  # pydantic reads all of it, without asking
    return section in schema.sections and key in schema.sections[section].keys
