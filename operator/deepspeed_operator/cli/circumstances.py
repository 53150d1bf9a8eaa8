"""What a plan depends on beside the configuration: model, GPU, links and calibration, as the user says them."""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from deepspeed_operator.api.facts import ModelFacts
from deepspeed_operator.api.status import World
from deepspeed_operator.cli.numbers import count, positive, within
from deepspeed_operator.cli.ranks import Ranks
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.dsconfig.tree import UnreadableError, plain
from deepspeed_operator.job.data_sheets import DEVICES, NETWORKS, USUAL, Device, devices_like, reached
from deepspeed_operator.job.precision import precision_of
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.advice.alternatives import Circumstances
from deepspeed_operator.plan.model.architecture import Model, UnknownModelError
from deepspeed_operator.plan.model.declared import model_of
from deepspeed_operator.plan.time.calibration import UnusableCalibrationError, calibrated, fabrics
from deepspeed_operator.plan.time.costs import Costs, assumed
from deepspeed_operator.plan.time.links import Bandwidth, Link, Links

GB: Final = 10**9
_UNIT: Final = re.compile(r"\s*([GgTt])(b|B|)(?:it)?(?:ps|/s)?$")
_TERA: Final = 1000
_FASTEST_LINK: Final = 50  # GB/s: 400 Gb/s
_USUAL_SEQUENCE: Final = 4096


class UnknownCircumstancesError(ValueError):
    """Options that do not go together, or name what is not there."""


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that circumstances are read from."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "--model",
        metavar="FILE",
        help="the model's Hugging Face config.json, or a file with facts as in spec.model, instead of spec.model",
    )
    model.add_argument("--parameters", type=count, metavar="N", help="the model's parameters, such as 7B or 7e9")
    parser.add_argument(
        "--sequence",
        type=within(1, 10**9 - 1),
        metavar="TOKENS",
        help="tokens of a sample; else spec.model's, else 4096",
    )
    parser.add_argument(
        "--gpu",
        type=gpu_name,
        metavar="NAME",
        help=f"one of {', '.join(DEVICES)}, or its beginning; else the one that the job's template demands, else "
        f"{USUAL.name}",
    )
    parser.add_argument(
        "--gpu-memory", type=positive, metavar="GIB", help="memory of a GPU; else that of --gpu, else spec.gpuMemory"
    )
    parser.add_argument(
        "--interconnect",
        type=positive,
        metavar="GB/S",
        help="between GPUs of a node, each way; else 65 %% of the GPU's links",
    )
    names = ", ".join(NETWORKS)
    parser.add_argument(
        "--network",
        type=network_rate,
        metavar="GB/S",
        help="of a node, each way, as it is reached; or what it is sold as, in Gb/s (100Gb, 400G) or as one of "
        f"{names}; else no time is told of jobs with more than one node",
    )
    parser.add_argument(
        "--micro-step",
        type=positive,
        metavar="SECONDS",
        help="forward and backward pass of a micro batch, without network; else by the GPU's data sheet",
    )
    parser.add_argument("--calibration", metavar="FILE", help="what bench/gpu measured of this model and fabric")
    parser.add_argument("--fabric", metavar="NAME", help="which fabric of the calibration, if it has several")


def model_from(arguments: argparse.Namespace, job: Mapping[str, Any]) -> Model:
    """Return the model of the command line, else of the job's spec.model."""
    facts = given_facts(arguments)
    if facts is not None:
        return model_of(facts)
    spec: Any = job.get("model")
    if not isinstance(spec, dict):
        raise UnknownModelError("nothing is said of the model: give --model or --parameters, or write spec.model")
    given = {"sequence_length": arguments.sequence} if arguments.sequence else {}
    facts = _facts({**spec, **given}, "spec.model")
    return _in_own_words(model_of(facts), facts)


def given_facts(arguments: argparse.Namespace) -> ModelFacts | None:
    """Return what the command line says of the model, None where it says nothing; raise UnknownModelError."""
    given: dict[str, Any] = {"sequence_length": arguments.sequence} if arguments.sequence else {}
    if arguments.parameters is not None:
        return _facts({"parameters": round(arguments.parameters), **given}, "--parameters")
    if arguments.model is None:
        return None
    content = _object(arguments.model)
    if not content.keys() & _TELLTALE:
        return _facts({"from_config": content, **given}, arguments.model)
    unknown = ", ".join(sorted(content.keys() - _FACTS))
    if unknown:
        raise UnknownModelError(f"{arguments.model}: {unknown} is no field of spec.model: docs/api.md lists them")
    return _facts({**content, **given}, arguments.model)


_FACTS: Final = frozenset(str(field.alias) for field in ModelFacts.model_fields.values())
# One of these is in every file of facts, and none in a config.json.
_TELLTALE: Final = frozenset({"parameters", "fromConfig"})


def _facts(content: dict[str, Any], where: str) -> ModelFacts:
    try:
        return ModelFacts.model_validate(content)
    except ValidationError as error:
        raise UnknownModelError(f"{where}: {error.errors()[0]['msg']}") from error


def _object(name: str) -> dict[str, Any]:
    text = _text(name)
    if Path(name).suffix in {".yaml", ".yml"}:
        # JSON is answered sooner without a YAML library.
        from deepspeed_operator.cli.kube_yaml import parse_yaml  # noqa: PLC0415

        try:
            content = [plain(document.root) for document in parse_yaml(text)]
        except UnreadableError as error:
            raise UnknownModelError(f"{name}: {error.message}") from None
    else:
        content = _json(name, [text])
    if len(content) != 1 or not isinstance(content[0], dict):
        raise UnknownModelError(f"{name} is not one object")
    return content[0]  # pyright: ignore[reportUnknownVariableType] -- judged by who asked


def _in_own_words(model: Model, facts: ModelFacts) -> Model:
    """Show the kernel that was declared: to the plan, Flash and SDPA are the same."""
    if facts.attention is None:
        return model
    said = Fact("attention", facts.attention.value, Source.DECLARED)
    return replace(model, facts=tuple(said if fact.name == said.name else fact for fact in model.facts))


def circumstances(
    arguments: argparse.Namespace,
    model: Model,
    world: World,
    setup: Setup,
    *,
    micro: int,
    ranks: Ranks,
    framework: bool,
) -> Circumstances:
    """Return what all alternatives have in common; `framework`: whether one runs the steps."""
    links, facts = _links(arguments, ranks.device)
    timed = True
    if arguments.calibration is not None:
        costs = _calibrated(arguments, model, world, links)
        facts = costs.facts
    else:
        tokens = model.usage.sequence or _USUAL_SEQUENCE
        declared = arguments.micro_step / micro if arguments.micro_step else None
        device, precision = ranks.device or USUAL, precision_of(setup)
        costs = assumed(
            model, device, links, tokens=tokens, precision=precision, declared=declared, framework=framework
        )
        timed = ranks.device is not None
        if model.usage.sequence is None:
            facts += (Fact("sequenceLength", tokens, Source.ASSUMED),)
        facts = (*ranks.facts, *((*facts, *costs.facts) if timed else ()))
    capacity = ranks.gpus.smallest if ranks.gpus is not None else None
    version = setup.schema.version
    return Circumstances(model, world.size, world.nodes, version, costs, capacity, facts, timed=timed)


def _links(arguments: argparse.Namespace, device: Device | None) -> tuple[Links, tuple[Fact, ...]]:
    """Return the links and what is known of them; those of a GPU that no data sheet describes are only declared."""
    facts: tuple[Fact, ...] = ()
    inside: Link | None = None
    rate = arguments.interconnect * GB if arguments.interconnect else device.interconnect if device else None
    if rate is not None:
        inside = Bandwidth(rate)
        said = Source.DECLARED if arguments.interconnect else Source.ASSUMED
        facts += (Fact("between GPUs of a node, GB/s", round(rate / GB, 2), said),)
    between: Link | None = None
    if arguments.network is not None:
        named, rate = arguments.network
        between = Bandwidth(rate)
        source = Source.ASSUMED if named else Source.DECLARED
        facts += (Fact("between nodes, GB/s", round(rate / GB, 2), source),)
    return Links(inside, between), facts


def _calibrated(arguments: argparse.Namespace, model: Model, world: World, links: Links) -> Costs:
    text = _text(arguments.calibration)
    lines = _json(arguments.calibration, [line for line in text.splitlines() if line.strip()])
    try:
        measured = fabrics(lines)
        if not measured:
            raise UnknownCircumstancesError(
                f"{arguments.calibration} has no measured fabric: name what bench/gpu/calibration.yaml wrote"
            )
        fabric: str = arguments.fabric or (measured[0] if len(measured) == 1 else "")
        if fabric not in measured:
            raise UnknownCircumstancesError(f"--fabric must be one of {', '.join(measured)}")
        found = calibrated(lines, fabric)
    except UnusableCalibrationError as error:
        raise UnknownCircumstancesError(f"{arguments.calibration}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        message = f"{arguments.calibration} is not as bench/gpu writes it: {type(error).__name__}: {error}"
        raise UnknownCircumstancesError(message) from error
    if found.model.parameters != model.parameters:
        raise UnknownCircumstancesError(
            f"{arguments.calibration} is of a model of {found.model.parameters:,} parameters, not "
            f"{model.parameters:,}: measure this one, or leave --calibration out"
        )
    return found.costs if world.nodes == 1 else found.costs.within(links.inside)


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UnknownCircumstancesError(f"{name}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UnknownCircumstancesError(f"{name} is not text in UTF-8") from None


def _json(name: str, texts: list[str]) -> list[Any]:
    try:
        return [json.loads(text) for text in texts]
    except (ValueError, RecursionError) as error:  # ValueError: an integer of more digits than Python reads, too
        raise UnknownCircumstancesError(f"{name} is not JSON: {error}") from None


def gpu_name(text: str) -> str:
    """Read the name of a GPU, or its beginning."""
    found = [device.name for device in devices_like(text)]
    # Of a family of which all but one are called by more than their memory, that one is meant: H100, and H100 NVL.
    plain = [name for name in found if name.count("-") == 1]
    for meant in (found, plain):
        if len(meant) == 1:
            return meant[0]
    if found:
        raise argparse.ArgumentTypeError(f"{text[:20]} is one of {', '.join(found)}: which one?")
    raise argparse.ArgumentTypeError(f"{text[:20]} is not one of {', '.join(DEVICES)}")


def network_rate(text: str) -> tuple[bool, float]:
    """Return whether it is what the network is sold as, and bytes a second that are reached.

    A b is a bit, as in every data sheet of a network; only GB are bytes.
    """
    names = {name.lower(): rate for name, rate in NETWORKS.items()}
    if text.lower() in names:
        return True, names[text.lower()]
    unit = _UNIT.search(text)
    try:
        rate = positive(text[: unit.start()] if unit is not None else text)
    except argparse.ArgumentTypeError:
        examples = f"12.5 (GB/s), 100Gb (Gb/s), nor one of {', '.join(NETWORKS)}"
        raise argparse.ArgumentTypeError(f"{text[:20]} is not a bandwidth above 0, such as {examples}") from None
    if unit is None:
        if rate > _FASTEST_LINK:
            likely = f"a network of {rate:g} Gb/s is {rate:g}Gb; {rate:g} GB/s of several links is {rate:g}GB/s"
            print(f"dsjob plan: warning: --network {text} is read as GB/s: {likely}", file=sys.stderr)
        return False, rate * GB
    scale = _TERA if unit[1].upper() == "T" else 1
    return (False, rate * scale * GB) if unit[2] == "B" else (True, reached(rate * scale))
