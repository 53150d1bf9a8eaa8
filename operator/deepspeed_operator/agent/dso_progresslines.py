"""What output says of progress: DeepSpeed's own lines, those of transformers' Trainer, bars of tqdm and Lightning."""

from __future__ import annotations

import re
from typing import Iterator, Mapping, NamedTuple, Pattern

LOG, BAR, LIGHTNING, TRAINER = "DeepSpeedLog", "ProgressBar", "LightningBar", "TrainerLog"
LONGEST = 2000  # of a line that says something of this


class Statement(NamedTuple):
    """Who says it, and what: step, total, loss, rate, samples (a second), tokens (a second), batches (of an epoch)."""

    source: str
    facts: Mapping[str, str]


class Form(NamedTuple):
    """`holds` is quicker to look for than the pattern, and in each line that has it."""

    source: str
    holds: bytes
    pattern: Pattern[bytes]


_VALUE = rb"'?(?P<%s>-?[\w.+-]+)"
FORMS = (
    # steps_per_print, its throughput timer, and the pipeline engine
    Form(LOG, b", skipped=", re.compile(rb"step=(?P<step>\d+), skipped=\d+, lr=\[(?P<rate>[^],]+)")),
    Form(
        LOG,
        b"RunningAvgSamplesPerSec=",
        re.compile(rb"global_step=(?P<step>\d+), RunningAvgSamplesPerSec=(?P<samples>[\d.]+)"),
    ),
    Form(
        LOG,
        b"iter time (s): ",
        re.compile(rb"steps: (?P<step>\d+) loss: (?P<loss>\S+) .*samples/sec: (?P<samples>[\d.]+)"),
    ),
    Form(TRAINER, b"'loss': ", re.compile(rb"'loss': " + _VALUE % b"loss")),
    Form(TRAINER, b"'loss': ", re.compile(rb"'loss': .*'learning_rate': " + _VALUE % b"rate")),
    Form(LIGHTNING, b"Epoch ", re.compile(rb"^Epoch (?P<epoch>\d+): +\d+%\|[^|]*\| (?P<step>\d+)/(?P<batches>\d+) \[")),
    Form(LIGHTNING, b"loss=", re.compile(rb"^Epoch \d+: .*[ ,](?:train_)?loss(?:_step)?=(?P<loss>[\w.+-]+)")),
    # A bar without a name, as the Trainer's: of data, models and evaluations they have one, or end before.
    Form(BAR, b"%|", re.compile(rb"^(?:[Tt]rain\w*: |[Ss]teps: )? *\d+%\|[^|]*\| (?P<step>\d+)/(?P<total>\d+) \[")),
)


def statements(text: bytes) -> Iterator[Statement]:
    """What whole lines say. Those of another rank than 0 begin with its number, and say nothing here."""
    if not any(form.holds in text for form in FORMS):
        return
    for line in text.split(b"\n"):
        if not line.startswith(b"[rank "):
            for part in line.split(b"\r")[-2:]:  # a bar is drawn again and again, and erased for what is printed
                yield from of_part(part)


def of_part(part: bytes) -> Iterator[Statement]:
    """What a line says, or the last state of a bar that has not ended."""
    if len(part) <= LONGEST:
        for form in FORMS:
            match = form.pattern.search(part) if form.holds in part else None
            if match:
                groups = match.groupdict().items()
                yield Statement(form.source, {name: each.decode("ascii", "replace") for name, each in groups})


class Bars:
    """Which of several bars is the training's: the first that has begun and not ended.

    An evaluation has a bar, too, while the training's stands still.
    """

    def __init__(self) -> None:
        self.total: int | None = None  # of the bar that counts, until it is full

    def counts(self, step: int, total: int) -> bool:
        if self.total not in (None, total):
            return False
        self.total = None if step >= total else total
        return True
