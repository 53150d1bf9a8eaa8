"""`dsjob plan`."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.api.status import Level
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.cli.configurations import judged_configuration
from deepspeed_operator.cli.jobs import WORKER_DEEPSPEED, judged_job
from deepspeed_operator.cli.planned import Planned, lines, record
from deepspeed_operator.cli.report import Options, Report
from deepspeed_operator.cli.sources import read, values
from deepspeed_operator.dsconfig.tree import Unreadable
from deepspeed_operator.dsconfig.versions import judge_of
from deepspeed_operator.plan.advice import Circumstances, advise, plan_of
from deepspeed_operator.plan.facts import model_of
from deepspeed_operator.plan.model import Model, UnknownModelError
from deepspeed_operator.plan.steptime import Speeds

FINE, NOT_PLANNED, UNREADABLE = 0, 1, 2
_GB: Final = 10**9
_GIB: Final = 2**30


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "FILE is a DeepSpeedJob or a ds_config.json. A time needs --micro-step and the speed of the link that limits "
        "it. Ends with 0, 1 if a configuration has errors or no numbers to plan with, 2 if something cannot be read."
    )
    parser.add_argument("file", metavar="FILE")
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", metavar="FILE", help="the model's Hugging Face config.json")
    model.add_argument("--parameters", type=_positive, metavar="N", help="the model's parameters, such as 7e9")
    parser.add_argument("--nodes", type=_whole, metavar="N", help="pods, instead of the job's number")
    parser.add_argument("--slots", type=_whole, metavar="N", help="GPUs per pod, instead of the job's number")
    parser.add_argument("--deepspeed-version", metavar="VERSION", help="DeepSpeed in the image, such as 0.19.8")
    parser.add_argument("--gpu-memory", type=_positive, metavar="GIB", help="memory of a GPU")
    parser.add_argument("--interconnect", type=_positive, metavar="GB/S", help="between GPUs of a node, each way")
    parser.add_argument("--network", type=_positive, metavar="GB/S", help="between nodes, of a whole node, each way")
    parser.add_argument(
        "--micro-step", type=_positive, metavar="SECONDS", help="forward and backward pass of one micro batch, alone"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="for people or programs")


def run(arguments: argparse.Namespace) -> int:
    """Say what a step costs and what would cost less."""
    try:
        model = _model(arguments)
        content = read(arguments.file)
    except (Unreadable, UnknownModelError, OSError, json.JSONDecodeError) as error:
        print(f"dsjob plan: {error}", file=sys.stderr)
        return UNREADABLE
    options = Options(nodes=arguments.nodes, slots=arguments.slots, version=arguments.deepspeed_version)
    reports = [
        judged_job(item, [content], options) if item.is_job else judged_configuration(item, options)
        for item in content.items
    ]
    planned: list[Planned] = []
    for report in reports:
        why, found = _planned(report, model, arguments)
        if found is None:
            print(f"{report.name or arguments.file}: {why}", file=sys.stderr)
        else:
            planned.append(found)
    if arguments.output == "json":
        print(json.dumps([record(each) for each in planned], indent=2, ensure_ascii=False))
    else:
        print(*_separated(planned), sep="\n")
    return FINE if reports and len(planned) == len(reports) else NOT_PLANNED


def _model(arguments: argparse.Namespace) -> Model:
    if arguments.model is None:
        return model_of(ModelFacts(parameters=round(arguments.parameters)))
    config: object = json.loads(Path(arguments.model).read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise UnknownModelError(f"{arguments.model} is not a JSON object")
    return model_of(ModelFacts(from_config=cast(dict[str, Any], config)))


def _planned(report: Report, model: Model, arguments: argparse.Namespace) -> tuple[str, Planned | None]:
    batch, world = report.batch, report.world
    if world is None or report.count(Level.ERROR):
        return "it has errors: see dsjob validate", None
    written = values(report.item.root)
    config = object_at(written, "spec", "dsConfig") if report.item.is_job else written
    if not config or batch is None or batch.micro_per_gpu is None or batch.accumulation is None:
        return "its configuration, or the batch sizes in it, are not in the file", None
    judge = judge_of(report.version or WORKER_DEEPSPEED)
    capacity = arguments.gpu_memory
    around = Circumstances(
        model=model,
        world=world.size,
        nodes=world.nodes,
        version=judge.version if judge else WORKER_DEEPSPEED,
        speeds=Speeds(_bytes(arguments.interconnect), _bytes(arguments.network), arguments.micro_step),
        capacity=round(capacity * _GIB) if capacity else None,
    )
    now = plan_of(config, batch.micro_per_gpu, batch.accumulation, around)
    name = report.name or arguments.file
    return "", Planned(name, world, around, now, tuple(advise(config, now, around)))


def _separated(planned: Iterable[Planned]) -> list[str]:
    return [line for each in planned for line in (*lines(each), "")]


def _bytes(gigabytes: float | None) -> float | None:
    return gigabytes * _GB if gigabytes is not None else None


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e15:
        raise argparse.ArgumentTypeError(f"{text[:20]} is not above 0")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if not 0 < number <= 10_000:
        raise argparse.ArgumentTypeError(f"{text[:20]} is not a number from 1 to 10000")
    return number
