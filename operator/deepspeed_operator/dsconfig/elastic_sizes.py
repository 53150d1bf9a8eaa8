"""With which numbers of nodes a configuration trains as it does with all of them.

The global batch and the micro batch stay, so that fewer ranks make more micro steps: gradient_accumulation_steps is the
one key that another number of nodes may want. Where a framework fills the batch sizes in, they are its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepspeed_operator.api.elastic import MAX_SIZES, ElasticSize
from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.status import Batch, Level
from deepspeed_operator.dsconfig.batch import ACCUMULATION, MICRO, TRAIN, derive, read_batch_keys
from deepspeed_operator.dsconfig.judgement import JudgementContext, VersionVerdict, validate
from deepspeed_operator.dsconfig.parallelism import divide
from deepspeed_operator.dsconfig.schema import schema_of
from deepspeed_operator.dsconfig.versions import SUPPORTED
from deepspeed_operator.dsconfig.wording import plural


@dataclass(frozen=True, slots=True)
class ElasticSizes:
    """The sizes that a run may have, the fewest nodes first, and why the largest of the others is none.

    `why`: None where every number of the range is one, or is left out only because there are so many.
    `batch_is_kept`: whether the global batch stays; a framework that fills it in takes what its arguments say.
    """

    sizes: tuple[ElasticSize, ...]
    why: str | None
    batch_is_kept: bool


def elastic_sizes(
    config: Mapping[str, Any] | None, context: JudgementContext, slots: int, fewest: int, most: int
) -> ElasticSizes:
    """Return the numbers of nodes, `fewest` to `most`, for which DeepSpeed accepts the configuration.

    `config`: as it is with `most` nodes, for which it was accepted; None: the program makes it. `slots`: ranks a node.
    `context`: its world is not looked at.
    """
    if config is None:
        candidates, refusals = _by_degrees(context, slots, fewest, most)
        return ElasticSizes(_spread(candidates), _first(refusals), batch_is_kept=False)
    full = validate(config, replace(context, world=most * slots))
    kept = _is_kept(config, context, full)
    sizes: list[ElasticSize] = []
    refusals: dict[int, str] = {}
    for nodes in range(fewest, most):
        fitting = _with_nodes(config, context, full, nodes * slots) if kept else config
        if isinstance(fitting, str):
            refusals[nodes] = fitting
        else:
            sizes.append(ElasticSize(nodes=nodes, data_parallel=0, accumulation=_changed(fitting, config)))
    judged: list[ElasticSize] = []
    for size in _spread(sizes):
        verdict = validate(with_accumulation(config, size.accumulation), replace(context, world=size.nodes * slots))
        refused = next((note for note in verdict.notes if note.level is Level.ERROR), None)
        if refused is None:
            judged.append(_judged(size, verdict, size.nodes * slots))
        else:
            refusals[size.nodes] = refused.message
    judged.append(_judged(ElasticSize(nodes=most, data_parallel=0), full, most * slots))
    return ElasticSizes(tuple(judged), _first(refusals), kept)


def with_accumulation(config: Mapping[str, Any], accumulation: int | None) -> dict[str, Any]:
    """Return the configuration with so many micro steps; None: as it is."""
    return {**config, **({ACCUMULATION: accumulation} if accumulation is not None else {})}


def _is_kept(config: Mapping[str, Any], context: JudgementContext, full: VersionVerdict) -> bool:
    """Whether the batch sizes are the configuration's own."""
    given = read_batch_keys(config)
    known = full.batch is not None and None not in {full.batch.train, full.batch.micro_per_gpu}
    return known and not given.auto and context.integration is not Integration.LIGHTNING


def _with_nodes(
    config: Mapping[str, Any], context: JudgementContext, full: VersionVerdict, world: int
) -> dict[str, Any] | str:
    """Return the configuration by which the batch stays as it is in the full world, or why there is none."""
    divided = divide(schema_of(full.version), config, world, context.parallelism)
    refused = next((note for note in divided.notes if note.level is Level.ERROR), None)
    if refused is not None or divided.divisor is None:
        return refused.message if refused is not None else f"{plural(world, 'rank')} cannot be divided so."
    batch = full.batch or Batch()
    train, micro = batch.train or 0, batch.micro_per_gpu or 1
    accumulation, rest = divmod(train, micro * divided.divisor)
    if rest or not accumulation:
        return (
            f"{TRAIN} {train} is no multiple of micro batch {micro} × {divided.divisor} data-parallel ranks, so that "
            "no accumulation keeps it."
        )
    numbers = read_batch_keys(config).numbers
    wanted = {TRAIN: train, MICRO: micro, ACCUMULATION: accumulation}
    return dict(config) if derive(numbers, divided.divisor) == wanted else with_accumulation(config, accumulation)


def _changed(fitting: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    now: Any = fitting.get(ACCUMULATION)
    return None if now == config.get(ACCUMULATION) else now


def _judged(size: ElasticSize, verdict: VersionVerdict, world: int) -> ElasticSize:
    divided = {"data_parallel_ranks": verdict.division.divisor, "samples_per_step": verdict.samples_per_step}
    batch = verdict.batch.model_copy(update=divided) if verdict.batch is not None else None
    return size.model_copy(update={"data_parallel": verdict.division.shards or world, "batch": batch})


def _by_degrees(
    context: JudgementContext, slots: int, fewest: int, most: int
) -> tuple[list[ElasticSize], dict[int, str]]:
    """Divide the ranks as the job declares it: nothing else is known of a configuration that the program makes."""
    sizes: list[ElasticSize] = []
    refusals: dict[int, str] = {}
    for nodes in range(fewest, most + 1):
        divided = divide(schema_of(SUPPORTED[-1]), {}, nodes * slots, context.parallelism)
        refused = next((note for note in divided.notes if note.level is Level.ERROR), None)
        if refused is None:
            sizes.append(ElasticSize(nodes=nodes, data_parallel=divided.shards or nodes * slots))
        else:
            refusals[nodes] = refused.message
    return sizes, refusals


def _spread(sizes: Iterable[ElasticSize]) -> tuple[ElasticSize, ...]:
    """Return as many as a status holds beside that of all nodes: the fewest, the most and some between."""
    every = tuple(sizes)
    room = MAX_SIZES - 1
    if len(every) <= room:
        return every
    return tuple(every[round(at * (len(every) - 1) / (room - 1))] for at in range(room))


def _first(refusals: Mapping[int, str]) -> str | None:
    if not refusals:
        return None
    nodes = max(refusals)
    return f"with {plural(nodes, 'node')}: {refusals[nodes]}"
