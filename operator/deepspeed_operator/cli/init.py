"""`dsjob init`."""

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import Final

from deepspeed_operator.api.names import NAME_MAX_LENGTH, NAME_PATTERN
from deepspeed_operator.api.status import Level
from deepspeed_operator.cli.arguments import KNOWN, version_number
from deepspeed_operator.cli.circumstances import (
    UnknownCircumstancesError,
    given_facts,
    gpu_name,
    network_rate,
)
from deepspeed_operator.cli.circumstances import define as define_circumstances
from deepspeed_operator.cli.first_job import Choice, Framework, Wish, choice_of, nodes_that_fit
from deepspeed_operator.cli.first_manifest import Claim, Program, manifest_text
from deepspeed_operator.cli.jobs import WORKER_DEEPSPEED
from deepspeed_operator.cli.numbers import within
from deepspeed_operator.cli.plan_answer import cost
from deepspeed_operator.cli.questions import Prompt, UnansweredError, fill
from deepspeed_operator.cli.ranks import Ranks, ranks_of
from deepspeed_operator.cli.report import Options
from deepspeed_operator.cli.show import report_lines
from deepspeed_operator.cli.sources import content_of, read_text, source_of
from deepspeed_operator.cli.validate import reports_of
from deepspeed_operator.dsconfig.tree import UnreadableError
from deepspeed_operator.dsconfig.wording import plural
from deepspeed_operator.plan.memory.fit import Fit
from deepspeed_operator.plan.model.architecture import UnknownModelError

FINE, NOT_FITTING, UNREADABLE = 0, 1, 2
# What a ConfigMap holds beside the rest of it.
_LARGEST_PROGRAM: Final = 900_000
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_INTERPRETER: Final = re.compile(r"(?:\S*/)?python[\d.]*")
_STARTERS: Final = frozenset({"accelerate", "bash", "deepspeed", "mpirun", "sh", "srun", "torchrun"})
_FRAMEWORKS: Final = ", ".join(Framework)
_UNKNOWN: Final = "not known"
_CLAIM: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?):(/[^:]+)")


class NoFirstJobError(Exception):
    """Why no job can be written of what is given."""


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "What is not given is asked where standard input is a terminal. The job is printed, what it was chosen for is "
        "told beside it. Ends with 0, 1 where no choice fits or the job is "
        "not valid, 2 where something is missing or cannot be read."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", type=_name, help="of the job")
    define_circumstances(parser)
    parser.add_argument("--gpus", type=within(1, 1024), metavar="N", help="GPUs of a node; 8 unless said")
    parser.add_argument("--nodes", type=within(1, 10_000), metavar="N", help="1 unless said")
    parser.add_argument(
        "--framework",
        choices=[each.value for each in Framework],
        help="who runs the steps: the script's own loop with deepspeed.initialize, the Trainer of transformers, or "
        "a loop with Accelerate",
    )
    parser.add_argument(
        "--script",
        metavar="LINE",
        help="the program with its arguments, as 'train.py --epochs 3': a file here, which a ConfigMap then holds, or "
        "a path in the image",
    )
    parser.add_argument("--image", metavar="IMAGE", help="with PyTorch and DeepSpeed; else the operator's worker image")
    parser.add_argument(
        "--deepspeed-version",
        type=version_number,
        metavar="VERSION",
        help=f"DeepSpeed in the image; known are {KNOWN}, and another is judged as the next older one",
    )
    parser.add_argument("--data", type=_claim, metavar="CLAIM:PATH", help="mount a PersistentVolumeClaim there")
    parser.add_argument("--lora", type=within(1, 65_536), metavar="RANK", help="train adapters beside the frozen model")
    parser.add_argument(
        "--samples", type=within(1, 10**9 - 1), metavar="N", help="of a step, over all ranks; about 128 unless said"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a first job, and return how the command ends."""
    try:
        _ask(arguments)
        wish, program = _wish(arguments), _program(arguments)
        ranks = ranks_of(arguments, None)
        choice = choice_of(wish, arguments, ranks)
        if choice is None:
            print(f"dsjob init: {_unfit(wish, arguments, ranks)}", file=sys.stderr)
            return NOT_FITTING
    except (UnansweredError, NoFirstJobError, UnknownModelError, UnknownCircumstancesError) as error:
        print(f"dsjob init: {error}", file=sys.stderr)
        return UNREADABLE
    text = manifest_text(arguments.name, wish, choice, program, _options(arguments))
    print(text, end="")
    return _told(arguments.name, text, choice)


def _ask(arguments: argparse.Namespace) -> None:
    model = Prompt("model", "--model FILE", "The model's config.json, or a file with its facts", _file)
    fill(
        arguments,
        [
            Prompt("name", "NAME", "Name of the job", _name),
            *([model] if arguments.parameters is None else []),
            Prompt("gpu", "--gpu NAME", "GPU, as h100, a100-40g, l4", gpu_name),
            Prompt("gpus", "--gpus N", "GPUs of a node", within(1, 1024), "8"),
            Prompt("nodes", "--nodes N", "Nodes", within(1, 10_000), "1"),
            Prompt("framework", "--framework", f"Who runs the steps: {_FRAMEWORKS}", _framework, Framework.DEEPSPEED),
            Prompt("script", "--script", "The program, here or in the image, and its arguments", str, "train.py"),
        ],
    )
    if arguments.nodes > 1 and arguments.network is None and sys.stdin is not None and sys.stdin.isatty():
        fill(arguments, [Prompt("network", "--network", "Network of a node, as 100Gb or IB-NDR", _network, _UNKNOWN)])
    if arguments.framework != Framework.DEEPSPEED:
        why = "with PyTorch, DeepSpeed and transformers or Accelerate"
        fill(arguments, [Prompt("image", "--image IMAGE", f"Image {why}", str)])


def _wish(arguments: argparse.Namespace) -> Wish:
    facts = given_facts(arguments)
    assert facts is not None, "it was asked"
    if arguments.lora is not None:
        if facts.lora is not None:
            raise NoFirstJobError("--lora: the model's facts have lora already, change it there")
        facts = type(facts).model_validate({**facts.model_dump(exclude_unset=True), "lora": {"rank": arguments.lora}})
    size = arguments.nodes * arguments.gpus
    samples: int | None = arguments.samples
    if samples is not None and samples % size:
        near = [each for each in (samples // size * size, (samples // size + 1) * size) if each]
        words = " or ".join(map(str, near))
        raise NoFirstJobError(f"--samples {samples}: {plural(size, 'rank')} share them evenly, as {words}")
    version = arguments.deepspeed_version or WORKER_DEEPSPEED
    return Wish(facts, Framework(arguments.framework), arguments.nodes, arguments.gpus, samples, version)


def _program(arguments: argparse.Namespace) -> Program:
    try:
        words = shlex.split(arguments.script)
    except ValueError as error:
        raise NoFirstJobError(f"--script {arguments.script}: {error}") from None
    if words and _INTERPRETER.fullmatch(words[0]):
        words = words[2:] if words[1:2] == ["-u"] else words[1:]
    if not words or words[0].startswith("-") or Path(words[0]).name in _STARTERS:
        why = "name the program alone, a Python file with its arguments: the operator starts its ranks"
        raise NoFirstJobError(f"--script {arguments.script}: {why}")
    script, *words = words
    text = _text(script) if Path(script).is_file() else None
    return Program(script, text, tuple(words), arguments.image, arguments.deepspeed_version, arguments.data)


def _text(script: str) -> str:
    """Return what is in a program that is here."""
    try:
        text = read_text(script)
    except UnreadableError as error:
        raise NoFirstJobError(f"--script {script}: {error.message}") from None
    if len(text.encode()) > _LARGEST_PROGRAM or not _KEY.fullmatch(Path(script).name):
        raise NoFirstJobError(
            f"--script {script}: no ConfigMap holds it: put it into the image, and name its path there"
        )
    return text


def _unfit(wish: Wish, arguments: argparse.Namespace, ranks: Ranks) -> str:
    nodes = nodes_that_fit(wish, arguments, ranks)
    less = "a shorter --sequence" if wish.facts.lora is not None else "--lora RANK, a shorter --sequence"
    what = f"the model fits on no choice of {wish.nodes} × {wish.slots} {ranks.name}"
    if nodes is not None:
        return f"{what}: --nodes {nodes} is enough; or give {less} or a larger --gpu"
    return f"{what}, nor on more nodes: give {less} or a larger --gpu"


def _told(name: str, text: str, choice: Choice) -> int:
    """Say what was chosen and what is to be said of it, as dsjob validate does."""
    [report] = reports_of([content_of(source_of(f"{name}.yaml", text))], Options())
    planned = choice.planned
    plan = planned.now.plan
    chosen = f"stage {int(plan.setup.stage)}, micro batch {plan.micro}, accumulation {plan.accumulation}"
    print(f"{name}: {chosen}, {cost(planned, planned.now)}", file=sys.stderr)
    fit = planned.now.fit
    if planned.now.fits is not Fit.YES and fit is not None:
        print(f"  it may fit: {'; '.join(fit.open)}", file=sys.stderr)
    if plan.time is None:
        print("  the stage is the lowest that fits, not the fastest: give --network GB/S or NAME", file=sys.stderr)
    print(*report_lines(report), sep="\n", file=sys.stderr)
    return NOT_FITTING if report.count(Level.ERROR) else FINE


def _options(arguments: argparse.Namespace) -> str:
    rate = f" --network {arguments.network[1] / 10**9:g}" if arguments.network is not None else ""
    return f"--gpu {arguments.gpu}{rate}"


def _name(text: str) -> str:
    if len(text) > NAME_MAX_LENGTH or not re.fullmatch(NAME_PATTERN, text):
        rule = f"at most {NAME_MAX_LENGTH} lower-case letters, digits and -, beginning with a letter"
        raise argparse.ArgumentTypeError(f"{text[:60]} is no name of a job: {rule}")
    return text


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text[:60]} is no file")
    return text


def _framework(text: str) -> str:
    if text not in list(Framework):
        raise argparse.ArgumentTypeError(f"{text[:20]} is not one of {_FRAMEWORKS}")
    return text


def _network(text: str) -> tuple[bool, float] | None:
    return None if text == _UNKNOWN else network_rate(text)


def _claim(text: str) -> Claim:
    found = _CLAIM.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:60]} is not as training-data:/data")
    return Claim(found[1], found[3])
