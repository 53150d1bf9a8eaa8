"""What `dsjob watch` draws of one moment of a job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from deepspeed_operator.cli.figures import duration, scaled, sparkline, steps, until
from deepspeed_operator.cli.job_rows import state
from deepspeed_operator.cli.job_view import JobView
from deepspeed_operator.dsconfig.wording import plural

_EVENTS: Final = 5
_LINES: Final = 8
_RANKS: Final = 10
_LABEL: Final = 9  # columns before what is said


_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class AgentAnswers:
    """What the agents tell. `states`: their answers, as docs/agent-protocol.md has them; `pods`: how many there are, of
    which more may not have been asked; `trouble`: why there is no answer of some, empty where there are all.
    """

    states: tuple[Mapping[str, Any], ...]
    pods: int
    trouble: str = ""

    @property
    def progress(self) -> Mapping[str, Any]:
        """What rank 0's agent tells, which is newer than the job's status."""
        told = (each["progress"] for each in self.states if each["index"] == 0)
        return next(told, None) or _NOTHING

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        """What each rank does, those that are behind first."""
        found = [rank for each in self.states for rank in each["rankSteps"]]
        return sorted(found, key=lambda rank: (rank["step"], rank["rank"]))


@dataclass(frozen=True, slots=True)
class Moment:
    """All that is drawn; `losses`: those that were seen so far, the oldest first; `lines`: the last of the log."""

    job: JobView
    ranks: AgentAnswers
    losses: Sequence[float]
    events: Sequence[Mapping[str, Any]]
    lines: Sequence[str]
    now: datetime


def frame(moment: Moment, width: int) -> RenderableType:
    """Return the picture for a terminal of so many columns."""
    parts = [
        *_head(moment.job),
        *_progress(moment, width),
        *_ranks(moment.ranks),
        *_events(moment),
        *_log(moment.lines),
    ]
    return Group(*parts)


def _head(job: JobView) -> Iterator[RenderableType]:
    begun = f", attempt {job.attempt}" if job.attempt else ""
    again = f", {plural(job.restarts, 'restart')}" if job.restarts else ""
    yield Text.assemble((job.name, "bold"), f" is {state(job)}{begun}{again}")
    if job.message:
        yield Text(job.message.splitlines()[0], style="dim", overflow="ellipsis", no_wrap=True)


def _progress(moment: Moment, width: int) -> Iterator[RenderableType]:
    told, known = moment.ranks.progress, moment.job.progress
    step, total = (told.get(name, known.get(name)) for name in ("step", "totalSteps"))
    if step is None:
        return
    left = told.get("secondsLeft")
    ends = duration(left) if left is not None else "" if known.get("stale") else until(known.get("eta"), moment.now)
    percent = f" {100 * step // total} %" if total else ""
    words = f"{steps(step, total)}{percent}{f', done in {ends}' if ends and not moment.job.finished else ''}"
    if known.get("stale") and not told:
        words += ", stale"
    if total:
        bar = Table.grid(padding=(0, 1, 0, 0))
        bar.add_row(
            ProgressBar(total=total, completed=step, width=max(10, min(40, width - len(words) - 10))), Text(words)
        )
        yield _labelled("step", bar)
    else:
        yield _labelled("step", Text(words))
    loss = told.get("loss") or known.get("loss")
    if loss:
        drawn = sparkline(list(moment.losses), max(0, min(60, width - len(loss) - _LABEL - 2)))
        yield _labelled("loss", Text(f"{loss} {drawn}".rstrip(), no_wrap=True))
    rates = [
        f"{scaled(told.get(name, known.get(name)))} {unit}"
        for name, unit in (("samplesPerSecond", "samples/s"), ("tokensPerSecond", "tokens/s"))
        if told.get(name, known.get(name)) is not None
    ]
    times = told.get("stepSeconds") or known.get("stepSeconds")
    rates += [f"{times['median']:.3g} s a step (p95 {times['p95']:.3g})"] if times else []
    if rates:
        yield _labelled("speed", Text(", ".join(rates), no_wrap=True, overflow="ellipsis"))


def _labelled(label: str, what: RenderableType) -> Table:
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_column(style="bold", width=_LABEL - 1)
    line.add_row(label, what)
    return line


def _ranks(ranks: AgentAnswers) -> Iterator[RenderableType]:
    found = ranks.steps
    if not found and not ranks.trouble:
        return
    asked = len(ranks.states)
    yield Rule(f"ranks{f' of {asked} of {ranks.pods} pods' if asked < ranks.pods else ''}", align="left", style="dim")
    if ranks.trouble:
        yield Text(ranks.trouble.splitlines()[-1], style="yellow", no_wrap=True, overflow="ellipsis")
    if not found:
        return
    most = max(each["step"] for each in found)
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("rank", "step", "behind", "last step", "does", "since"):
        drawn.add_column(heading, justify="left" if heading == "does" else "right", no_wrap=True)
    for each in found[:_RANKS]:
        ago = each["secondsSinceStep"]
        drawn.add_row(
            str(each["rank"]),
            str(each["step"]),
            str(most - each["step"] or ""),
            f"{duration(ago)} ago" if ago is not None else "",
            Text(each["phase"]),
            duration(each["secondsInPhase"]),
        )
    yield drawn
    if len(found) > _RANKS:
        yield Text(f"and {len(found) - _RANKS} more, none further behind", style="dim")


def _events(moment: Moment) -> Iterator[RenderableType]:
    told = sorted(filter(_time, moment.events), key=_time)[-_EVENTS:]
    if told:
        yield Rule("events", align="left", style="dim")
    for event in told:
        ago = duration((moment.now - datetime.fromisoformat(_time(event))).total_seconds())
        words = str(event.get("message", "")).splitlines() or [""]
        style = "yellow" if event.get("type") == "Warning" else ""
        line = Text(f"{ago:>6} ago  ", style="dim", no_wrap=True, overflow="ellipsis")
        yield line.append(f"{event.get('reason', '')}: {words[0]}", style=style)


def _time(event: Mapping[str, Any]) -> str:
    return event.get("lastTimestamp") or event.get("firstTimestamp") or ""


def _log(lines: Sequence[str]) -> Iterator[RenderableType]:
    if lines:
        yield Rule("last lines of rank 0", align="left", style="dim")
    yield from (Text(line, no_wrap=True, overflow="ellipsis") for line in lines[-_LINES:])
