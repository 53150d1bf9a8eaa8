"""What the operator is told at its start: flags, each with an environment variable as its default."""

import argparse
import json
import math
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from pydantic import ValidationError

from deepspeed_operator.api.fleet import NO_FLEET, Fleet
from deepspeed_operator.api.gangs import GANG_SCHEDULERS, GangScheduling
from deepspeed_operator.api.names import JOBS_POLICY, OPERATOR
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.accelerators import ACCELERATORS, CPU, NVIDIA_GPU, known_accelerator
from deepspeed_operator.lint.fleet_limits import contradictions

LogFormat = Literal["json", "plain"]

_PREFIX = "DEEPSPEED_OPERATOR_"
_SWITCH: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """A candidate for the Lease stops writing `renew_deadline` after its last renewal, others wait `lease_duration`."""

    enabled: bool = True
    name: str = OPERATOR
    lease_duration: int = 15  # whole seconds, as the Lease has it
    renew_deadline: float = 10.0
    retry_period: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set."""

    namespace: str = "default"  # where the Lease is
    watched_namespaces: tuple[str, ...] = ()  # none: all
    key_secret: str = f"{OPERATOR}-key"
    identity: str = ""
    qps: float = 500.0
    in_flight: int = 128
    workers: int = 64
    worker_image: str = ""
    worker_deepspeed_version: str | None = None
    worker_accelerator: str = CPU
    default_accelerator: str = NVIDIA_GPU
    reads_nodes: bool = False
    state_directory: Path | None = None  # None: what ends a process is not remembered by the next
    isolates_jobs: bool = True
    jobs_ingress: tuple[Json, ...] = ()  # further rules of that NetworkPolicy
    fleet: Fleet = NO_FLEET
    gangs: frozenset[GangScheduling] = frozenset()
    http_host: str = "0.0.0.0"  # noqa: S104 -- probes and Prometheus come from outside the pod
    http_port: int = 8080
    loss_metric: bool = False
    log_format: LogFormat = "plain"
    log_level: str = "INFO"
    leader: LeaderSettings = LeaderSettings()


def settings_from(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Parse flags; a flag that is not given takes DEEPSPEED_OPERATOR_<FLAG> from the environment."""
    parser = _parser(environment)
    given = parser.parse_args(arguments)
    # As the election's loop demands, which would end the process later and in its own words.
    if not given.retry_period * 1.2 < given.renew_deadline < given.lease_duration:
        parser.error(
            f"--lease-duration {given.lease_duration}, --renew-deadline {given.renew_deadline:g} and --retry-period "
            f"{given.retry_period:g} contradict each other: a lease must last longer than its renew deadline, and that "
            "longer than 1.2 retry periods"
        )
    return Settings(
        namespace=given.namespace,
        watched_namespaces=tuple(sorted(set(_parts(given.watch_namespaces)))),
        key_secret=given.key_secret,
        identity=given.identity,
        qps=given.qps,
        in_flight=given.in_flight,
        workers=given.workers,
        worker_image=given.worker_image,
        worker_deepspeed_version=given.worker_deepspeed_version or None,
        worker_accelerator=given.worker_accelerator,
        default_accelerator=given.default_accelerator,
        reads_nodes=given.read_nodes,
        state_directory=Path(given.state_directory) if given.state_directory else None,
        isolates_jobs=given.isolate_jobs,
        jobs_ingress=given.jobs_ingress,
        fleet=given.fleet,
        gangs=given.gangs,
        http_host=given.http_host,
        http_port=given.http_port,
        loss_metric=given.loss_metric,
        log_format=given.log_format,
        log_level=given.log_level,
        leader=LeaderSettings(
            enabled=given.leader_election,
            name=given.lease_name,
            lease_duration=given.lease_duration,
            renew_deadline=given.renew_deadline,
            retry_period=given.retry_period,
        ),
    )


def _accelerator(text: str) -> str:
    """Parse an accelerator as jobs get it by default: CPU, or a resource whose units are slots."""
    if text != CPU and (known_accelerator(text) is None or "*" in text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither {CPU} nor one of {', '.join(ACCELERATORS)}")
    return text


def _rules(text: str) -> tuple[Json, ...]:
    """Parse a JSON list of objects."""
    try:
        rules: Any = json.loads(text)
    except ValueError:
        rules = None
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in cast("list[Any]", rules)):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON list of objects")
    return tuple(cast("list[Json]", rules))


def _fleet(text: str) -> Fleet:
    """Parse what is set for jobs, as the chart's value fleet has it; nothing but what the models know."""
    try:
        fleet = Fleet.model_validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in ('fleet', *each['loc']))}: {each['msg']}" for each in error.errors()
        )
        raise argparse.ArgumentTypeError(wrong) from None
    if against := dict.fromkeys(contradictions(fleet)):
        raise argparse.ArgumentTypeError("; ".join(against))
    return fleet


def _parts(text: str) -> list[str]:
    """Return what stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _gangs(text: str) -> frozenset[GangScheduling]:
    """Parse names of schedulers, with commas between."""
    names = _parts(text)
    unknown = [name for name in names if name not in GANG_SCHEDULERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: write any of {', '.join(GANG_SCHEDULERS)}")
    return frozenset(map(GangScheduling, names))


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=OPERATOR,
        description="Runs DeepSpeedJobs. The API server is found by the pod's service account or by KUBECONFIG.",
        epilog=f"Each flag can be given as an environment variable: --http-port as {_PREFIX}HTTP_PORT.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )

    def add(
        flag: str,
        default: str,
        meaning: str,
        kind: Callable[[str], object] = str,
        choices: Sequence[str] | None = None,
    ) -> None:
        variable = _PREFIX + flag.upper().replace("-", "_")
        # A string default goes through `type`, so that a bad variable is refused like a bad flag.
        parser.add_argument(
            f"--{flag}", default=environment.get(variable, default), type=kind, choices=choices, help=meaning
        )

    own, leader = Settings(), LeaderSettings()
    add("namespace", _own_namespace(environment), "namespace of the install: the Lease is there")
    add("watch-namespaces", "", "comma-separated namespaces to serve; empty: all")
    add("key-secret", own.key_secret, "Secret with the key of the attempts' tokens; filled if it is empty, else made")
    add("identity", f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}", "name of this replica in the Lease")
    add("qps", str(own.qps), "writes a second to the API server, renewals of the Lease apart", _positive)
    add("in-flight", str(own.in_flight), "pods created at a time", _count)
    add("workers", str(own.workers), "jobs reconciled at a time", _count)
    add("worker-image", own.worker_image, "image of jobs that name none")
    add("worker-deepspeed-version", "", "DeepSpeed version in that image")
    silent = "cpu, or the resource of jobs that name no accelerator and"
    add("worker-accelerator", own.worker_accelerator, f"{silent} run in the worker image", _accelerator)
    add("default-accelerator", own.default_accelerator, f"{silent} have their own image", _accelerator)
    add("jobs-ingress", "[]", f"JSON list of further ingress rules of the NetworkPolicy {JOBS_POLICY}", _rules)
    add(
        "fleet",
        "{}",
        "JSON of the chart's value fleet: what the jobs of an install or a namespace get, and may",
        _fleet,
    )
    add("gangs", "", f"schedulers whose PodGroups jobs may have: {', '.join(GANG_SCHEDULERS)}", _gangs)
    add("state-directory", "", "directory that a restart keeps: it tells there which job was worked on as it ended")
    add("http-host", own.http_host, "address of /healthz, /readyz and /metrics")
    add("http-port", str(own.http_port), "port of /healthz, /readyz and /metrics", _port)
    add("log-format", own.log_format, "json for machines, plain for people", choices=("json", "plain"))
    add("log-level", own.log_level, "least level to log", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    add("lease-name", leader.name, "name of the Lease")
    add("lease-duration", str(leader.lease_duration), "seconds until a silent leader is replaced", _count)
    add("renew-deadline", str(leader.renew_deadline), "seconds without renewal until the leader gives up", _seconds)
    add("retry-period", str(leader.retry_period), "seconds between renewals", _seconds)

    def switch(flag: str, default: bool, meaning: str) -> None:
        variable = _PREFIX + flag.upper().replace("-", "_")
        value = environment.get(variable, str(default))
        on = _SWITCH.get(value.lower())
        if on is None:
            parser.error(f"{variable} is {value!r}: write true or false")
        parser.add_argument(f"--{flag}", action=argparse.BooleanOptionalAction, default=on, help=meaning)

    switch("read-nodes", own.reads_nodes, "list nodes where a job does not say its GPUs' memory: their labels tell it")
    switch("isolate-jobs", own.isolates_jobs, f"make the NetworkPolicy {JOBS_POLICY} in each namespace with jobs")
    switch("loss-metric", own.loss_metric, "tell Prometheus the loss of each job, too")
    switch("leader-election", leader.enabled, "hold a Lease while writing; off only where nothing else can run")
    return parser


def _number(kind: Callable[[str], Any], fits: Callable[[Any], bool], what: str) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"{text!r} is no {what}")
        return value

    return number


_positive = _number(float, lambda value: 0 < value < math.inf, "number above 0")
_seconds = _number(float, lambda value: 1 <= value < math.inf, "number of seconds from 1")
_count = _number(int, lambda value: value >= 1, "whole number from 1")
_port = _number(int, lambda value: 0 <= value <= 65_535, "port from 0 to 65535")


def _own_namespace(environment: Mapping[str, str]) -> str:
    if "POD_NAMESPACE" in environment:
        return environment["POD_NAMESPACE"]
    return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "default"


def process_settings(arguments: Sequence[str]) -> Settings:
    """Settings of this process."""
    return settings_from(arguments, os.environ)
