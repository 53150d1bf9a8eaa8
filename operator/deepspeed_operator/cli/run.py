"""`dsjob run`."""

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.api.names import CONFIG_FILE
from deepspeed_operator.api.status import Level
from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.cli.jobs import RELEASED, Judged, judge_job
from deepspeed_operator.cli.machine import Directory, TooFewDevicesError, accelerator, are_free, remove_traces
from deepspeed_operator.cli.numbers import within
from deepspeed_operator.cli.report import Options, failed
from deepspeed_operator.cli.show import failure_lines, report_lines
from deepspeed_operator.cli.sources import Content, Item, data_of, read, values
from deepspeed_operator.cli.training import train
from deepspeed_operator.dsconfig.tree import UnreadableError
from deepspeed_operator.dsconfig.versions import numbers_of
from deepspeed_operator.job.accelerators import NVIDIA_GPU, accelerator_of
from deepspeed_operator.reconcile.admission.judge import Judgement
from deepspeed_operator.render.attempt import Attempt
from deepspeed_operator.render.local_attempt import machine_files

REFUSED, UNREADABLE = 1, 2
# There is no image, which would say nothing about the DeepSpeed and devices here; the agents run from our own modules.
_THIS_MACHINE: Final = replace(RELEASED, worker_deepspeed_version=None, worker_accelerator=NVIDIA_GPU)
_REMEDY: Final = "name the ranks', for example --python /usr/bin/python3, or pip install torch, then deepspeed"
_ASK: Final = "import importlib.metadata as all, sys; print(sys.prefix); print(all.version('deepspeed'))"


class UnfitError(Exception):
    """Why the files do not say what to run."""


def define(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "One of the files holds the DeepSpeedJob; its ConfigMaps may be in the same file or in another. Ends with 0 "
        "after success, else with the exit code of the rank that failed first, or 128 + the signal that ended it or "
        "this command; with 1 where the job is refused, with 2 where there is none."
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--nodes", type=within(1, 10_000), metavar="N", help="nodes, instead of spec.nodes")
    parser.add_argument(
        "--slots", type=within(1, 1024), metavar="N", help="ranks per node, instead of spec.slotsPerNode"
    )
    parser.add_argument(
        "--files",
        dest="code",
        type=Path,
        metavar="DIR",
        help="the program, instead of the ConfigMap of spec.training.files",
    )
    parser.add_argument(
        "--python",
        metavar="PYTHON",
        help="the ranks' interpreter, by name or path, instead of spec.training.python, which is python3 unless set",
    )
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="keep the rendered files and the workspaces here; else nothing is kept"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the job on this machine, and return how its ranks ended."""
    try:
        contents = [_content(name) for name in dict.fromkeys(arguments.files)]
        options = Options(nodes=arguments.nodes, slots=arguments.slots, python=arguments.python)
        judged = _judged(_the_job(contents), contents, options)
        print(*report_lines(judged.report), "", sep="\n", flush=True)
        if judged.job is None or judged.verdict is None or judged.report.count(Level.ERROR):
            return REFUSED
        files = _files(judged.job, contents, arguments.code, arguments.dir)
        return _run(judged.job, judged.verdict, files, arguments.dir)
    except UnfitError as error:
        print(f"dsjob run: {error}", file=sys.stderr)
        return UNREADABLE
    except TooFewDevicesError as error:
        print(f"dsjob run: {error}", file=sys.stderr)
        return REFUSED


def _content(name: str) -> Content:
    try:
        return read(name)
    except UnreadableError as error:
        raise UnfitError("\n".join(failure_lines(failed(name, error)))) from None


def _the_job(contents: Sequence[Content]) -> Item:
    jobs = [item for content in contents for item in content.items if item.is_job]
    if len(jobs) != 1:
        names = ", ".join(str(object_at(values(item.root), "metadata").get("name")) for item in jobs)
        many = f"one job runs at a time, and the files have {names}: name the file of one"
        raise UnfitError(many if jobs else "there is no DeepSpeedJob in the files: name one that has a job")
    return jobs[0]


def _judged(item: Item, contents: list[Content], options: Options) -> Judged:
    """Judge the job for this machine: its devices, and the DeepSpeed of the ranks' interpreter."""
    spec = object_at(values(item.root), "spec")
    installed = _installed(options.python or str(object_at(spec, "training").get("python") or "python3"))
    if spec.get("deepspeedVersion") is None:
        options = replace(options, version=installed)
    judged = judge_job(item, contents, options, _THIS_MACHINE)
    if judged.job is None:
        return judged
    here = accelerator(os.environ, accelerator_of(judged.job.spec, NVIDIA_GPU))
    judged = judge_job(item, contents, replace(options, accelerator=here), _THIS_MACHINE)
    source = object_at(spec, "dsConfigFrom")
    if source and judged.job is not None and judged.job.spec.ds_config_from is None:
        name = source.get("configMap")
        raise UnfitError(f"ConfigMap {name} of spec.dsConfigFrom is in none of the files: name its file, too")
    return judged


def _installed(python: str) -> str | None:
    """Return the ranks' DeepSpeed; say if they would run in our own environment, which has none."""
    try:
        asked = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    except OSError:
        return None  # the agent will say that there is no such interpreter, and where it looked
    prefix, found = [*asked.stdout.splitlines(), "", ""][:2]
    if not found and prefix == sys.prefix:
        own = f"{python} is dsjob's own interpreter, in {prefix}, which has no DeepSpeed"
        print(f"dsjob run: warning: {own}: {_REMEDY}", file=sys.stderr)
    return found if numbers_of(found) is not None else None


def _files(
    job: DeepSpeedJob, contents: Sequence[Content], code: Path | None, kept: Path | None
) -> Mapping[str, str] | Path | None:
    wanted = job.spec.training.files
    if code is not None:
        if wanted is None:
            raise UnfitError("--files stands for spec.training.files, which is not set: run in that directory instead")
        if not code.is_dir():
            raise UnfitError(f"--files: {code} is no directory")
        if kept is not None and code.resolve() == kept.resolve():
            raise UnfitError("--dir keeps copies of what is in --files: name another directory, for example --dir out")
        return code.resolve()
    if wanted is None:
        return None
    for content in contents:
        node = data_of(content, job.metadata.namespace, wanted.config_map)
        if node is not None:
            return {name: str(text) for name, text in values(node).items()}
    raise UnfitError(
        f"ConfigMap {wanted.config_map} of spec.training.files is in none of the files: name its file, too, "
        "or the directory of the program with --files"
    )


def _run(job: DeepSpeedJob, verdict: Judgement, files: Mapping[str, str] | Path | None, kept: Path | None) -> int:
    with ExitStack() as stack:
        root = kept or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dsjob-")))
        directory = Directory(root.resolve())
        attempt = _attempt(job, verdict)
        stack.callback(remove_traces, attempt.job.metadata.uid)
        token = secrets.token_hex(32)
        directory.write(attempt.world.nodes, machine_files(attempt, str(directory.job / CONFIG_FILE)), token, files)
        return train(attempt, verdict, directory, token)


def _attempt(job: DeepSpeedJob, verdict: Judgement) -> Attempt:
    """Return the attempt under a new uid, from which its ports follow: jobs may run side by side."""
    text = verdict.configuration.text if verdict.configuration is not None else None
    while True:
        metadata = job.metadata.model_copy(update={"uid": str(uuid.uuid4())})
        attempt = Attempt(job.model_copy(update={"metadata": metadata}), 1, verdict.world, text, _THIS_MACHINE)
        if are_free(attempt.ports):
            return attempt
