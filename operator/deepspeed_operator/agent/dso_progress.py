"""How far one round of the run is: what several sources say of it, each kept, and the most trusted one told by name.

Rank 0's agent alone has all of them. The sources' threads write, and the HTTP thread reads; a lock is held for each.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any, Callable, Mapping

from dso_pace import ToldSteps
from dso_progressbars import AGREED, Bars
from dso_progresslines import BAR, LIGHTNING, LOG, LONGEST, TRAINER, Statement, of_part, statements
from dso_progressranks import RankProgress
from dso_progresstrack import Track, near, values_of, whole
from dso_walltime import LastStep

SCRIPT, CALLBACK, ENGINE, CHECKPOINT = "Script", "KubeflowCallback", "DeepSpeedEngine", "Checkpoint"
# In the order in which they are trusted: the program's own word first, and what is drawn for people last.
SOURCES = (SCRIPT, CALLBACK, ENGINE, LOG, TRAINER, BAR, LIGHTNING, CHECKPOINT)
BARS = frozenset({BAR, LIGHTNING})  # which may count the steps since a start, and not those of the run


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
        with self.lock:
            track, engines = self.tracks[source], self.tracks[ENGINE].step
            track.take(step, total or None, values_of(facts), now)
            if step is not None and engines is not None:
                track.with_engine = near(step, engines)

    def take_output(self, text: bytes) -> None:
        """A tap on the ranks' output."""
        for statement in statements(text):
            self.take_line(statement, time.monotonic())

    def take_line(self, statement: Statement, now: float) -> None:
        source, facts = statement
        if source == BAR:
            with self.lock:
                self.bars.take(facts, now)
                self._choose_bar()
        elif "end" in facts:
            self.bars.training = False
        elif "batches" in facts:
            self.take(source, self.bars.counted(facts), now)
        else:
            self.bars.training = self.bars.training or "step" in facts or "loss" in facts
            self.bars.of_run = self.bars.of_run or "fraction" in facts
            of_epoch = "plain" in facts and self.bars.several
            self.take(source, {"loss": facts.get("loss"), "rate": facts.get("rate")} if of_epoch else facts, now)

    def look(self, partial: bytes = b"") -> None:
        """At rank 0's record, and at what it has written of a line that has not ended: a bar, perhaps."""
        for statement in of_part(partial[-LONGEST:].rpartition(b"\r")[2]) if b"%" in partial else ():
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
        with self.lock:
            self._choose_bar()

    def _choose_bar(self) -> None:
        taken = self.last_step.taken if self.last_step else 0
        self.tracks[BAR] = self.bars.of_training(self.tracks[ENGINE].step, taken)

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
            told = [(source, track) for source, track in self.tracks.items() if source not in (ENGINE, CHECKPOINT)]
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
        return source not in (*BARS, TRAINER) or near(step, engine) or (last is not None and near(step, last.taken))

    def _told_step(self) -> LastStep | None:
        """The last step that a source has told, where no engine of DeepSpeed's is seen."""
        with self.lock:
            source = self._source()
            track = self.tracks[source] if source is not None else None
            if source in (None, CHECKPOINT) or track is None or track.step is None:
                return None  # a checkpoint tells of many steps at once, long after they were made
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
        for source, each in self.tracks.items():
            agrees = each.step is None or near(each.step, track.step)
            early = source in BARS and track.step < AGREED
            if each.total is not None and each.total >= track.step and agrees and not early:
                return each.total
        return None

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


def rounded(value: float | None) -> float | None:
    """To four digits: more of it would only be noise in status."""
    return None if value is None else float(f"{value:.4g}")


def quantile(ordered: list[float], share: float) -> float:
    """The least of them that so large a share of them does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]
