"""A ds_config by itself → its report."""

from collections.abc import Mapping
from typing import Any

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.status import Finding, World
from deepspeed_operator.cli.explanation import explained
from deepspeed_operator.cli.report import Options, Report, gravest_first, placed, problems
from deepspeed_operator.cli.sources import Format, Item, values
from deepspeed_operator.dsconfig.batch import KEYS
from deepspeed_operator.dsconfig.judgement import JudgementContext, judge
from deepspeed_operator.dsconfig.source import format_findings


def judged_configuration(item: Item, options: Options) -> Report:
    """Judge a configuration in the world that the options or its batch sizes say; without either, in every world."""
    config = values(item.root)
    world = world_of(config, options)
    size = world.size if world is not None else None
    circumstances = JudgementContext(size, options.version, options.accelerator, options.parallelism)
    verdict = judge(config, circumstances, "")
    findings = [*_format_findings(item), *verdict.findings]
    if options.explain:
        findings += explained(config, options.version, "")
    everything = gravest_first([*problems(item), *(placed(item, finding) for finding in findings)])
    if world is not None:
        world = world.model_copy(update={"data_parallel": verdict.data_parallel or world.data_parallel})
    return Report(item, None, world, verdict.batch, options.version, options.accelerator, everything)


def world_of(config: Mapping[str, Any], options: Options) -> World | None:
    """Return the world of the options, else that in which the three batch sizes multiply; None where neither says."""
    nodes, slots = options.nodes or 1, options.slots or 1
    if options.nodes is None and options.slots is None:
        train, micro, accumulation = (config.get(key) for key in KEYS)
        if type(train) is not int or type(micro) is not int or type(accumulation) is not int:
            return None
        slots, rest = divmod(train, micro * accumulation) if micro * accumulation > 0 else (0, 0)
        if slots < 1 or rest:
            return None
    return World(nodes=nodes, slots_per_node=slots, size=nodes * slots, data_parallel=nodes * slots)


def _format_findings(item: Item) -> list[Finding]:
    if item.source.format is Format.JSON:
        return format_findings(item.source.text.content, "")
    message = "a configuration in YAML: DeepSpeed reads JSON."
    fix = "Convert it, or put it into a DeepSpeedJob's spec.dsConfig."
    return [warning("", Code.YAML_CONFIGURATION, message, fix)]
