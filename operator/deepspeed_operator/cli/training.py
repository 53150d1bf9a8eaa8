"""A job's life on this machine: what `dsjob run` prints, and how it ends."""

import gc
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from deepspeed_operator.api.names import ENV_INDEX, ENV_NODE, ENV_POD, ENV_POD_UID, pod_name
from deepspeed_operator.api.plan_status import PlanStatus
from deepspeed_operator.api.reasons import OF_A_RANK, Reason
from deepspeed_operator.api.spec import DeepSpeedJobSpec, Launcher
from deepspeed_operator.api.status import State
from deepspeed_operator.api.transport import Transport
from deepspeed_operator.api.untyped import Json, object_at, objects_at
from deepspeed_operator.cli.agents import LocalAgents, state_of
from deepspeed_operator.cli.machine import DEVICES, Directory, accelerator, devices, divide_devices
from deepspeed_operator.cli.paint import Colour, painted
from deepspeed_operator.dsconfig.wording import plural
from deepspeed_operator.job.accelerators import CPU, accelerator_of, default_resource
from deepspeed_operator.job.gpus import declared_gpus
from deepspeed_operator.job.units import gib
from deepspeed_operator.plan.advice.recalibration import as_run, correct_plan
from deepspeed_operator.plan.memory.case import Case, Missing, case_of
from deepspeed_operator.plan.time.measured import Measured
from deepspeed_operator.reconcile.admission.judge import Judgement
from deepspeed_operator.reconcile.failure.out_of_memory import out_of_memory
from deepspeed_operator.reconcile.observe.messages import AgentMessage, agent_message, ending, how
from deepspeed_operator.reconcile.observe.observed import WorldReport
from deepspeed_operator.reconcile.observe.read_as import read_as
from deepspeed_operator.reconcile.report.remedies import remedy
from deepspeed_operator.reconcile.report.verdict import sentence
from deepspeed_operator.reconcile.runtime.measured_plan import advice, plan_status
from deepspeed_operator.reconcile.runtime.observed_engine import (
    differences,
    starts_finding,
    world_finding,
    world_of_agent,
)
from deepspeed_operator.reconcile.runtime.observed_transport import mismatch
from deepspeed_operator.render.attempt import Attempt
from deepspeed_operator.render.local_attempt import ignored, loopback, variables

_SIGNALLED: Final = 128
_TAIL_LINES: Final = 20
_ASK_SECONDS: Final = 1.0
_COLOURS: Final[dict[State, Colour]] = {State.COMPLETE: "green", State.FAILED: "red"}


def train(attempt: Attempt, verdict: Judgement, directory: Directory, token: str) -> int:
    """Run an agent a node, and return how the command ends; the verdict is that on the job, the token the agents'."""
    gc.enable()  # the other commands do without; this one may go on for weeks
    begun = time.monotonic()
    environments = _environments(attempt, directory)
    world, port = attempt.world, attempt.ports.agent
    where = f"{world.nodes} × {plural(world.slots_per_node, 'rank')} on this machine, in {directory.root}"
    _say(State.STARTING, f"{where}; agents on 127.0.0.1 and up, port {port}")
    agents = LocalAgents(environments)
    live = _Live(attempt, verdict, environments, token)
    agents.wait(live.look)
    words = _last_words(directory)
    live.tell_version(words.get("deepspeed"))
    live.tell_transport(read_as(Transport, words.get("transport")))
    live.tell_plan(read_as(Measured, words.get("measured")))
    live.tell_world(world_of_agent(words.get("world")))
    seconds = time.monotonic() - begun
    if not any(process.returncode for process in agents.processes):
        _say(State.COMPLETE, f"{plural(world.size, 'rank')} ended with 0", seconds)
        return 0
    code = _failed(live, attempt, directory, agents, seconds)
    return _SIGNALLED + agents.stopped_by if agents.stopped_by else code


def _environments(attempt: Attempt, directory: Directory) -> list[dict[str, str]]:
    """Return the agents' variables. What is set stays: the ranks inherit it."""
    spec, world = attempt.job.spec, attempt.world
    declared, others = variables(attempt)
    inherited = {**declared, **os.environ}
    here = accelerator(inherited, accelerator_of(spec, default_resource(world)))
    shares = divide_devices(world, devices(inherited)) if here != CPU else None
    if left := ignored(spec):
        _note(f"ignored, as there is no pod: {', '.join(left)}")
    if others:
        _note(f"ignored, as only a cluster has their values: variables {', '.join(others)}")
    if shares is not None and spec.training.launcher is Launcher.DEEPSPEED:
        _note(f"DeepSpeed's launcher sets {DEVICES} itself: the nodes will share the first {world.slots_per_node}")
    metadata = attempt.job.metadata
    environments: list[dict[str, str]] = []
    for index in range(world.nodes):
        ours = {
            "DEEPSPEED_OPERATOR_DIR": str(directory.job),
            "DEEPSPEED_OPERATOR_FILES": str(directory.files),
            "DEEPSPEED_OPERATOR_WORKSPACE": str(directory.workspace(index)),
            "DEEPSPEED_OPERATOR_TERMINATION_LOG": str(directory.message(index)),
            ENV_INDEX: str(index),
            ENV_POD: pod_name(metadata.name, attempt.attempt, index),
            ENV_POD_UID: f"{metadata.uid}-{index}",
            ENV_NODE: f"node {index}",
        }
        share = {DEVICES: shares[index]} if shares is not None else {}
        environments.append({**inherited, **share, **ours})
    return environments


class _Live:
    """Says what the agents answer, as soon as it is news."""

    def __init__(
        self, attempt: Attempt, verdict: Judgement, environments: Sequence[dict[str, str]], token: str
    ) -> None:
        self._attempt = attempt
        self._verdict = verdict
        self._version = attempt.job.spec.deepspeed_version
        self._addresses = [loopback(index) for index in range(attempt.world.nodes)]
        self._port = attempt.ports.agent
        self._spec = attempt.job.spec
        self._environments = environments
        self._token = token
        self._runs = False
        self._told: set[str] = set()
        self._has_plan = False
        self._preflight: int | None = None
        self._next = 0.0

    def look(self) -> None:
        if self._runs and time.monotonic() >= self._next:
            self._next = time.monotonic() + _ASK_SECONDS
            state = state_of(self._addresses[0], self._port, self._token)
            self.tell_version(state.get("deepspeed") if state else None)
            found = read_as(Transport, state.get("transport")) if state else None
            # A peer's links may come before the version, which is in the first lines of rank 0's own report.
            if found is not None and (found.library or not found.links):
                self.tell_transport(found)
            self.tell_plan(read_as(Measured, state.get("measured")) if state else None)
            self.tell_world(world_of_agent(state.get("world") if state else None))
        elif not self._runs:
            states = [state_of(address, self._port, self._token) for address in self._addresses]
            self._runs = all(state is not None and state.get("phase") == "Running" for state in states)
            if self._runs:
                self._tell_running([state for state in states if state is not None])

    def _tell_running(self, states: Sequence[Json]) -> None:
        _say(State.RUNNING, "the ranks run")
        for state, environment in zip(states, self._environments, strict=True):
            ranks = [rank for rank in objects_at(state, "ranks") if rank.get("rank") is not None]
            names = ", ".join(f"rank {rank['rank']} pid {rank['pid']}" for rank in ranks) or "a launcher of its own"
            given = f" {DEVICES}={environment[DEVICES]}" if DEVICES in environment else ""
            _note(f"  node {state.get('index')}:{given} {names}")
        self.tell_version(states[0].get("deepspeed"))

    def tell_version(self, version: object) -> None:
        """Say once which DeepSpeed there is: the agent looks for it while the ranks start, and may find it after."""
        if not isinstance(version, str) or not self._runs:
            return
        self._version = version
        self._tell(f"  DeepSpeed {version}")

    def tell_transport(self, transport: Transport | None) -> None:
        """Say how the ranks are connected: agents learn it one after the other, and each line is said once."""
        if transport is not None:
            self._preflight = transport.bus_bandwidth
        for line in _transport_lines(self._spec, transport) if transport is not None else ():
            self._tell(line)

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            _note(line)

    def tell_plan(self, measured: Measured | None) -> None:
        """Say once how the first steps compare with their plan."""
        if measured is None or self._has_plan:
            return
        self._has_plan = True
        found = correct_plan(self.case(measured), self._attempt.world.nodes, measured, self._preflight)
        _note(f"  first steps: {_plan_words(plan_status(found))}")
        if better := advice(found, "spec.dsConfig"):
            _note(f"{painted('advice', 'green')}: {better}")

    def tell_world(self, report: WorldReport) -> None:
        """Say once what is wrong with the ranks' world and loads, and what their engine does otherwise than the job."""
        verdict = self._verdict
        values = verdict.configuration.values if verdict.configuration is not None else None
        found = differences(report, values, verdict.batch, self._attempt.world, "spec.dsConfig")
        world = [world_finding(report.note)] if report.note is not None else []
        starts = [starts_finding(report.starts)] if report.starts is not None else []
        for finding in [*found, *world, *starts]:
            self._tell(f"{painted('warning', 'yellow')}: {finding}")

    def case(self, measured: Measured | None = None) -> Case | Missing:
        """Return what the job's costs follow from."""
        configuration, batch = self._verdict.configuration, self._verdict.batch
        if configuration is None:
            return Missing("spec.dsConfig", "there is none")
        values = configuration.values
        if measured is not None:
            values, batch = as_run(values, batch, measured)
        return case_of(self._spec, values, self._attempt.world, batch, self._version)


def _plan_words(plan: PlanStatus) -> str:
    predicted = f" (predicted: {plan.predicted_step_seconds} s)" if plan.predicted_step_seconds is not None else ""
    network = f", network {plan.network_percent} %" if plan.network_percent is not None else ""
    rate = f", all-reduce {plan.bus_bandwidth / 1e9:.1f} GB/s" if plan.bus_bandwidth is not None else ""
    memory = f", memory {gib(plan.measured_peak_memory)}" if plan.measured_peak_memory is not None else ""
    of_memory = f" (predicted: {gib(plan.predicted_peak_memory)})" if plan.predicted_peak_memory is not None else ""
    remarks = f"; {plan.message}" if plan.message else ""
    return f"{plan.measured_step_seconds} s a step{predicted}{network}{rate}{memory}{of_memory}{remarks}"


def _transport_lines(spec: DeepSpeedJobSpec, transport: Transport) -> Iterator[str]:
    if transport.bus_bandwidth is not None:
        yield f"  bus bandwidth before training: {transport.bus_bandwidth / 1e9:.1f} GB/s"
    for link in transport.links:
        who = "the nodes" if link.between == "Nodes" else "the ranks of a node"
        devices = f" ({', '.join(link.devices)})" if link.devices else ""
        yield f"  between {who}: {link.uses}{devices}, says {transport.library or 'NCCL'}"
    if found := mismatch(spec, transport):
        yield f"{painted('warning', 'yellow')}: {found}"


def _failed(live: _Live, attempt: Attempt, directory: Directory, agents: LocalAgents, seconds: float) -> int:
    """Say why and what to do, and return the code to end with."""
    nodes, codes = range(attempt.world.nodes), [process.returncode for process in agents.processes]
    said = [_message(directory, index) for index in nodes]
    killed = next((index for index in nodes if codes[index] < 0), None)
    if killed is not None:  # it could not say so itself; its peers tell only what followed
        reason = Reason.TERMINATED if agents.stopped_by else ""
        _say_failed(f"the agent of node {killed} {how(None, -codes[killed])}", reason, seconds)
        return _SIGNALLED - codes[killed]
    first = next(index for index in nodes if codes[index])
    cause = said[first]
    if cause is None:
        _say_failed(f"the agent of node {first} {how(codes[first], None)}", "", seconds)
        return codes[first]
    own = (said[cause.index] if cause.index is not None and cause.index in nodes else cause) or cause
    gpus = declared_gpus(attempt.job.spec, default_resource(attempt.world))
    hint = out_of_memory(live.case(), f"{cause.signature}\n{own.tail}", gpus)
    _say_failed(f"{_words(cause)}{f'. {hint}' if hint else ''}", cause.reason, seconds)
    _print_tail(own)
    return codes[first]


def _say_failed(words: str, reason: str, seconds: float) -> None:
    """As the condition of a job says it; who has stopped it knows what to do."""
    _say(
        State.FAILED,
        words if reason == Reason.TERMINATED else f"{sentence(words)} {remedy(reason, words, 'run again')}",
        seconds,
    )


def _message(directory: Directory, index: int) -> AgentMessage | None:
    path = directory.message(index)
    return agent_message(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else None


def _last_words(directory: Directory) -> Json:
    """Return what rank 0's agent left."""
    with suppress(OSError, ValueError):
        return object_at(
            json.loads(directory.message(0).read_text(encoding="utf-8", errors="replace").partition("\n")[0])
        )
    return {}


def _words(cause: AgentMessage) -> str:
    if cause.reason not in OF_A_RANK:
        return f"{cause.reason} on node {cause.index}: {cause.signature}"
    who = f"rank {cause.rank}" if cause.rank is not None else "the ranks' launcher"
    return f"{who} on node {cause.index} {ending(cause)}"


def _print_tail(cause: AgentMessage) -> None:
    lines = cause.tail.splitlines()[-_TAIL_LINES:]
    if cause.rank is not None and lines:
        print(f"The last lines of rank {cause.rank}:", *(f"  {line}" for line in lines), sep="\n", flush=True)


def _say(state: State, text: str, seconds: float | None = None) -> None:
    word = painted(state, _COLOURS.get(state), bold=True)
    _note(f"{word}: {text}" if seconds is None else f"{word} after {seconds:.1f} s: {text}")


def _note(text: str) -> None:
    print(f"[dsjob] {text}", flush=True)
