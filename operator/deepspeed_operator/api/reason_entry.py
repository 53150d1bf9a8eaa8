"""What there is to say of a reason."""

from dataclasses import dataclass

from deepspeed_operator.api.reasons import Category


@dataclass(frozen=True, slots=True)
class Entry:
    """What there is to say of a reason. `category` is None where nothing is wrong.

    `meaning` is Markdown. `remedy` is plain text, in which {again} stands for how to run again.
    """

    category: Category | None
    meaning: str
    remedy: str = "Nothing."

    def remedy_by(self, again: str) -> str:
        """Return the remedy as a sentence; `again` is how to run again."""
        words = self.remedy.format(again=again)
        return words[:1].upper() + words[1:]
