"""With which numbers of nodes a run may go on, as it is accepted: spec.elastic."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deepspeed_operator.api.elastic import RunElastic
from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding, World
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.elastic_sizes import ElasticSizes, elastic_sizes
from deepspeed_operator.dsconfig.judgement import JudgementContext
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.setup import written_stage
from deepspeed_operator.job.checkpoint_path import checkpoint_path
from deepspeed_operator.reconcile.admission.configuration import Configuration

_PATH: Final = "spec.elastic.minNodes"
_CONVERTED: Final = frozenset({"adam", "adamw"})
_SHOWN: Final = 60  # characters of a user's word
_TWO: Final = 2  # sizes: that of all nodes is always one


@dataclass(frozen=True, slots=True)
class ElasticRun:
    """The sizes of a run; None where it has only the one that it asks for."""

    sizes: RunElastic | None
    findings: tuple[Finding, ...] = ()


def elastic_run(job: DeepSpeedJob, world: World, source: Configuration | None, context: JudgementContext) -> ElasticRun:
    """Return the sizes of a run that is accepted with this world and configuration, and what is to be said of them."""
    elastic = job.spec.elastic
    if elastic is None:
        return ElasticRun(None)
    config = source.values if source is not None else None
    converts = config is not None and not loads_with_any_ranks(config)
    if config is not None and converts and (why := _not_convertible(job.spec, config, context.parallelism)):
        message = (
            "does nothing: ZeRO and bf16 divide the optimizer's states among the ranks, such a checkpoint loads with "
            f"as many ranks as have saved it, and it cannot be made universal here: {why}."
        )
        fix = (
            "Correct that, or make it universal in the program (deepspeed.checkpoint.ds_to_universal) and write "
            "checkpoint.load_universal: true in dsConfig, or remove it."
        )
        return ElasticRun(None, (warning(_PATH, Code.ELASTIC_CHECKPOINT, message, fix),))
    found = elastic_sizes(config, context, world.slots_per_node, elastic.min_nodes, world.nodes)
    said = tuple(_remarks(found, elastic.min_nodes, world.nodes))
    if len(found.sizes) < _TWO:
        return ElasticRun(None, said)
    return ElasticRun(RunElastic(nodes=world.nodes, sizes=list(found.sizes), converts=converts or None), said)


def _not_convertible(spec: DeepSpeedJobSpec, config: Mapping[str, Any], declared: ParallelDegrees) -> str | None:
    """Return why DeepSpeed's converter cannot make a universal checkpoint of the run's; None: it can."""
    saved, optimizer = checkpoint_path(spec), object_at(config, "optimizer").get("type")
    tensor, experts = object_at(config, "tensor_parallel").get("autotp_size"), object_at(config, "expert_parallel")
    divided = any((each or 1) > 1 for each in (declared.tensor, declared.pipeline, declared.expert))
    if divided or tensor not in {None, 0, 1} or experts:
        return "its ranks divide layers or experts, too"
    if written_stage(config) == 0:
        return "at stage 0 they are as the version of DeepSpeed has them"
    if isinstance(optimizer, str) and optimizer.lower() not in _CONVERTED:
        return f"the converter knows the states of Adam, not those of {optimizer[:_SHOWN]}"
    if object_at(config, "checkpoint").get("use_node_local_storage"):
        return "each node has a part of it (checkpoint.use_node_local_storage)"
    if saved is None:
        return "it is not known where the run saves (spec.checkpoint.path)"
    return f"{saved.path} is on no volume" if saved.on_object_store else None


def loads_with_any_ranks(config: Mapping[str, Any]) -> bool:
    """Whether DeepSpeed loads a checkpoint of this configuration with another number of ranks than have saved it."""
    bf16 = any(object_at(config, each).get("enabled", False) is not False for each in ("bf16", "bfloat16"))
    return (written_stage(config) == 0 and not bf16) or object_at(config, "checkpoint").get("load_universal") is True


def without_too_small(run: ElasticRun, too_small: Container[int]) -> ElasticRun:
    """Return the sizes without those numbers of nodes, whose GPUs have certainly not the memory."""
    if run.sizes is None or not any(each.nodes in too_small for each in run.sizes.sizes):
        return run
    left = [each for each in run.sizes.sizes if each.nodes not in too_small]
    least = f"{left[0].nodes} are the fewest that do" if len(left) > 1 else "only all of them do"
    message = f"with fewer nodes the GPUs have certainly not the memory that each rank then needs: {least}."
    said = warning(
        _PATH, Code.ELASTIC_SIZES, message, "Raise it, or choose a ZeRO stage or offloading that needs less."
    )
    sizes = run.sizes.model_copy(update={"sizes": left}) if len(left) > 1 else None
    return ElasticRun(sizes, (*run.findings, said))


def _remarks(found: ElasticSizes, fewest: int, nodes: int) -> Iterator[Finding]:
    if fewest < nodes and found.why is not None and len(found.sizes) < _TWO:
        message = f"no number of nodes from {fewest} to {nodes - 1} trains what all {nodes} do: {found.why}"
        fix = "Lower it, or change the batch sizes so that fewer ranks divide them; until then the run has all or none."
        yield warning(_PATH, Code.ELASTIC_SIZES, message, fix)
    if len(found.sizes) >= _TWO and not found.batch_is_kept:
        message = (
            "with fewer nodes an optimizer step has fewer samples: the program or its framework says the batch sizes, "
            "and dsConfig does not."
        )
        fix = "Write the three batch sizes in dsConfig as numbers, where nothing else sets them, or accept it."
        yield warning(_PATH, Code.ELASTIC_BATCH, message, fix)
