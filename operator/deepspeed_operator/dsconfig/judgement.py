"""The verdict on one configuration in one world."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.status import Batch, Finding, Level
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.advice import advice_notes
from deepspeed_operator.dsconfig.auto import auto_notes, auto_paths
from deepspeed_operator.dsconfig.batch import Derived, derive_batch
from deepspeed_operator.dsconfig.combinations import combination_notes
from deepspeed_operator.dsconfig.credentials import credential_notes
from deepspeed_operator.dsconfig.engine import engine_notes
from deepspeed_operator.dsconfig.ignored import ignored_notes
from deepspeed_operator.dsconfig.lightning import as_filled_in, lightning_notes
from deepspeed_operator.dsconfig.misspelt import misspelt
from deepspeed_operator.dsconfig.notes import CheckPhase, Note, advice, warning
from deepspeed_operator.dsconfig.parallelism import Division, ParallelDegrees, divide, worlds
from deepspeed_operator.dsconfig.schema import Schema, schema_of
from deepspeed_operator.dsconfig.sections import Reading
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.dsconfig.versions import SUPPORTED, judge_of, numbers_of, ranges
from deepspeed_operator.dsconfig.wrong_conditions import RunCase
from deepspeed_operator.dsconfig.wrong_results import wrong_result_notes

_ORDER: Final = list(Level)
_OF_VALUES: Final = frozenset({Code.LOOSE_TYPE, Code.AUTO_UNFILLED})  # remarks on what DeepSpeed takes a value for
ELASTICITY: Final = "elasticity"


@dataclass(frozen=True, slots=True)
class JudgementContext:
    """What a verdict depends on besides the configuration. Without a version every supported one is asked.

    `world`: the number of ranks; None: nobody knows, and what only some worlds are told is not told.
    `integration`: the framework that hands the configuration to DeepSpeed, as the job names it; None: nobody knows.
    """

    world: int | None
    version: str | None = None
    accelerator: str | None = None
    parallelism: ParallelDegrees = field(default_factory=ParallelDegrees)
    integration: Integration | None = None


@dataclass(frozen=True, slots=True)
class VersionVerdict:
    """What a configuration comes to; `batch` is None where it contradicts itself."""

    notes: tuple[Note, ...]
    batch: Batch | None
    division: Division
    version: str

    @property
    def refused(self) -> bool:
        return any(note.level is Level.ERROR for note in self.notes)

    @property
    def samples_per_step(self) -> int | None:
        """Samples that one optimizer step really consumes, over all ranks."""
        batch, shards = self.batch, self.division.shards
        if batch is None or batch.micro_per_gpu is None or batch.accumulation is None or shards is None:
            return None
        return batch.micro_per_gpu * batch.accumulation * shards


@dataclass(frozen=True, slots=True)
class ConfigJudgement:
    """A verdict in the words of the API. Without a configuration there is none."""

    batch: Batch | None
    findings: tuple[Finding, ...]
    data_parallel: int | None = None
    judged_as: str | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is Level.ERROR)


def judge(config: Mapping[str, Any] | None, context: JudgementContext, where: str = "spec.dsConfig") -> ConfigJudgement:
    """Judge a configuration; `where` is the path of its source in the job. None: the program builds it in code."""
    if config is None:
        return ConfigJudgement(None, ())
    verdict = validate(config, context)
    divided = {"data_parallel_ranks": verdict.division.divisor, "samples_per_step": verdict.samples_per_step}
    return ConfigJudgement(
        batch=verdict.batch.model_copy(update=divided) if verdict.batch is not None else None,
        findings=tuple(note.finding(where) for note in verdict.notes),
        data_parallel=verdict.division.shards,
        judged_as=verdict.version,
    )


def validate(config: Mapping[str, Any], context: JudgementContext) -> VersionVerdict:
    """Say everything there is to say about a configuration, the gravest first."""
    if context.world is None:
        return _in_any_world(config, context)
    judge_version = judge_of(context.version) if context.version else None
    if judge_version is None:
        return _by_all(config, context)
    verdict = _as_meant(schema_of(judge_version.version), config, context)
    if not judge_version.remark:
        return verdict
    fix = "Compare the release notes of the two, or use a version that is known here."
    remark = advice((), Code.JUDGED_AS, judge_version.remark, fix)
    notes = verdict.notes
    if judge_version.next_newer is not None and verdict.refused:
        newer = _as_meant(schema_of(judge_version.next_newer), config, context)
        notes = tuple(_between(verdict, newer))
    return _with(verdict, (*notes, remark, *_since(config, judge_version.version, context.version)))


def _between(older: VersionVerdict, newer: VersionVerdict) -> Iterator[Note]:
    """Yield the older one's notes: what the newer one does not refuse, the version between them may not, either."""
    refused = {(note.path, note.code) for note in newer.notes if note.level is Level.ERROR}
    for note in older.notes:
        certain = note.phase is CheckPhase.SILENT or (note.path, note.code) in refused
        if note.level is not Level.ERROR or certain:
            yield note
        else:
            who = f"DeepSpeed {older.version} rejects this, and {newer.version} does not"
            yield replace(note, level=Level.WARNING, message=f"{who}: {note.message}")


def _since(config: Mapping[str, Any], judged_as: str, declared: str | None) -> Iterator[Note]:
    """Yield what is known to mean something else in a version than in the older one that it is judged as."""
    from deepspeed_operator.dsconfig.migration import Kind, steps  # noqa: PLC0415  # its table is large, and seldom asked

    for step in steps(dict(config), judged_as, declared or judged_as):
        if step.kind in {Kind.DEFAULT, Kind.BEHAVIOUR}:
            path = tuple(step.path.split(".")) if step.path else ()
            yield advice(path, Code.CHANGED_DEFAULT, f"since DeepSpeed {step.since}, {step.message}", step.fix)


def _as_meant(schema: Schema, config: Mapping[str, Any], context: JudgementContext) -> VersionVerdict:
    """Judge by one version's schema; beside an error about a misspelt key, all else as if it were spelt right."""
    verdict = validate_for(schema, config, context)
    errors = [note for note in verdict.notes if note.code is Code.MISSPELT_KEY]
    if not errors:
        return verdict
    names = {note.path[0]: misspelt(schema, config, str(note.path[0])) or "" for note in errors}
    spelt = {names.get(key, key): value for key, value in config.items()}
    rest = validate_for(schema, spelt, context)
    # What is wrong below the right name has no place in the text yet.
    beside = (note for note in rest.notes if note.path[:1] not in {(name,) for name in names.values()})
    return _with(rest, (*errors, *beside))


def validate_for(schema: Schema, config: Mapping[str, Any], context: JudgementContext) -> VersionVerdict:
    """Judge by one version's schema, in a world that is known."""
    assert context.world is not None, "validate() asks several worlds instead"
    autos, given = auto_paths(config), config
    lightning = context.integration is Integration.LIGHTNING
    if lightning:
        config = as_filled_in(given)
    reading = Reading(schema, config)
    division = divide(schema, config, context.world, context.parallelism)
    derived = _batch(schema, config, division)
    if "pipeline" in config and context.parallelism.pipeline is None:
        derived = replace(derived, notes=[_of_a_pipeline(note) for note in derived.notes])
    setup = Setup(
        schema=schema,
        config=config,
        models=reading.models,
        division=division,
        world=context.world,
        accelerator=context.accelerator,
        integration=context.integration,
        declared=numbers_of(context.version) if context.version else None,
    )
    notes = [*reading.notes, *division.notes, *derived.notes, *combination_notes(setup)]
    notes += [*engine_notes(setup), *ignored_notes(setup, derived.batch, bool(autos))]
    accumulation = derived.batch.accumulation if derived.batch is not None else None
    of_framework = (
        lightning_notes(given, autos, division.divisor) if lightning else auto_notes(autos, context.integration)
    )
    notes += [*of_framework, *advice_notes(setup, accumulation)]
    notes += [*credential_notes(config), *wrong_result_notes(RunCase(setup, accumulation, bool(autos)))]
    return _with(VersionVerdict((), derived.batch, division, schema.version), _unrepeated(notes))


def _in_any_world(config: Mapping[str, Any], context: JudgementContext) -> VersionVerdict:
    """Say what holds whatever the world: in that of one rank, and in those that the configuration's sizes fit into."""
    sizes = worlds(config, context.parallelism)
    verdicts = [validate(config, replace(context, world=size)) for size in sizes]
    places = [{(note.path, note.code, note.level) for note in each.notes} for each in verdicts]
    common = places[0].intersection(*places[1:])
    notes = (note for note in verdicts[0].notes if (note.path, note.code, note.level) in common)
    return VersionVerdict(tuple(notes), None, Division(None, None), verdicts[0].version)


def _batch(schema: Schema, config: Mapping[str, Any], division: Division) -> Derived:
    if ELASTICITY not in schema.removed and object_at(config.get(ELASTICITY)).get("enabled"):
        message = "elastic training computes the batch sizes when it starts; they are not computed here."
        return Derived(
            None,
            [warning((ELASTICITY,), Code.ELASTIC_TRAINING, message, "Newer versions of DeepSpeed have removed it.")],
        )
    if division.divisor is None:
        return Derived(None)
    return derive_batch(config, division.divisor)


def _of_a_pipeline(note: Note) -> Note:
    """Pipeline parallelism is the script's: the section says nothing about it."""
    hint = " If the script runs a pipeline, declare spec.parallelism.pipeline."
    return replace(note, fix=note.fix + hint) if note.code is Code.BATCH_SIZE else note


def _by_all(config: Mapping[str, Any], context: JudgementContext) -> VersionVerdict:
    """Without a version: what all refuse is an error; what some refuse is a warning that names them."""
    verdicts = [_as_meant(schema_of(version), config, context) for version in reversed(SUPPORTED)]
    newest = verdicts[0]
    saying: dict[tuple[object, ...], tuple[Note, set[str]]] = {}
    for verdict in verdicts:
        for note in verdict.notes:
            saying.setdefault((note.level, note.path, note.code), (note, set()))[1].add(verdict.version)
    notes = [_for_versions(note, versions) for note, versions in saying.values()]
    if all(verdict.refused for verdict in verdicts) and not any(note.level is Level.ERROR for note in notes):
        # Each refuses it for a reason of its own.
        notes = [*(note for note in newest.notes if note.level is Level.ERROR), *notes]
    return _with(newest, _unrepeated(notes))


def _for_versions(note: Note, versions: set[str]) -> Note:
    if len(versions) == len(SUPPORTED):
        return note
    level = Level.WARNING if note.level is Level.ERROR else note.level
    refused = note.level is Level.ERROR and note.phase is not CheckPhase.SILENT
    who = f"DeepSpeed {ranges(versions)} rejects this" if refused else f"With DeepSpeed {ranges(versions)}"
    return replace(note, level=level, message=f"{who}: {note.message}")


def _unrepeated(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Keep one note for a code and place, and no remark about a key beside the refusal of it."""
    kept: dict[tuple[object, ...], Note] = {}
    for note in notes:
        kept.setdefault((note.path, note.code), note)
    for path, code in list(kept):
        if code in {Code.MISSPELT_KEY, Code.UNKNOWN_KEY}:  # what other versions do with the key is of less weight
            kept.pop((path, Code.IGNORED_KEY), None)
    refused = {note.path for note in kept.values() if note.level is Level.ERROR}
    return tuple(note for note in kept.values() if note.code not in _OF_VALUES or note.path not in refused)


def _with(verdict: VersionVerdict, notes: tuple[Note, ...]) -> VersionVerdict:
    return replace(verdict, notes=tuple(sorted(notes, key=lambda note: _ORDER.index(note.level))))
