"""`dsjob validate`."""

import json
import sys
from typing import Final

import click

from deepspeed_operator.api.status import Level
from deepspeed_operator.cli.configurations import judged_configuration
from deepspeed_operator.cli.jobs import judged_job
from deepspeed_operator.cli.records import record
from deepspeed_operator.cli.report import Failure, Options, Report
from deepspeed_operator.cli.show import failure_lines, report_lines, summary_line
from deepspeed_operator.cli.sources import Content, PlacedUnreadable, read
from deepspeed_operator.dsconfig.tree import Unreadable

FINE, WITH_ERRORS, UNREADABLE = 0, 1, 2
_LAUNCHERS: Final = ("Ranks", "DeepSpeed", "None")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--nodes", type=click.IntRange(1, 10_000), help="Pods, instead of the job's number.")
@click.option("--slots", type=click.IntRange(1, 1024), help="Ranks per pod, instead of the job's number.")
@click.option("--deepspeed-version", metavar="VERSION", help="DeepSpeed in the image, such as 0.19.8.")
@click.option("--accelerator", metavar="NAME", help="What the ranks run on: cpu or cuda, for example.")
@click.option("--launcher", type=click.Choice(_LAUNCHERS), help="Who starts the ranks, instead of the job's word.")
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", help="For people or programs.")
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@click.option("--explain", is_flag=True, help="Tell defaults that differ between DeepSpeed versions, too.")
def command(
    *,
    files: tuple[str, ...],
    nodes: int | None,
    slots: int | None,
    deepspeed_version: str | None,
    accelerator: str | None,
    launcher: str | None,
    output: str,
    strict: bool,
    explain: bool,
) -> None:
    """Judge DeepSpeedJobs and DeepSpeed configurations as the operator would.

    FILE is a DeepSpeedJob, YAML with several documents, a ds_config.json, or - for standard input. ConfigMaps in the
    files are where dsConfigFrom is looked up. Exits with 0 without errors, 1 with errors, 2 where a file cannot be read
    as a configuration at all.
    """
    options = Options(nodes, slots, deepspeed_version, accelerator, launcher, explain)
    reports, failures = examined(files, options)
    if output == "json":
        click.echo(json.dumps(record(reports, failures), indent=2, ensure_ascii=False))
    else:
        _print(reports, failures)
    sys.exit(exit_code(reports, failures, strict=strict))


def examined(names: tuple[str, ...], options: Options) -> tuple[list[Report], list[Failure]]:
    """Return what is to be said of the files."""
    contents: list[Content] = []
    failures: list[Failure] = []
    for name in dict.fromkeys(names):
        try:
            contents.append(read(name))
        except PlacedUnreadable as error:
            failures.append(Failure(name, error.message, error.fix, error.source, error.position))
        except Unreadable as error:
            failures.append(Failure(name, error.message, error.fix))
    return reports_of(contents, options), failures


def reports_of(contents: list[Content], options: Options) -> list[Report]:
    """Return the verdict on each job and configuration."""
    items = [item for content in contents for item in content.items]
    return [
        judged_job(item, contents, options) if item.is_job else judged_configuration(item, options) for item in items
    ]


def exit_code(reports: list[Report], failures: list[Failure], *, strict: bool) -> int:
    """Return how the command ends."""
    if failures:
        return UNREADABLE
    counted = (Level.ERROR, Level.WARNING) if strict else (Level.ERROR,)
    return WITH_ERRORS if any(report.count(level) for report in reports for level in counted) else FINE


def _print(reports: list[Report], failures: list[Failure]) -> None:
    for failure in failures:
        for line in failure_lines(failure):
            click.echo(line)
        click.echo()
    for report in reports:
        for line in report_lines(report):
            click.echo(line)
        click.echo()
    click.echo(summary_line(reports, failures))
