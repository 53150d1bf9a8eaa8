"""`dsjob validate`."""

import argparse
import json

from deepspeed_operator.api.spec import Launcher
from deepspeed_operator.api.status import Level
from deepspeed_operator.cli import degrees
from deepspeed_operator.cli.arguments import KNOWN, finding_code, version_number
from deepspeed_operator.cli.configurations import judged_configuration
from deepspeed_operator.cli.numbers import within
from deepspeed_operator.cli.records import record
from deepspeed_operator.cli.report import InputFailure, Options, Report, failed
from deepspeed_operator.cli.show import failure_lines, report_lines, summary_line
from deepspeed_operator.cli.sources import Content, Item, files_in, read, without_others
from deepspeed_operator.dsconfig.tree import UnreadableError
from deepspeed_operator.job.accelerators import ACCELERATORS, CPU

FINE, WITH_ERRORS, UNREADABLE = 0, 1, 2


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "FILE is a DeepSpeedJob, YAML with several documents, a ds_config.json, a directory that has such files, or - "
        "for standard input. ConfigMaps in the files are where dsConfigFrom is looked up. Ends with 0 without errors, "
        "1 with errors, 2 where a file cannot be read as a configuration at all."
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--nodes", type=within(1, 10_000), metavar="N", help="pods, instead of spec.nodes")
    parser.add_argument(
        "--slots", type=within(1, 1024), metavar="N", help="ranks per pod, instead of spec.slotsPerNode"
    )
    parser.add_argument(
        "--deepspeed-version",
        type=version_number,
        metavar="VERSION",
        help=f"DeepSpeed in the image; known are {KNOWN}, and another is judged as the next older one",
    )
    accelerators = (CPU, *dict.fromkeys(known.name for known in ACCELERATORS.values()))
    parser.add_argument(
        "--accelerator",
        choices=accelerators,
        metavar="NAME",
        help=f"what the ranks run on, instead of the template's: {', '.join(accelerators)}",
    )
    parser.add_argument(
        "--launcher",
        choices=[launcher.value for launcher in Launcher],
        help="who starts the ranks, instead of spec.training.launcher",
    )
    degrees.define(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="for people or programs")
    parser.add_argument("--strict", action="store_true", help="count warnings as errors")
    parser.add_argument(
        "--ignore",
        action="append",
        type=finding_code,
        default=[],
        metavar="CODE",
        help="leave out the warnings and advice with this code, which stands in brackets; may be repeated",
    )
    parser.add_argument(
        "--explain", action="store_true", help="also tell defaults that differ between DeepSpeed versions"
    )


def run(arguments: argparse.Namespace) -> int:
    """Judge the files, print what there is to say, and return how the command ends."""
    options = Options(
        nodes=arguments.nodes,
        slots=arguments.slots,
        version=arguments.deepspeed_version,
        accelerator=arguments.accelerator,
        launcher=arguments.launcher,
        explain=arguments.explain,
        parallelism=arguments.parallelism,
    )
    reports, failures = examined(arguments.files, options)
    reports = [report.without(arguments.ignore) for report in reports]
    if arguments.output == "json":
        print(json.dumps(record(reports, failures), indent=2, ensure_ascii=False))
    else:
        _print(reports, failures)
    return exit_code(reports, failures, strict=arguments.strict)


def examined(names: list[str], options: Options) -> tuple[list[Report], list[InputFailure]]:
    """Return what is to be said of the files."""
    contents: list[Content] = []
    failures: list[InputFailure] = []
    named: dict[str, bool] = {}
    for name in names:
        inside = files_in(name)
        named |= {name: True} if inside is None else {file: named.get(file, False) for file in inside}
    for file, is_named in named.items():
        try:
            content = read(file)
        except UnreadableError as error:
            failures.append(failed(file, error))
        else:
            contents.append(content if is_named else without_others(content))
    return reports_of(contents, options), failures


def reports_of(contents: list[Content], options: Options) -> list[Report]:
    """Return the verdict on each job and configuration."""
    items = [item for content in contents for item in content.items]
    return [_judged(item, contents, options) for item in items]


def _judged(item: Item, contents: list[Content], options: Options) -> Report:
    if not item.is_job:
        return judged_configuration(item, options)
    # Half of the command is about jobs: a configuration by itself is answered sooner without it.
    from deepspeed_operator.cli.jobs import judged_job  # noqa: PLC0415

    return judged_job(item, contents, options)


def exit_code(reports: list[Report], failures: list[InputFailure], *, strict: bool) -> int:
    """Return how the command ends."""
    if failures:
        return UNREADABLE
    counted = (Level.ERROR, Level.WARNING) if strict else (Level.ERROR,)
    return WITH_ERRORS if any(report.count(level) for report in reports for level in counted) else FINE


def _print(reports: list[Report], failures: list[InputFailure]) -> None:
    for failure in failures:
        print(*failure_lines(failure), "", sep="\n")
    for report in reports:
        print(*report_lines(report), "", sep="\n")
    print(summary_line(reports, failures))
