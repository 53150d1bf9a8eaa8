"""The cluster of the commands that need one, through kubectl: its login, context and proxies are the user's own."""

import argparse
import json
import os
import select
import subprocess
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deepspeed_operator.api.names import GROUP, LABEL_ATTEMPT, LABEL_JOB_NAME, PLURAL
from deepspeed_operator.cli.job_view import JobView

_PIECE = 1 << 16
AGAIN_SECONDS = 1.0
_RESOURCE = f"{PLURAL}.{GROUP}"


class ClusterError(OSError):
    """kubectl could not do it; in its words."""


class GoneError(ClusterError):
    """The job was deleted."""


def define(parser: argparse.ArgumentParser) -> None:
    """Declare which job is meant, and where it is."""
    parser.add_argument("name", metavar="NAME", help="the DeepSpeedJob")
    define_cluster(parser)


def define_cluster(parser: argparse.ArgumentParser) -> None:
    """Declare which cluster and namespace are meant: kubectl's own options, under its names."""
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="its namespace, instead of the context's")
    parser.add_argument("--context", metavar="NAME", help="the context of the kubeconfig, instead of the current one")
    parser.add_argument("--kubeconfig", metavar="FILE", help="the kubeconfig, instead of kubectl's default")


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with the options that say which cluster and namespace are meant."""

    options: tuple[str, ...]

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Kubectl":
        given = {name: getattr(arguments, name) for name in ("namespace", "context", "kubeconfig")}
        return cls(tuple(f"--{name}={value}" for name, value in given.items() if value))

    def output(self, *arguments: str) -> str:
        """Return what it prints; raises ClusterError."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise ClusterError(done.stderr.strip() or f"kubectl {arguments[0]} ended with {done.returncode}")
        return done.stdout

    def command(self, *arguments: str) -> list[str]:
        return ["kubectl", *self.options, *arguments]

    def job(self, name: str) -> JobView:
        return JobView.of(json.loads(self.output("get", _RESOURCE, name, "-o=json")))

    def jobs(self, *options: str) -> list[JobView]:
        """Return all jobs of the namespace; `options` of kubectl may choose others."""
        return [JobView.of(each) for each in json.loads(self.output("get", _RESOURCE, "-o=json", *options))["items"]]

    def change(self, name: str, spec: dict[str, bool | str]) -> None:
        self.output("patch", _RESOURCE, name, "--type=merge", f"--patch={json.dumps({'spec': spec})}")

    def pods(self, job: str, attempt: int) -> list[str]:
        """Return the names of the attempt's pods that are still there."""
        selector = f"{LABEL_JOB_NAME}={job},{LABEL_ATTEMPT}={attempt}"
        return [each.removeprefix("pod/") for each in self.output("get", "pods", "-l", selector, "-o=name").split()]

    def events(self, job: JobView) -> list[dict[str, Any]]:
        """Return the events about the job itself, as the API server has them."""
        selector = f"--field-selector=involvedObject.uid={job.uid}"
        return json.loads(self.output("get", "events", selector, "-o=json"))["items"]

    def watch(self, name: str, seconds: float | None) -> Iterator[JobView]:
        """Yield the job as it is, and again whenever it changes.

        Raises TimeoutError once so many seconds are over (None: never), GoneError when it is deleted, ClusterError.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:  # an API server ends a watch after a while
            yield from self._watch_once(name, deadline)
            time.sleep(AGAIN_SECONDS)

    def _watch_once(self, name: str, deadline: float | None) -> Iterator[JobView]:
        """Yield until the watch ends, for whatever reason; raises ClusterError where it has told nothing of the job."""
        told, problem = False, ""
        command = self.command("get", _RESOURCE, name, "-o=json", "--watch", "--output-watch-events")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as run:
            try:
                for event in _documents(run, deadline):
                    if event["type"] == "DELETED":
                        raise GoneError(f"DeepSpeedJob {name} was deleted")
                    if event["type"] == "ERROR":  # a lost connection, or what it was to go on from is too old
                        problem = str(event["object"].get("message", "the watch broke"))
                        break
                    told = True
                    yield JobView.of(event["object"])
                else:
                    run.wait()
            finally:
                run.terminate()
            assert run.stderr is not None
            words = run.stderr.read().decode(errors="replace").strip()
            if not told and (problem or run.wait()):
                raise ClusterError(words or problem or f"kubectl get ended with {run.returncode}")


def _documents(run: subprocess.Popen[bytes], deadline: float | None) -> Iterator[dict[str, Any]]:
    """Yield the JSON documents that stand one after another in what it prints."""
    assert run.stdout is not None
    decoder, characters, text = json.JSONDecoder(), getincrementaldecoder("utf-8")(), ""
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([run.stdout], [], [], left)[0]:
            raise TimeoutError
        piece = os.read(run.stdout.fileno(), _PIECE)
        if not piece:
            return
        text = (text + characters.decode(piece)).lstrip()
        while text:
            try:
                document, end = decoder.raw_decode(text)
            except ValueError:
                break  # the rest of it is still to come
            text = text[end:].lstrip()
            yield document
