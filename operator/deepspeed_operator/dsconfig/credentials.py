"""Credentials in a configuration: it becomes a ConfigMap, which may be read by many who may not read Secrets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from deepspeed_operator.api.finding import Code
from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.notes import Note, Path, warning

# Not every token: tokenizers have pad_token and eos_token.
_NAME: Final = re.compile(
    r"(^|_)(api_?key|access_?key(_id)?|secret(_?key)?|private_?key|passw(or)?d|credentials?"
    r"|(access|auth|api|hf|hub|bearer|wandb|comet|login|refresh|session)_?token|token)$"
)
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
# $NAME, {{ name }} and <name> stand for what somebody else puts there.
_PLACEHOLDER: Final = re.compile(r"\$|<.*>$|\{\{|(x+|\*+|none|null|your.*)$", re.IGNORECASE)
_VARIABLES: Final[Mapping[str, str]] = {"comet": "COMET_API_KEY", "wandb": "WANDB_API_KEY"}
_DEEPEST: Final = 6
_LONGEST: Final = 60


def credential_notes(config: Mapping[str, Any]) -> Iterator[Note]:
    """Warn of every key that is named like a credential and has a text that may be one. The text is never quoted."""
    for path in _credentials(config, ()):
        variable = _VARIABLES.get(str(path[0]), "a variable")
        message = "looks like a credential, and stands in a ConfigMap, which all who may view the namespace read."
        fix = f"Remove it, put it into a Secret, and set {variable} in the trainer's env from there (secretKeyRef)."
        yield warning(path, Code.CREDENTIAL, message, fix)


def _credentials(values: Mapping[str, Any], path: Path) -> Iterator[Path]:
    for key, value in values.items():
        if isinstance(value, dict) and len(path) < _DEEPEST:
            yield from _credentials(cast(Mapping[str, Any], value), (*path, key))
        elif isinstance(value, str) and value and value != AUTO and _is_credential(key, value):
            yield (*path, key)


def _is_credential(key: str, value: str) -> bool:
    name = _CAMEL.sub("_", key[:_LONGEST]).replace("-", "_").lower()
    return _NAME.search(name) is not None and _PLACEHOLDER.match(value[:_LONGEST].strip()) is None
