"""How far one round of the run is: what several sources say of it, each kept, and the most trusted one told by name.

Rank 0's agent alone has all of them. The sources' threads write, and the HTTP thread reads; a lock is held for each.
"""

from __future__ import annotations

import collections
import math
import threading
import time
from typing import Any, Callable, Mapping

from dso_pace import ToldSteps
from dso_progresslines import BAR, LIGHTNING, LOG, LONGEST, TRAINER, Bars, Statement, of_part, statements
from dso_progressranks import RankProgress
from dso_walltime import LastStep

SCRIPT, CALLBACK, ENGINE = "Script", "KubeflowCallback", "DeepSpeedEngine"
# In the order in which they are trusted: the program's own word first, and what is drawn for people last.
SOURCES = (SCRIPT, CALLBACK, ENGINE, LOG, TRAINER, BAR, LIGHTNING)
BARS = frozenset({BAR, LIGHTNING})  # which may count the steps since a start, and not those of the run
WINDOW = 64
MOST_STEPS = 1 << 62


class Track:
    """What one source has said in this round. A message that lacks something leaves that as it was."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.total: int | None = None
        self.with_engine = False  # whether it counted the engine's steps when it has last told one
        self.values: dict[str, float] = {}  # loss, rate, samples, tokens
        # When a step was seen, and which: from the second on, since before it a resume may have skipped thousands, and
        # kernels are chosen in the first.
        self.first = self.last = (0.0, 0)
        self.second = False
        self.at = float("-inf")  # when it has last told a step that is news; of one that tells none, anything
        self.seconds: collections.deque[float] = collections.deque(maxlen=WINDOW)  # of its last steps

    def take(self, step: int | None, total: int | None, values: Mapping[str, float], now: float) -> None:
        self.values.update(values)
        self.total = total or self.total
        if self.step is None:
            self.at = now
        if step is None or step == self.step:
            return
        if self.step is not None and step < self.step:
            if near(step, self.step):
                return  # of another rank, which is a little behind
            self.step = None  # another training has begun
            self.seconds.clear()
        if self.step is None or not self.second:
            self.first, self.second = (now, step), self.step is not None
        else:
            self.seconds.append((now - self.last[0]) / (step - self.step))
        self.step, self.last, self.at = step, (now, step), now

    def step_seconds(self) -> float | None:
        """Seconds of a step on average, what comes between two steps included; None while there is none to count."""
        steps = self.last[1] - self.first[1]
        return (self.last[0] - self.first[0]) / steps if steps > 0 else None


class Progress:
    """Of one round. `ranks` are those of this pod, as dso_progressranks.RankRecords has them."""

    def __init__(self, ranks: Callable[[], list[RankProgress]]) -> None:
        self.ranks = ranks
        self.tracks = {source: Track() for source in SOURCES}
        self.bars = Bars()
        self.timed: tuple[float, ...] = ()  # seconds of rank 0's last steps, as it has measured them
        self.last_step: LastStep | None = None  # None before the first
        self.save: tuple[str, float] | None = None  # dso_progressranks.RankProgress.save, of rank 0
        self.lock = threading.Lock()

    def take(self, source: str, facts: Mapping[str, Any], now: float) -> None:
        """What a source says at this moment: `step`, `total`, `loss`, `rate`, `samples`, `tokens`, as far as it does.

        Numbers may be text; what is no number is left out, but a loss may well be none.
        """
        step, total = whole(facts.get("step")), whole(facts.get("total"))
        values = {
            name: value
            for name in ("loss", "rate", "samples", "tokens")
            if (value := number(facts.get(name))) is not None and (name == "loss" or math.isfinite(value))
        }
        with self.lock:
            track, engines = self.tracks[source], self.tracks[ENGINE].step
            track.take(step, total or None, values, now)
            if step is not None and engines is not None:
                track.with_engine = near(step, engines)

    def take_output(self, text: bytes) -> None:
        """A tap on the ranks' output."""
        for statement in statements(text):
            self.take_line(statement, time.monotonic())

    def take_line(self, statement: Statement, now: float) -> None:
        facts: dict[str, Any] = dict(statement.facts)
        if statement.source == BAR and not self.bars.counts(int(facts["step"]), int(facts["total"])):
            return
        if "batches" in facts:
            facts["step"] = int(facts["epoch"]) * int(facts["batches"]) + int(facts["step"])
        self.take(statement.source, facts, now)

    def look(self, partial: bytes = b"") -> None:
        """At rank 0's record, and at what it has written of a line that has not ended: a bar, perhaps."""
        for statement in of_part(partial[-LONGEST:].rpartition(b"\r")[2]) if b"%|" in partial else ():
            self.take_line(statement, time.monotonic())
        first = next((each for each in self.ranks() if each.rank == 0), None)
        self.save = first.save if first else None
        if first is None or first.at is None:
            self.last_step = self._told_step()
            return
        end = max(first.at, first.saved)
        self.last_step = LastStep(
            first.step, end, first=first.first, taken=first.taken, saving=first.saving, counted=True
        )
        facts: dict[str, Any] = {"step": first.step, "rate": first.rate}
        self.timed = first.seconds
        if first.samples and first.seconds:
            facts["samples"] = first.samples / (sum(first.seconds) / len(first.seconds))
        self.take(ENGINE, facts, first.at)

    def state(self, now: float) -> dict[str, Any] | None:
        """docs/agent-protocol.md lists it; None before any source has spoken."""
        with self.lock:
            source = self._source()
            if source is None:
                return None
            track = self.tracks[source]
            total, seconds, known = self._total(track), track.step_seconds(), self._values()
            (at, step), left = self._last(track), None
            if total and seconds is not None and step is not None:
                left = max(0.0, (total - step) * seconds - (now - at))
            times = sorted(self.timed or track.seconds)
            window = {"median": rounded(quantile(times, 0.5)), "p95": rounded(quantile(times, 0.95))} if times else None
            return {
                "source": source,
                "step": step,
                "totalSteps": total,
                "secondsLeft": None if left is None else round(left, 1),
                "secondsSinceUpdate": round(now - self._at(), 1),
                "loss": None if "loss" not in known else f"{known['loss']:.4g}",
                "learningRate": rounded(known.get("rate")),
                "samplesPerSecond": rounded(known.get("samples")),
                "tokensPerSecond": rounded(known.get("tokens")),
                "stepSeconds": window,
            }

    def told_steps(self) -> ToldSteps:
        """What sources beside the engines have told of steps."""
        with self.lock:
            told = [(source, track) for source, track in self.tracks.items() if source != ENGINE]
            steps = [(source, track, track.step) for source, track in told if track.step is not None]
            complete = any(
                track.total and step >= track.total and self._is_of_training(source, step)
                for source, track, step in steps
            )
            return ToldSteps(max((track.at for _, track, _ in steps), default=None), complete)

    def _is_of_training(self, source: str, step: int) -> bool:
        """Whether the last of this source's steps is the training's: a bar may count files before it."""
        engine, last = self.tracks[ENGINE].step, self.last_step
        if engine is None:
            return source == self._source()
        return source not in BARS or near(step, engine) or (last is not None and near(step, last.taken))

    def _told_step(self) -> LastStep | None:
        """The last step that a source has told, where no engine of DeepSpeed's is seen."""
        with self.lock:
            source = self._source()
            track = self.tracks[source] if source is not None else None
            if source is None or track is None or track.step is None:
                return None
            at, counted = track.last[0], source not in BARS
            return LastStep(track.step, at, first=at, taken=1, saving=0.0, counted=counted)

    def _last(self, track: Track) -> tuple[float, int | None]:
        """When the track's last step was seen, and which: the engine tells each at once, and others now and then."""
        ahead, step = self.tracks[ENGINE].step, track.step
        if ahead is not None and step is not None and ahead > step and (track.with_engine or near(ahead, step)):
            return self.tracks[ENGINE].last
        return track.last[0], step

    def _total(self, track: Track) -> int | None:
        """How many steps there will be: of the track, else of another that counts the same steps, or none so far."""
        if track.total is not None or track.step is None:
            return track.total
        others = [self.tracks[source] for source in SOURCES if self.tracks[source].total is not None]
        same = (each for each in others if each.step is None or near(each.step, track.step))
        return next((each.total for each in same), None)

    def _values(self) -> dict[str, float]:
        """Of each value what the most trusted says that has one."""
        known: dict[str, float] = {}
        for source in reversed(SOURCES):
            known.update(self.tracks[source].values)
        return known

    def _source(self) -> str | None:
        """The most trusted of those that tell a step, else of those that tell anything; None where none does."""
        tracks = self.tracks.items()
        steps = [source for source, track in tracks if track.step is not None]
        return next(iter(steps or [source for source, track in tracks if track.values]), None)

    def _at(self) -> float:
        """When any source has last told a step: a callback speaks every five seconds at most."""
        return max(track.at for track in self.tracks.values())


def near(step: int, other: int) -> bool:
    """Whether two may count the same steps: sources speak of one some seconds apart."""
    return abs(step - other) <= 2 + max(step, other) // 50


def whole(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and 0 <= found <= MOST_STEPS else None


def number(value: Any) -> float | None:
    """Also one that is written as text; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def rounded(value: float | None) -> float | None:
    """To four digits: more of it would only be noise in status."""
    return None if value is None else float(f"{value:.4g}")


def quantile(ordered: list[float], share: float) -> float:
    """The least of them that so large a share of them does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]
