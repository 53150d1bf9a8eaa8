"""What output says of progress: DeepSpeed's lines, those of trainers, and bars of tqdm and Lightning.

A line that may be of something else says nothing: no number is better than a wrong one. Which of several bars is the
training's is not decided here, but by dso_progressbars.Bars.
"""

from __future__ import annotations

import re
from typing import Iterable, Iterator, Mapping, NamedTuple, Pattern

LOG, BAR, LIGHTNING, TRAINER = "DeepSpeedLog", "ProgressBar", "LightningBar", "TrainerLog"
LONGEST = 8000  # of a line that says something of this: reinforcement learning has a hundred metrics


class Statement(NamedTuple):
    """Who says it, and what.

    step, total, loss, rate, samples (a second), tokens (a second); of an epoch's bar the epoch, epochs, last (epoch),
    batches, and zero: epochs count from 0. Of a bar its name; of an announced epoch its number alone. fraction: epochs
    are told in parts. plain: the steps may be those of an epoch. end: the training is over.
    """

    source: str
    facts: Mapping[str, str]


class Form(NamedTuple):
    """`holds` is quicker to look for than the pattern, and in each line that has it; `also`: what it may say, too.

    `of_any_rank`: one rank alone prints such lines, and need not be rank 0.
    """

    source: str
    holds: bytes
    pattern: Pattern[bytes]
    also: tuple[Pattern[bytes], ...] = ()
    of_any_rank: bool = False


_NUMBER = rb"[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|[nN]a[nN]|inf)"
# As a key of a dictionary, in Python or JSON, and as a word of a line. Of an evaluation, and of a part of the loss, the
# word stands behind another one.
_KEY = rb"""['"](?:%s)['"]: *['"]?"""
_WORD = rb"(?i:(?:^\s*|[,|;:(\[\])\-\d%%\x80-\xbf]\s*|\s\s)%s)"
_RATE_KEY = re.compile(_KEY % rb"learning_rate|lr" + rb"(?P<rate>" + _NUMBER + rb")")
_RATE = re.compile(_WORD % rb"(?:learning[ _]rate|lr)(?:\s*[:=]\s*| )" + rb"(?P<rate>" + _NUMBER + rb")")
_LOSS_NAME = rb"(?:(?:reduced_)?train(?:ing)?[ _/]|lm[ _]|step_|avr_|gpt_|total_)?loss(?:_step)?(?:\s*[:=]\s*|\s+)"
_LOSS_OF = _WORD % _LOSS_NAME + rb"(?:tensor\()?(?P<loss>" + _NUMBER + rb")"
_LOSS = re.compile(_LOSS_OF)
_SAMPLES = re.compile(rb"samples[ _/](?:per[ _])?sec(?:ond)?[:=] *(?P<samples>[\d.]+)")
_NO_EVALUATION = rb"(?i:(?:(?!\beval|\bval\b|\bvalid|\btest|\bdev\b|\bbest\b|%%\||['\"]%s).)*?)"
# What launchers put before a line: [rank0]:, [default0]:, [1,0]<stderr>:, 0:, (Worker pid=5).
_PREFIX = rb"^(?:\[(?:std(?:out|err)|[\w, ]*\d)\](?:<\w+>)?:? ?|\d+: |\(\w+ pid=[^)]*\) )?"
_FOREIGN_UNIT = rb"(?![^\],]*, *[\d.?]+ ?[kMG]?(?!it\b|iter|step|batch|s/)[A-Za-z]+/s)"
_DRAWN = rb"\d+%%(?:\|[^|]*\|)? +(?P<step>\d+)/(?P<%s>\d+) \[" + _FOREIGN_UNIT
_EPOCH = rb"(?i:train(?:ing)?(?: step of)? )?[Ee]poch[ #\[]*(?P<epoch>\d+)"
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
    # transformers' Trainer and what is made of it; others that print a dictionary; ms-swift's own key
    Form(TRAINER, b"'train_runtime': ", re.compile(rb"(?P<end>'train_runtime')")),
    Form(
        TRAINER,
        b"loss",
        re.compile(_KEY % rb"loss" + rb"(?P<loss>" + _NUMBER + rb")"),
        (
            _RATE_KEY,
            re.compile(_KEY % rb"(?:global_|current_)?step|current_steps" + rb"(?P<step>\d+)"),
            re.compile(_KEY % rb"(?:total|max)_steps" + rb"(?P<total>\d+)"),
            re.compile(_KEY % rb"epoch" + rb"(?P<fraction>\d+\.\d|(?<=')\d)"),  # of an epoch: as transformers tells it
        ),
    ),
    Form(
        TRAINER,
        b"'global_step/max_steps'",
        re.compile(_KEY % rb"global_step/max_steps" + rb"(?P<step>\d+)/(?P<total>\d+)"),
    ),
    # before the first step: of transformers and its examples, and Megatron's arguments
    Form(TRAINER, b"Total optimization steps = ", re.compile(rb"Total optimization steps = (?P<total>[\d,]+)")),
    Form(TRAINER, b"train_iters .", re.compile(rb"(?<!\w)train_iters \.+ (?P<total>\d+)")),
    # Megatron-LM and its kin, of which the last rank prints; NeMo; mmengine
    Form(
        TRAINER,
        b"iteration",
        re.compile(rb"\biteration[:=]? +(?P<step>\d+) ?/ *(?P<total>\d+) \| (?=.*loss)"),
        (_LOSS, _RATE, _SAMPLES),
        of_any_rank=True,
    ),
    Form(
        TRAINER,
        b"Iter(train) [",
        re.compile(rb"Iter\(train\) \[ *(?P<step>\d+)/(?P<total>\d+)\]"),
        (_LOSS, _RATE),
    ),
    # Lightning's bars, plain and rich, and those of loops that have one an epoch
    Form(
        LIGHTNING,
        b"poch ",
        re.compile(
            _PREFIX + _EPOCH + rb"(?:/(?P<epochs>\d+))?\]?(?:[ \-\[(]*(?i:train)\w*[\])]?)?: +" + _DRAWN % b"batches"
        ),
        (_LOSS, _RATE, re.compile(rb"(?P<zero>\bv_num)=")),
    ),
    Form(
        LIGHTNING,
        b"poch ",
        re.compile(_EPOCH + rb"/(?P<last>\d+) [^\d%|]+(?P<step>\d+)/(?P<batches>\d+) \d+:\d\d:\d\d "),
        (_LOSS, re.compile(rb"(?P<zero>\bv_num):")),
    ),
    # A bar without a name, as the Trainer's: of data, models and evaluations they have one, or end before.
    Form(
        BAR,
        b"%",
        re.compile(_PREFIX + rb" *(?:(?P<name>(?i:train\w*(?: progress| steps?)?|steps)): +)?" + _DRAWN % b"total"),
        (_LOSS, _RATE),
    ),
)
# What any program prints: taken from a line that says nothing else.
OTHERS = (
    Form(
        TRAINER,
        b"oss",
        re.compile(
            rb"^(?=.*"
            + _LOSS_OF.replace(rb"?P<loss>", rb"?:")
            + rb")"
            + _NO_EVALUATION % rb"|epoch|micro|inner|ppo"
            + rb"\b(?i:global[ _])?(?P<plain>(?i:step|iter|iteration))s?[ :=#\[]*"
            + rb"(?P<step>\d+(?:,\d{3})*) ?/ ?(?P<total>\d+(?:,\d{3})*)\b"
        ),
        (_LOSS, _RATE),
    ),
    Form(TRAINER, b"oss", re.compile(rb"^" + _NO_EVALUATION % rb"" + _LOSS_OF), (_RATE,)),
    # Not of a single one, which is all of the training.
    Form(
        BAR,
        b"poch",
        re.compile(rb"(?:^|[\]|:>#=*-] ?|ing (?:of )?)\W{0,4}[Ee]poch\b:?[ #\[]*(?P<epoch>\d+)\b(?! ?(?:/|of) ?1\b)"),
    ),
)
_RANK = re.compile(rb"^\[rank \d+\] ")  # the agent's own prefix, of all but rank 0
_ESCAPE = re.compile(rb"\x1b\[[\d;?]*[A-Za-z]")  # colours, and moves of the cursor
_HELD = frozenset(form.holds for form in FORMS + OTHERS)


def statements(text: bytes) -> Iterator[Statement]:
    """What whole lines say. Those of another rank than 0 begin with its number, and most say nothing here."""
    if not any(each in text for each in _HELD):
        return
    for line in text.split(b"\n"):
        other = _RANK.match(line)
        if other:
            yield from of_part(line[other.end() :], other=True)
            continue
        for part in line.split(b"\r")[-2:]:  # a bar is drawn again and again, and erased for what is printed
            yield from of_part(part)


def of_part(part: bytes, other: bool = False) -> Iterator[Statement]:
    """What a line says, or the last state of a bar that has not ended; `other`: of another rank than 0."""
    if len(part) > LONGEST:
        return
    if b"\x1b" in part:
        part = _ESCAPE.sub(b"", part)
    said = list(_said(part, FORMS, other))
    yield from said or _said(part, OTHERS, other)


def _said(part: bytes, forms: Iterable[Form], other: bool) -> Iterator[Statement]:
    for form in forms:
        if form.holds in part and (form.of_any_rank or not other):
            match = form.pattern.search(part)
            if match:
                found = [*(each.search(part) for each in form.also), match]
                groups = [(name, value) for one in found if one for name, value in one.groupdict().items() if value]
                plain = {name: value.decode("ascii", "replace").replace(",", "") for name, value in groups}
                yield Statement(form.source, plain)
