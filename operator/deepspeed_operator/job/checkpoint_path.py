"""Where a job saves its checkpoints, as far as its spec says it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.spec import DeepSpeedJobSpec, Training

# In the order of how surely they name the directory: that of the Trainer holds other things, too.
_OPTIONS: Final = ("checkpoint_dir", "ckpt_dir", "save_dir", "save", "output_dir")
# A variable of a shell's is not known here; $(NAME) is the agent's, which replaces it.
_UNKNOWN: Final = re.compile(r"\$(?!\()|[`*?]|^-")


@dataclass(frozen=True, slots=True)
class CheckpointPath:
    """A directory of checkpoints, and the field of the job that names it."""

    path: str
    field: str

    @property
    def declared(self) -> bool:
        """Whether the job itself says it, and not an argument of its program."""
        return self.field == "spec.checkpoint.path"

    @property
    def on_object_store(self) -> bool:
        return "://" in self.path


def checkpoint_path(spec: DeepSpeedJobSpec) -> CheckpointPath | None:
    """Return the directory that spec.checkpoint or an argument names; None where neither does."""
    if spec.checkpoint is not None and spec.checkpoint.path is not None:
        return CheckpointPath(spec.checkpoint.path, "spec.checkpoint.path")
    named = dict(reversed(list(_named(spec.training))))
    return next((named[option] for option in _OPTIONS if option in named), None)


def _named(training: Training) -> Iterator[tuple[str, CheckpointPath]]:
    """Yield the options that name a directory, the first of each name first."""
    for field, words in (("command", training.command or ()), ("args", training.args)):
        for at, word in enumerate(words):
            within = _split(word)
            next_word = words[at + 1] if len(within) == 1 and at + 1 < len(words) else ""
            for option, value in zip(within, [*within[1:], next_word], strict=False):
                name, equals, given = option.lstrip("-").partition("=")
                path = given if equals else value
                if option.startswith("--") and path and not _UNKNOWN.search(path):
                    yield name.replace("-", "_"), CheckpointPath(path, f"spec.training.{field}[{at}]")


def _split(word: str) -> list[str]:
    """Return the words of a shell's script, or the word itself."""
    if not re.search(r"\s", word):
        return [word]
    try:
        return shlex.split(word)
    except ValueError:  # no shell would read it
        return []
