"""Whether a regular expression of a user's may be searched for: by this operator, and by Python 3.8 in a pod.

Python's engine tries what a pattern leaves open one after the other, and a short one can leave more open than anybody
waits for. So a pattern may leave open only so much.
"""

import re
from dataclasses import dataclass, field
from typing import Final

_CHOICES: Final = 1024
_ENDLESS: Final = 2
_TOKEN: Final = re.compile(
    r"(?P<refers>\\[1-9])|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|^\(\?i\)|(?P<extends>\(\?(?!:))|(?P<open>\((?:\?:)?)"
    r"|(?P<close>\))|(?P<or>\|)|(?P<times>[*+?]|\{\d*,?\d*\})\??|.",
    re.DOTALL,
)


def unsafe(pattern: str) -> str | None:
    """Return why the pattern may not be searched for; None if it may."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as wrong:
        return f"it is no regular expression: {wrong}"
    reading = _Reading()
    wrong = (reading.take(token.lastgroup or "", token) for token in _TOKEN.finditer(pattern))
    return next((each for each in wrong if each is not None), None) or reading.too_open()


@dataclass(slots=True)
class _Reading:
    """What a pattern leaves open, as far as it was read."""

    choices: int = 1
    endless: int = 0
    groups: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    """The alternatives of each group that is open, and whether it leaves anything open."""
    before: str = ""
    closed: bool = False  # the group that ended last leaves something open

    def take(self, kind: str, token: re.Match[str]) -> str | None:
        """Read on; return why the pattern is refused, if it is."""
        before, self.before = self.before, kind
        match kind:
            case "refers":
                return f"it refers back ({token[0]})"
            case "extends":
                return "it looks around, names a group or sets a flag: only (?:…), and (?i) at its beginning, may be"
            case "open":
                self.groups.append((1, False))
            case "or" if self.groups:
                self.groups[-1] = (self.groups[-1][0] + 1, True)
            case "close":
                alternatives, self.closed = self.groups.pop()
                self.choices *= alternatives
                self._leave_open(self.closed)
            case "times":
                return self._repeat(token["times"], before)
            case _:
                pass
        return None

    def too_open(self) -> str | None:
        if self.endless > _ENDLESS:
            return f"it has {self.endless} of the quantifiers *, + and {{n,}}: at most {_ENDLESS}"
        return "it leaves too much open: fewer groups with | and fewer quantifiers" if self.choices > _CHOICES else None

    def _repeat(self, times: str, before: str) -> str | None:
        if before == "times":
            return "a quantifier follows another"
        if before == "close" and self.closed and times != "?":
            return f"it repeats a group that leaves something open ({times} after a group with | or a quantifier)"
        if times in {"*", "+"} or times.endswith(",}"):
            self.endless += 1
        else:
            self.choices *= 1 + max([int(each) for each in re.findall(r"\d+", times)], default=1)
        self._leave_open(True)
        return None

    def _leave_open(self, something: bool) -> None:
        self.groups[-1:] = [(alternatives, open_ or something) for alternatives, open_ in self.groups[-1:]]
