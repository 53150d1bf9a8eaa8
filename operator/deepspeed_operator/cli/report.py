"""What `dsjob validate` is asked, and what it says, before that is written down for people or programs."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.status import Batch, Finding, Level, World
from deepspeed_operator.cli.places import Span, span_at
from deepspeed_operator.cli.sources import Item, PlacedError, SourceText
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.tree import Problem, UnreadableError, path_at


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says instead of the job, or beside the configuration."""

    nodes: int | None = None
    slots: int | None = None
    version: str | None = None
    accelerator: str | None = None
    launcher: str | None = None
    python: str | None = None
    explain: bool = False
    parallelism: ParallelDegrees = field(default_factory=ParallelDegrees)


@dataclass(frozen=True, slots=True)
class Placed:
    """A finding, and the places of the text that it is about."""

    finding: Finding
    spans: tuple[Span, ...]
    source: SourceText  # of the places: a job's configuration may stand in another file


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on one job or configuration; `world` is None where none is known, or the job is too wrong."""

    item: Item
    name: str | None
    world: World | None
    batch: Batch | None
    version: str | None
    accelerator: str | None
    findings: tuple[Placed, ...]
    ignored: int = 0  # so many more there are, which nobody wants to see

    def count(self, level: Level) -> int:
        return sum(placed.finding.level is level for placed in self.findings)

    def without(self, codes: Collection[str]) -> "Report":
        """Return the report without the findings of these codes; errors stay."""
        kept = [each for each in self.findings if each.finding.level is Level.ERROR or each.finding.code not in codes]
        return replace(self, findings=tuple(kept), ignored=len(self.findings) - len(kept))


@dataclass(frozen=True, slots=True)
class InputFailure:
    """Why a file is no configuration at all."""

    name: str
    message: str
    fix: str
    source: SourceText | None = None
    position: int | None = None


def failed(name: str, error: UnreadableError) -> InputFailure:
    """Return why the file of this name is no configuration."""
    source = error.source if isinstance(error, PlacedError) else None
    return InputFailure(name, error.message, error.fix, source, error.position)


def placed(item: Item, finding: Finding) -> Placed:
    """Give a finding about the item its place."""
    return Placed(finding, (span_at(item.root, finding.path),), item.source)


def problems(item: Item) -> list[Placed]:
    """Return what is wrong with the text of the item."""
    return [problem_at(path_at(item.root, each.spans[-1][0]), each, item.source) for each in item.problems]


def problem_at(path: str, problem: Problem, source: SourceText, spans: tuple[Span, ...] | None = None) -> Placed:
    """Return a problem of the text as a finding; `spans` are those in the file, where the text is only part of it."""
    finding = error(path, Code.INVALID_TEXT, problem.message, problem.fix)
    return Placed(finding, spans or problem.spans, source)


def gravest_first(findings: Iterable[Placed]) -> tuple[Placed, ...]:
    """Return the findings: errors, warnings, advice, and within a level as they stand in the text."""
    order = list(Level)
    return tuple(sorted(findings, key=lambda each: (order.index(each.finding.level), each.spans[0])))
