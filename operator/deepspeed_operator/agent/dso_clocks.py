"""How far the clocks of the pods' nodes differ, for whoever compares times that they have written."""

from __future__ import annotations

APART_SECONDS = 1.0  # nodes tell when a container ended in whole seconds
MOST = 16
EXACT_SECONDS = 0.5  # of a call, there and back: by half of it a clock may be taken for another


class Clocks:
    """Those that differ from most: the hub's own may be the one that is wrong."""

    def __init__(self) -> None:
        self.ahead: dict[int, float] = {}  # seconds, of the hub's, by the index of the pod
        self.apart: dict[str, float] = {}  # seconds ahead of most clocks, by index; the furthest MOST

    def take(self, index: int, ahead: float | None) -> None:
        """So far was the pod's clock ahead of the hub's; None: that is not known of the pod that is there now."""
        before = self.ahead.get(index)
        if ahead is None:
            self.ahead.pop(index, None)
        else:
            self.ahead[index] = ahead
        if before is None or ahead is None or abs(ahead - before) > APART_SECONDS / 2:
            self.apart = self._apart()

    def _apart(self) -> dict[str, float]:
        if not self.ahead:
            return {}
        median = sorted(self.ahead.values())[len(self.ahead) // 2]
        apart = {index: ahead - median for index, ahead in self.ahead.items() if abs(ahead - median) >= APART_SECONDS}
        furthest = sorted(apart, key=lambda index: -abs(apart[index]))[:MOST]
        return {str(index): round(apart[index], 1) for index in sorted(furthest)}
