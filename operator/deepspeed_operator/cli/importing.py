"""`dsjob import`."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from deepspeed_operator.api.status import Level
from deepspeed_operator.cli.imports.conversion import Conversion, GivenWorld
from deepspeed_operator.cli.imports.dispatch import Imported, from_command, imported
from deepspeed_operator.cli.imports.remarks import Treatment
from deepspeed_operator.cli.numbers import within
from deepspeed_operator.cli.paint import Colour, painted
from deepspeed_operator.cli.report import Options, Report, failed
from deepspeed_operator.cli.show import failure_lines, report_lines
from deepspeed_operator.cli.sources import content_of, read_text, source_of
from deepspeed_operator.cli.validate import reports_of
from deepspeed_operator.cli.yaml_writer import yaml_text
from deepspeed_operator.dsconfig.tree import UnreadableError

FINE, NOT_VALID, UNREADABLE = 0, 1, 2
_COLOURS: Final[dict[Treatment, Colour]] = {
    Treatment.CARRIED: "green",
    Treatment.CHANGED: "cyan",
    Treatment.LEFT_OUT: "yellow",
    Treatment.WARNING: "yellow",
    Treatment.REFUSED: "red",
}


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "FILE is an MPIJob, PyTorchJob, TrainJob with its runtime, JobSet, Volcano Job, LeaderWorkerSet, Job, "
        "StatefulSet or Pod, an Argo Workflow that creates one, a SLURM batch script, or a script of command lines. "
        "Several files are one input: a TrainJob and its runtime, a job and its ConfigMaps. The DeepSpeedJobs are "
        "printed, and what was carried, changed and left out is told beside them. Ends with 0 where all became jobs "
        "that dsjob validate accepts, 1 where one is refused or not valid, 2 where nothing in a file is one."
    )
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument(
        "--command",
        metavar="LINE",
        help="a command line instead of FILE, as 'deepspeed --num_gpus 8 train.py'; with FILE, what the containers run "
        "where that is the image's entrypoint",
    )
    parser.add_argument("--nodes", type=within(1, 10_000), metavar="N", help="pods of the one world that is meant")
    parser.add_argument("--slots", type=within(1, 1024), metavar="N", help="ranks per pod")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="for kubectl or programs")


def run(arguments: argparse.Namespace) -> int:
    """Convert the files, and print what they became."""
    given = GivenWorld(arguments.nodes, arguments.slots)
    if not arguments.files and arguments.command is None:
        print("dsjob import: name a FILE, or a command line by --command.", file=sys.stderr)
        return UNREADABLE
    try:
        texts = [(name, read_text(name)) for name in arguments.files]
    except UnreadableError as error:
        print(*failure_lines(failed(" ".join(arguments.files), error)), sep="\n", file=sys.stderr)
        return UNREADABLE
    result = imported(texts, given, arguments.command) if texts else from_command(arguments.command, given)
    reports = {id(conversion): _judged(conversion) for _, conversion in result.conversions if conversion.manifest}
    if arguments.output == "json":
        print(json.dumps(_record(result, reports), indent=2, ensure_ascii=False))
    else:
        print(*(yaml_text(each.manifest) for _, each in result.conversions if each.manifest), sep="---\n", end="")
        print(*_lines(result, reports), sep="\n", file=sys.stderr)
    converted = {file for file, _ in result.conversions}
    if not result.conversions or any(file not in converted for file, _ in result.unknown):
        return UNREADABLE
    refused = any(conversion.manifest is None for _, conversion in result.conversions)
    return NOT_VALID if refused or any(report.count(Level.ERROR) for report in reports.values()) else FINE


def _judged(conversion: Conversion) -> Report:
    """Judge a job as dsjob validate does."""
    text = yaml_text(conversion.manifest or {})
    return reports_of([content_of(source_of(f"{conversion.name}.yaml", text))], Options())[0]


def _lines(result: Imported, reports: dict[int, Report]) -> Iterator[str]:
    for file, conversion in result.conversions:
        became = f"DeepSpeedJob {conversion.name}" if conversion.manifest is not None else "nothing"
        yield f"{painted(file, bold=True)}: {conversion.kind} → {became}"
        for treatment in Treatment:
            for remark in conversion.remarks:
                if remark.treatment is treatment:
                    yield (
                        f"  {painted(treatment, _COLOURS[treatment], bold=True)}: "
                        f"{painted(remark.path, bold=True)}: {remark.message}"
                    )
        report = reports.get(id(conversion))
        if report is not None:
            yield from report_lines(report)
        yield ""
    for file, text in result.beside:
        yield f"{painted(file, bold=True)}: {text}"
    for file, text in result.unknown:
        yield f"{painted(file, bold=True)}: {painted('no job', 'red', bold=True)}: {text}"


def _record(result: Imported, reports: dict[int, Report]) -> dict[str, Any]:
    return {
        "format": 1,
        "jobs": [_job(file, conversion, reports.get(id(conversion))) for file, conversion in result.conversions],
        "beside": [{"file": file, "message": text} for file, text in result.beside],
        "unknown": [{"file": file, "message": text} for file, text in result.unknown],
    }


def _job(file: str, conversion: Conversion, report: Report | None) -> dict[str, Any]:
    findings = () if report is None else report.findings
    return {
        "file": file,
        "kind": conversion.kind,
        "name": conversion.name,
        "manifest": conversion.manifest,
        "remarks": [
            {"treatment": remark.treatment.value, "path": remark.path, "message": remark.message}
            for remark in conversion.remarks
        ],
        "findings": [placed.finding.model_dump(mode="json", by_alias=True) for placed in findings],
    }
