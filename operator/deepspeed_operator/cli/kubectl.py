"""The cluster of the commands that need one, through kubectl: its login, context and proxies are the user's own."""

import argparse
import json
import os
import select
import subprocess
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deepspeed_operator.api.names import GROUP, LABEL_JOB_UID, PLURAL
from deepspeed_operator.cli.job_view import JobView

_PIECE = 1 << 16
AGAIN_SECONDS = 1.0
_RESOURCE = f"{PLURAL}.{GROUP}"
_WITHIN = "--request-timeout=60s"  # a connection that nobody answers on would keep kubectl, and who looks, for ever
_NOT_FOUND, _FORBIDDEN = "(NotFound)", "(Forbidden)"  # as kubectl tells it
_WATCHES: Final[set[subprocess.Popen[bytes]]] = set()


class ClusterError(OSError):
    """kubectl could not do it; in its words."""


class GoneError(ClusterError):
    """It is not there: it never was, or was deleted."""


class ForbiddenError(ClusterError):
    """Its user may not do it, and may not a second later."""


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
        command = self.command(_WITHIN, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            words = done.stderr.strip() or f"kubectl {arguments[0]} ended with {done.returncode}"
            kind = GoneError if _NOT_FOUND in words else ForbiddenError if _FORBIDDEN in words else ClusterError
            raise kind(words)
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

    def events(self, job: JobView) -> list[dict[str, Any]]:
        """Return the events about the job itself, as the API server has them; none where the user may read none."""
        selector = f"--field-selector=involvedObject.uid={job.uid}"
        try:
            return json.loads(self.output("get", "events", selector, "-o=json"))["items"]
        except ForbiddenError:
            return []

    def watch(self, name: str, seconds: float | None) -> Iterator[JobView]:
        """Yield the job as it is, and again whenever it changes.

        Raises TimeoutError once so many seconds are over (None: never), GoneError when it is deleted, and ClusterError
        where it cannot be read at first; what breaks later is told, and the job asked for again.
        """
        uid = ""
        for kind, body in self._events((_RESOURCE, name), seconds):
            job = JobView.of(body)
            if kind == "DELETED" or uid not in {"", job.uid}:
                raise GoneError(f"DeepSpeedJob {name} was deleted")
            uid = job.uid
            yield job

    def watch_pods(self, job: JobView) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield each pod of the job, as it is and whenever it changes, with its event's kind; what breaks is told."""
        yield from self._events(("pods", _pods_of(job)), None, began=True)

    def pods_of(self, job: JobView) -> list[Mapping[str, Any]]:
        """Return the pods of all attempts that are still there."""
        return json.loads(self.output("get", "pods", _pods_of(job), "-o=json"))["items"]

    def _events(
        self, what: tuple[str, ...], seconds: float | None, *, began: bool = False
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield kind and object of each event, from one watch after another: an API server ends them after a while.

        Once it `began`, it goes on over an API server that does not answer.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        lost = False
        while True:
            try:
                for event in self._watch_once(what, deadline):
                    began, lost = True, False
                    yield event["type"], event["object"]
            except ClusterError as error:
                if not began:
                    raise
                if _NOT_FOUND in str(error):
                    raise GoneError(f"DeepSpeedJob {what[-1]} was deleted") from None
                if not lost:
                    print(f"dsjob: no answer, trying again: {str(error).splitlines()[-1]}", file=sys.stderr)
                lost = True
            time.sleep(AGAIN_SECONDS)

    def _watch_once(self, what: tuple[str, ...], deadline: float | None) -> Iterator[dict[str, Any]]:
        """Yield until the watch ends, for whatever reason; raises ClusterError where it has told nothing."""
        told, problem = False, ""
        command = self.command("get", *what, "-o=json", "--watch", "--output-watch-events")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as run:
            _WATCHES.add(run)
            try:
                for event in _documents(run, deadline):
                    if event["type"] == "ERROR":  # a lost connection, or what it was to go on from is too old
                        problem = str(event["object"].get("message", "the watch broke"))
                        break
                    told = True
                    yield event
                else:
                    run.wait()
            finally:
                run.terminate()
                _WATCHES.discard(run)
            assert run.stderr is not None
            words = run.stderr.read().decode(errors="replace").strip()
            if not told and (problem or run.wait()):
                raise ClusterError(words or problem or f"kubectl get ended with {run.returncode}")


def end_watches() -> None:
    """End what threads still wait for: a watch in which nothing more happens would outlive us by an hour."""
    for each in [*_WATCHES]:
        each.terminate()


def _pods_of(job: JobView) -> str:
    return f"--selector={LABEL_JOB_UID}={job.uid}"


def _documents(run: subprocess.Popen[bytes], deadline: float | None) -> Iterator[dict[str, Any]]:
    """Yield the JSON documents that stand one after another in what it prints."""
    assert run.stdout is not None
    decoder, characters, text = json.JSONDecoder(), getincrementaldecoder("utf-8")(), ""
    output = select.poll()  # select() knows no file descriptor above 1023
    output.register(run.stdout, select.POLLIN)
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not output.poll(left):
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
