"""What the ranks' output shows of optimizer steps."""

from __future__ import annotations

import re

# DeepSpeed's own line, every steps_per_print steps.
_STEP = re.compile(rb"step=\d+, skipped=")


class Steps:
    def __init__(self) -> None:
        self.seen = False

    def take(self, text: bytes) -> None:
        """A tap on the ranks' output."""
        if not self.seen and b", skipped=" in text and _STEP.search(text):
            self.seen = True
