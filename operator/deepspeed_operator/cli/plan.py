"""`dsjob plan`."""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.status import Level
from deepspeed_operator.api.untyped import object_at, present
from deepspeed_operator.cli import degrees
from deepspeed_operator.cli.arguments import KNOWN, version_number
from deepspeed_operator.cli.batches import contradiction, filled
from deepspeed_operator.cli.circumstances import UnknownCircumstancesError, circumstances, model_from
from deepspeed_operator.cli.circumstances import define as define_circumstances
from deepspeed_operator.cli.configurations import judged_configuration, world_of
from deepspeed_operator.cli.edits import CannotEditError
from deepspeed_operator.cli.jobs import RELEASED, WORKER_DEEPSPEED, Judged, judge_job
from deepspeed_operator.cli.numbers import within
from deepspeed_operator.cli.plan_lines import lines
from deepspeed_operator.cli.plan_record import record
from deepspeed_operator.cli.planned import Job, Planned
from deepspeed_operator.cli.ranks import ranks_of
from deepspeed_operator.cli.report import Options, failed
from deepspeed_operator.cli.rewriting import with_values
from deepspeed_operator.cli.show import error_lines, failure_lines
from deepspeed_operator.cli.sources import STDIN, Content, Item, read, values
from deepspeed_operator.dsconfig.parallelism import ParallelDegrees
from deepspeed_operator.dsconfig.tree import UnreadableError
from deepspeed_operator.dsconfig.versions import judge_of
from deepspeed_operator.job.precision import Precision, decided, undecided
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.engine.configured import configured
from deepspeed_operator.plan.engine.reading import setup_of
from deepspeed_operator.plan.memory.case import pod_limit
from deepspeed_operator.plan.model.architecture import UnknownModelError

FINE, NOT_PLANNED, UNREADABLE = 0, 1, 2


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "FILE is a DeepSpeedJob or a ds_config.json. What is not said of GPU and links is assumed, and shown as such. "
        "Ends with 0, 1 if a configuration has errors or no numbers to plan with, 2 if something cannot be read."
    )
    parser.add_argument("file", metavar="FILE")
    define_circumstances(parser)
    degrees.define(parser)
    parser.add_argument("--nodes", type=within(1, 10_000), metavar="N", help="pods, instead of spec.nodes")
    parser.add_argument("--slots", type=within(1, 1024), metavar="N", help="GPUs per pod, instead of spec.slotsPerNode")
    parser.add_argument(
        "--deepspeed-version",
        type=version_number,
        metavar="VERSION",
        help=f"DeepSpeed in the image; known are {KNOWN}, and another is judged as the next older one",
    )
    parser.add_argument(
        "--micro-batch", type=within(1, 10**6), metavar="N", help="samples of a micro batch, where the file says auto"
    )
    parser.add_argument(
        "--accumulation", type=within(1, 10**6), metavar="N", help="micro steps of a step, where the file says auto"
    )
    parser.add_argument(
        "--precision",
        choices=[each.value for each in Precision],
        help="of the passes, where the file says auto; else 16 bits, in the GPU's own type",
    )
    parser.add_argument(
        "--apply", type=within(1, 100), metavar="N", help="print the file with the Nth alternative in it"
    )
    parser.add_argument("--in-place", action="store_true", help="with --apply: write the file")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="for people or programs")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write a page for a review, which needs no other file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Say what a step costs and what would cost less."""
    senseless = _senseless(arguments)
    if senseless:
        print(f"dsjob plan: {senseless}", file=sys.stderr)
        return UNREADABLE
    try:
        content = read(arguments.file)
    except UnreadableError as error:
        print(*failure_lines(failed(arguments.file, error)), sep="\n", file=sys.stderr)
        return UNREADABLE
    if not content.items:
        print(f"{arguments.file}: no DeepSpeedJob and no configuration is in it", file=sys.stderr)
        return NOT_PLANNED
    try:
        planned, unplanned = _all(content, arguments)
    except (UnknownModelError, UnknownCircumstancesError) as error:
        print(f"dsjob plan: {error}", file=sys.stderr)
        return UNREADABLE
    for message in unplanned:
        print(message, file=sys.stderr)
    if arguments.apply is not None:
        return _apply(arguments, content, planned)
    if arguments.html is not None and planned:
        from deepspeed_operator.cli.plan_page import page  # noqa: PLC0415 -- who asks for none need not wait for it

        arguments.html.write_text(page(planned), encoding="utf-8")
    if arguments.output == "json":
        print(json.dumps([record(each) for each in planned], indent=2, ensure_ascii=False))
    else:
        print(*(line for each in planned for line in (*lines(each), "")), sep="\n")
    return FINE if planned and not unplanned else NOT_PLANNED


def _senseless(arguments: argparse.Namespace) -> str | None:
    if arguments.in_place and arguments.apply is None:
        return "--in-place writes the alternative of --apply N: add it."
    if arguments.fabric is not None and arguments.calibration is None:
        return "--fabric names a fabric in a calibration: add --calibration FILE."
    if arguments.micro_step is not None and arguments.calibration is not None:
        return "--calibration has measured what --micro-step says: leave one of them out."
    return None


def _all(content: Content, arguments: argparse.Namespace) -> tuple[list[Planned], list[str]]:
    planned: list[Planned] = []
    unplanned: list[str] = []
    for index, item in enumerate(content.items):
        judged = _judged(item, content, arguments)
        found = _planned(index, judged, arguments)
        if isinstance(found, str):
            unplanned.append(f"{judged.report.name or arguments.file}: {found}")
        else:
            planned.append(found)
    return planned, unplanned


def _judged(item: Item, content: Content, arguments: argparse.Namespace) -> Judged:
    options = Options(
        nodes=arguments.nodes,
        slots=arguments.slots,
        version=arguments.deepspeed_version,
        parallelism=arguments.parallelism,
    )
    if item.is_job:
        return judge_job(item, [content], options, RELEASED)
    if world_of(values(item.root), options) is None:
        options = replace(options, slots=1)
    return Judged(judged_configuration(item, options))


def _planned(index: int, judged: Judged, arguments: argparse.Namespace) -> Planned | str:
    """Return the plan, or why there is none."""
    report, spec = judged.report, judged.job.spec if judged.job is not None else None
    world = report.world
    # What a job without enough memory is refused for is what a plan is asked about.
    errors = (each.finding for each in report.findings if each.finding.level is Level.ERROR)
    if world is None or any(each.path != "spec.admission" for each in errors):
        return "\n".join(("it has errors", *error_lines(report)))
    config = _configuration(judged)
    if not config:
        return "its configuration is not in the file: plan one that has it"
    batch = filled(config, report.batch, world, arguments.micro_batch, arguments.accumulation)
    if isinstance(batch, str):
        return batch
    chosen = Precision(arguments.precision) if arguments.precision is not None else None
    senseless = contradiction(config, chosen)
    if senseless is not None:
        return senseless
    written = values(report.item.root) if report.item.is_job else {}
    model = model_from(arguments, object_at(written, "spec"))
    judge = judge_of(report.version or WORKER_DEEPSPEED)
    version = judge.version if judge else WORKER_DEEPSPEED
    ranks = ranks_of(arguments, spec)
    parallelism = ParallelDegrees(**object_at(written, "spec", "parallelism") | present(asdict(arguments.parallelism)))
    half = ranks.device.half if ranks.device is not None else Precision.BF16
    config, left = decided(batch.config, half, chosen), undecided(batch.config)
    setup = setup_of(config, world.size, version, parallelism)
    framework = batch.is_frameworks or (spec is not None and spec.training.integration is not Integration.NONE)
    around = circumstances(arguments, model, world, setup, micro=batch.micro, ranks=ranks, framework=framework)
    around = replace(around, parallelism=parallelism)
    assumed = () if report.version else (Fact("DeepSpeed", version, Source.ASSUMED),)
    options = Options(nodes=arguments.nodes, slots=arguments.slots)
    if not report.item.is_job and world_of(values(report.item.root), options) is None:
        assumed += (Fact("ranks", "1 (--nodes and --slots say how many)", Source.ASSUMED),)
    job = Job(
        index=index,
        name=report.name or arguments.file,
        config=config,
        micro=batch.micro,
        accumulation=batch.accumulation,
        world=world,
        around=around,
        facts=(*model.facts, *configured(setup, _source(left, chosen)), *around.facts, *assumed),
        version=report.version,
        gpus=ranks.gpus,
        device=ranks.name,
        limit=pod_limit(spec) if spec is not None else None,
        is_frameworks=batch.is_frameworks,
        undecided=left if chosen is None else (),
        peak=ranks.device.flops if ranks.device is not None else None,
    )
    return Planned(job)


def _source(left: tuple[str, ...], chosen: Precision | None) -> Source:
    """Return who says the precision."""
    return Source.DS_CONFIG if not left else Source.ASSUMED if chosen is None else Source.DECLARED


def _configuration(judged: Judged) -> dict[str, Any]:
    if judged.verdict is None:
        return values(judged.report.item.root)
    found = judged.verdict.configuration
    return found.values if found is not None else {}


def _apply(arguments: argparse.Namespace, content: Content, planned: list[Planned]) -> int:
    found = [each for each in planned if len(each.offers) >= arguments.apply]
    if len(found) != 1:
        which = "no" if not found else "more than one"
        print(
            f"dsjob plan: {which} configuration of {arguments.file} has alternative {arguments.apply}", file=sys.stderr
        )
        return NOT_PLANNED
    number: int = arguments.apply
    change = found[0].offers[number - 1].change
    if change.script.words:
        print(f"dsjob plan: in the script: {' and '.join(change.script.words)}", file=sys.stderr)
    try:
        text = with_values(content, found[0].job.index, change.values, change.script.facts)
    except (CannotEditError, UnreadableError) as error:
        print(f"dsjob plan: {error}", file=sys.stderr)
        return UNREADABLE
    if arguments.in_place and arguments.file != STDIN:
        Path(arguments.file).write_bytes(text.encode())
    else:
        print(text, end="")
    return FINE
