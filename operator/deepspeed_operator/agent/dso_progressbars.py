"""Which of the bars that are drawn is the training's, and what it counts.

Data, models and evaluations have bars, too, and many a program has one for each epoch, whose end is not the training's.
"""

from __future__ import annotations

from typing import Mapping

from dso_progresstrack import Track, near, values_of, whole

MOST = 16  # bars that are kept
AGREED = 3  # steps after which counts that agree are no accident: micro steps are as many or more


class Bar(Track):
    """One bar, or several with the same total, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = 0  # its own step
        self.begun_again = 0
        self.trains = False  # it has moved while the program trained


class Bars:
    """The caller holds a lock."""

    def __init__(self) -> None:
        self.bars: dict[int, Bar] = {}  # by their totals, in the order in which they came
        self.training = False  # the program has told a step or a loss, and not its end
        self.of_run = False  # a Trainer of transformers has one bar for all epochs
        self.epochs = False  # there are several, by what the program prints
        self.from_zero = False  # they are counted so
        self.values: dict[str, float] = {}  # of all: only a bar of the training has a loss
        self.none = Track()
        self.none.values = self.values

    @property
    def several(self) -> bool:
        """Whether what has a total may be one epoch of several."""
        return self.epochs and not self.of_run

    def take(self, facts: Mapping[str, str], now: float) -> None:
        """A bar of the training, perhaps, or an epoch that is announced."""
        step, total = whole(facts.get("step")), whole(facts.get("total"))
        if step is None or not total:
            self.epochs = self.epochs or "epoch" in facts
            return
        if not step:
            return  # it may never move, as one of several of Lightning 1
        if total not in self.bars and len(self.bars) >= MOST:
            idle = next((other for other, bar in self.bars.items() if not bar.trains), None)
            if idle is None:
                return
            del self.bars[idle]
        bar = self.bars.setdefault(total, Bar())
        bar.values = self.values
        if step < bar.drawn and not near(step, bar.drawn):
            bar.begun_again += bar.trains
        bar.trains = bar.trains or "name" in facts or "loss" in facts or (self.training and step != bar.drawn)
        bar.drawn = step
        of_epoch = bar.begun_again > 0 or (self.several and "steps" not in facts.get("name", "").lower())
        bar.total = None
        bar.take(
            bar.begun_again * total + step,
            None if of_epoch else total,
            values_of(facts) if "loss" in facts else {},
            now,
        )

    def of_training(self, engine: int | None, taken: int) -> Track:
        """The one that counts the steps of DeepSpeed's engine, or those that it has `taken` here.

        Before a few steps that is none. Without an engine: the first that has moved while the program trained.
        """
        agree = [
            bar
            for bar in self.bars.values()
            if any(near(bar.step or 0, each) for each in (engine or 0, taken) if each >= AGREED)
        ]
        if agree:
            # A bar of data that has long ended stands at some number, too, which the steps pass.
            return max(agree, key=lambda bar: bar.at)
        return next((bar for bar in self.bars.values() if bar.trains and engine is None), self.none)

    def counted(self, facts: Mapping[str, str]) -> dict[str, str | int]:
        """What the bar of an epoch says, as steps of the run are counted: batches, over all epochs."""
        names = ("epoch", "batches", "step", "epochs", "last")
        epoch, batches, step, epochs, last = (whole(facts.get(name)) or 0 for name in names)
        self.from_zero = self.from_zero or epoch == 0 or "zero" in facts
        epochs = last + 1 if "last" in facts else 0 if self.from_zero else epochs
        passed = epoch if self.from_zero else epoch - 1
        total = epochs * batches
        step += passed * batches
        return {**facts, "step": step, "total": total if total >= step else 0}
