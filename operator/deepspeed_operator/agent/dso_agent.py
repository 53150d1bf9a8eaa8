"""One pod's part of the gang, from the first call to rank 0 until the ranks' result is the gang's result."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import time
import traceback
from typing import Any, Callable

import dso_preflight
from dso_bandwidth import LIMIT_SECONDS, Sweep
from dso_cause import ending, exit_code, message, write_message
from dso_gang import SETTLE_SECONDS, Gang
from dso_home import settle
from dso_http import YOUNG, Answer, Server, allow_files, listen
from dso_link import TELL_SECONDS, Link
from dso_measure import Measure
from dso_output import Output
from dso_plan import PROTOCOL, Cause, Failure, Plan, load
from dso_ranks import Child, Ranks, specs
from dso_stuck import stuck
from dso_symptom import WITHIN_PREFLIGHT, is_secondary
from dso_transport import Source, Watch, brief
from dso_world import of_pod

KILL_AFTER_SECONDS = 3.0
STRANGER = "it does not know the token of the attempt that runs here"
UNKILLABLE_AFTER_SECONDS = 10.0  # of SIGKILLs; the kernel takes some to free a rank's memory
PR_SET_CHILD_SUBREAPER = 36


class Agent:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.hold = plan.beat
        self.token = plan.token
        self.started = time.monotonic()
        self.events: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.link = Link(plan, lambda: self.events.put(None))
        self.watch = Watch(Source(os.environ), self.link.report_transport)
        self.measured = Measure(plan)
        self.output = Output(self.watch.sniff)
        self.ranks = Ranks(plan, self.output)
        self.gang = Gang(plan, self.started) if plan.index == 0 else None
        self.probe: dso_preflight.Probe | None = None
        self.phase = "Waiting"
        self.warnings: list[str] = []
        self.seen_version = 0
        self.suspect: tuple[float, Cause] | None = None
        self.failed: Child | None = None  # or the first that left
        self.bandwidth: int | None = None
        self.terminated_by = 0
        self.stuck: Cause | None = None  # why the gang has ended where a process of this pod does not

    # The HTTP thread

    def probed(self) -> Answer:
        undecided = self.phase in ("Waiting", "Preflight")
        return None if undecided else (200 if self.phase == "Running" else 503, {"phase": self.phase})

    def stranger(self, path: str, host: str) -> tuple[int, Any]:
        if path in ("/livez", "/state"):
            return 200, {"phase": self.phase}
        if path == "/beat":
            if self.gang:
                self.gang.note_refusal(host, STRANGER, time.monotonic())
            return 403, {"refused": STRANGER}
        return 404, {"error": "no such path"}

    def answer(self, path: str, body: dict[str, Any], host: str) -> Answer:
        if path == "/beat" and self.gang:
            status, reply = self.gang.beat(body, time.monotonic())
            if "refused" in reply:
                self.gang.note_refusal(host, reply["refused"], time.monotonic())
            held = status == 200 and body["wait"] and not self.gang.is_news(body)
            return None if held else (status, reply)
        if path == "/state":
            return 200, self.state()
        return self.stranger(path, host)

    def held(self, body: dict[str, Any], late: bool) -> Answer:
        assert self.gang
        return (200, self.gang.reply()) if late or self.gang.is_news(body) else None

    def sent(self, body: dict[str, Any], answer: Any) -> None:
        if self.gang and "finished" in answer:
            self.gang.sent(body, answer)

    def changed(self, now: float) -> bool:
        if not self.gang:
            return False
        self.gang.check(now)
        seen, self.seen_version = self.seen_version, self.gang.version
        return seen != self.seen_version

    def state(self) -> dict[str, Any]:
        plan = self.plan
        registered = len(self.gang.members) if self.gang else self.link.registered
        missing = self.gang.missing()[:10] if self.gang else []
        return {
            "protocol": PROTOCOL,
            "job": plan.job,
            "uidDigest": plan.uid_digest,
            "attempt": plan.attempt,
            "index": plan.index,
            "phase": self.phase,
            "deepspeed": self.probe.version if self.probe else None,
            "warnings": self.warnings,
            "hosts": {"expected": plan.nodes, "registered": registered},
            "missing": [plan.hosts[index] for index in missing],
            "refused": self.gang.refused(time.monotonic()) if self.gang else {},
            "ranks": self.ranks.states(),
            "transport": self.transport(),
            "measured": self.measured.found(),
            "stuck": self.stuck,
            "world": self.gang.world.told(over=self.phase == "Finished") if self.gang else None,
        }

    def transport(self) -> dict[str, Any] | None:
        """The gang's; only rank 0's agent knows it."""
        if not self.gang:
            return None
        over = self.watch.stepped or self.phase == "Finished"
        found = self.gang.transport(over, self.watch.source.note)
        return found if self.bandwidth is None else {**found, "busBandwidth": self.bandwidth}

    # The main thread

    def run(self) -> int:
        cause: Cause | None = None
        try:
            self.train()
        except Failure as failure:
            cause = self.stop(failure.cause)
        except Exception as error:
            traceback.print_exc()
            cause = self.stop(self.plan.cause("AgentError", f"{type(error).__name__}: {error}"))
        self.phase = "Finished"
        self.ranks.end()
        self.write(cause)
        self.wait_until_told()
        self.wait_until_released()
        self.watch.end()
        self.measured.end()
        return exit_code(cause)

    def train(self) -> None:
        plan = self.plan
        try:
            # Two calls of each peer, one of which stays open while it waits; strangers; and our own.
            allow_files((2 * plan.nodes if self.gang else 0) + YOUNG + 256)
            backlog = min(4096, plan.nodes + 128)
            Server(listen(plan.hosts[plan.index], plan.agent_port, backlog), self).start()
        except OSError as error:
            raise Failure(plan.cause("Preflight", f"agent port {plan.agent_port}: {error.strerror}")) from error
        children = specs(plan, self.watch.source.environment)
        self.measured.hook(children)
        try:
            for warning in dso_preflight.check(plan):
                self.warn(warning)
            for warning in dso_preflight.check_world(plan, children):
                self.warn(warning)
            if plan.kind != "command" or dso_preflight.which(plan.python):
                self.probe = dso_preflight.Probe(plan)
            self.link.start()
            self.wait(lambda: self.link.released, for_peers=True)
            if plan.launcher == "DeepSpeed":
                self.wait(lambda: not self.probe or self.probe.done)
                if self.probe and self.probe.missing:
                    raise Failure(plan.cause("Preflight", self.warnings[-1]))
            self.watch.start()
            if plan.preflight is not None:
                self.measure()
            self.ranks.start(children)
        except OSError as error:
            raise Failure(plan.cause("Preflight", f"{error.strerror}: {error.filename}")) from error
        self.phase = "Running"
        self.wait(lambda: not self.ranks.running() and not self.suspect)
        self.watch.poll()
        self.look()
        self.link.tell("Finished")
        self.wait(lambda: self.link.finished)

    def measure(self) -> None:
        """The bandwidth preflight; raises Failure."""
        plan = self.plan
        if plan.nodes * plan.slots == 1:
            self.warn("one rank has no network to measure: spec.network.preflight does nothing")
            return
        self.phase = "Preflight"
        sweep = Sweep(plan, self.watch.source.environment)
        try:
            self.ranks.start(sweep.specs)
            until = time.monotonic() + LIMIT_SECONDS
            children = self.ranks.children
            self.wait(lambda: not self.ranks.running() or any(c.code for c in children) or time.monotonic() > until)
            done = next((local for local, child in enumerate(children) if child.code is not None), None)
            found = sweep.result(done) if done is not None else None
            failed = next((child for child in children if child.code), None)
            if found:
                self.bandwidth = found["busBandwidth"]
                if sweep.below_minimum(found):
                    if self.gang is None:
                        # All measure the same; rank 0's agent also leaves the number for status.
                        until = time.monotonic() + TELL_SECONDS
                        self.wait(lambda: time.monotonic() > until)
                    raise Failure(plan.cause("PreflightFailed", sweep.below_minimum(found)))
            if failed:
                cause = self.ranks.failure(failed)
                text = WITHIN_PREFLIGHT + (cause["signature"] or ending(cause))
                raise Failure({**cause, "reason": "PreflightFailed", "signature": text[:300]})
            if self.ranks.running():
                raise Failure(plan.cause("PreflightFailed", f"the all-reduces did not end in {LIMIT_SECONDS:.0f} s"))
        finally:
            sweep.end()
        self.ranks.end()
        self.output = Output(self.watch.sniff)
        self.ranks = Ranks(plan, self.output)

    def look(self) -> None:
        """At what the ranks have reported of their worlds and engines."""
        reports = self.measured.news()
        if reports is not None:
            self.link.report_world(of_pod(reports))

    def wait(self, condition: Callable[[], bool], for_peers: bool = False) -> None:
        """Until the condition holds; raises Failure for whatever ends the run before."""
        while not condition():
            self.next_event(0.25)
            self.look()
            if self.link.verdict:
                raise Failure(self.link.verdict)
            if self.terminated_by:
                text = f"stopped by {signal.Signals(self.terminated_by).name} from outside"
                raise Failure(self.plan.cause("Terminated", text, signal=self.terminated_by))
            now = time.monotonic()
            if self.suspect and (now > self.suspect[0] or (self.plan.nodes == 1 and not self.ranks.running())):
                raise Failure(self.suspect[1])
            if for_peers:
                self.check_start(now)
            elif self.link.released and now - self.link.contact > self.plan.fence:
                raise Failure(self.hub_lost())

    def check_start(self, now: float) -> None:
        # Rank 0's agent names who is missing; only a pod that does not reach it speaks for itself.
        if now - self.started > self.plan.deadline and now - self.link.contact > self.plan.beat + 5:
            reason, text = self.link.trouble
            raise Failure(self.plan.cause(reason, text, 0))

    def hub_lost(self) -> Cause:
        plan, node = self.plan, self.link.hub_node
        text = f"no sign of life from pod {plan.pod_of(0)} (host {plan.hosts[0]}) on node {node} for {plan.fence} s"
        return {**plan.cause("PeerLost", text, 0), "node": node}

    def next_event(self, timeout: float) -> None:
        try:
            number = self.events.get(timeout=timeout)
        except queue.Empty:
            number = None
        if number in (signal.SIGTERM, signal.SIGINT):
            self.terminated_by = self.terminated_by or number
        self.reap()

    def reap(self) -> None:
        """Of whatever child or orphan has ended; of ours, the first that failed is the cause."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if self.probe and pid == self.probe.process.pid:
                for warning in self.probe.reaped(code):
                    self.warn(warning)
            child = self.ranks.reaped(pid, code)
            if child and self.phase == "Running":
                self.rank_ended(child)

    def rank_ended(self, child: Child) -> None:
        if child.code == 0 and not self.link.left:
            # Nothing is wrong with it, unless another rank fails for want of this one.
            self.failed = self.failed or child
            self.link.left = self.complete(self.plan.cause("RankLeft", "", rank=child.spec.rank, exitCode=0))
            if self.ranks.running():
                self.link.tell("Running")
        elif child.code:
            self.rank_failed(child)

    def rank_failed(self, child: Child) -> None:
        cause = self.complete(self.ranks.failure(child))
        self.output.say(ending(cause))
        if self.suspect and is_secondary(cause):
            return
        self.failed = child
        self.link.tell("Stopping", cause)
        # It may have failed only because another rank did, whose own report is still on the way.
        if not is_secondary(cause):
            raise Failure(cause)
        self.suspect = (time.monotonic() + SETTLE_SECONDS, cause)

    def complete(self, cause: Cause) -> Cause:
        version = self.probe.version if self.probe else None
        return {**cause, "deepspeed": version} if cause["index"] == self.plan.index else cause

    def stop(self, cause: Cause) -> Cause:
        """Ends the ranks, tells the gang, and returns the cause that the gang agreed on."""
        self.phase = "Stopping"
        cause = self.complete(cause)
        self.watch.poll()
        words = ending(cause) if cause["reason"] in ("RankFailed", "RankLeft") else cause["signature"]
        self.output.say(f"stopping, {cause['reason']}: {words}")
        self.write(cause)  # early: we may be killed before the end
        if not self.link.verdict:
            self.link.tell("Stopping", cause)
        self.ranks.signal(signal.SIGTERM)
        # A termination leaves the ranks their grace, so that they can save; a failure has nothing to save.
        patience = max(2.0, self.plan.grace - 5) if cause["reason"] == "Terminated" else KILL_AFTER_SECONDS
        until = time.monotonic() + patience
        while any(self.ranks.groups()) and time.monotonic() < until + UNKILLABLE_AFTER_SECONDS:
            if time.monotonic() > until:
                self.ranks.signal(signal.SIGKILL)
            self.next_event(0.05)
        remaining = set(self.ranks.groups())
        unkillable = stuck(remaining) if remaining else ""
        if unkillable:
            self.warn(unkillable)
        until = time.monotonic() + (min(TELL_SECONDS, 2.0) if self.terminated_by else TELL_SECONDS)
        # Rank 0's agent may be what is missing: then there is nobody to agree with.
        alone = cause["reason"] in ("PeerLost", "PeersMissing", "HostNotResolved")
        while not (self.link.verdict or self.link.refused or alone) and time.monotonic() < until:
            self.next_event(0.05)
        cause = self.link.verdict or cause
        if unkillable:
            cause = self.stuck = {**cause, "stuck": f"Pod {self.plan.pod} does not end: {unkillable}"}
        return cause

    def wait_until_told(self) -> None:
        """Rank 0's agent stays while peers fetch the result, but not for those that are gone."""
        until = time.monotonic() + (2.0 if self.terminated_by else TELL_SECONDS)
        while self.gang and not self.gang.all_told() and time.monotonic() < until:
            self.next_event(0.02)

    def wait_until_released(self) -> None:
        """The first process of a container ends for the kernel only after all others: until then it can as well answer.

        Where another is the first, the container ends with this one.
        """
        while self.stuck and os.getpid() == 1 and any(self.ranks.groups()):
            self.next_event(1.0)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.output.say(f"warning: {text}")

    def write(self, cause: Cause | None) -> None:
        version = self.probe.version if self.probe else None
        child = self.failed or (self.ranks.children or [None])[0]
        found, measured = self.transport(), self.measured.found()
        more = {"transport": brief(found)} if found and (found["links"] or self.bandwidth) else {}
        if measured:
            more["measured"] = measured
        world = self.gang.world.told(over=cause is None) if self.gang else None
        if world and (world["note"] or world["engines"]):
            more["world"] = {**world, "engines": world["engines"][:2]}
        done = {"protocol": PROTOCOL, "reason": "Completed", "deepspeed": version, **more}
        tail = child.stream.tail if child else b""
        write_message(message({**cause, **more}, tail) if cause else message(done, b""))


def main() -> int:
    if os.getpid() != 1:
        # In a shared process namespace the ranks' orphans would go to another process, unseen.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if given := settle(os.environ):
        print(f"[deepspeed-operator] what the container lacks for uid {os.getuid()}: {given}", flush=True)
    try:
        agent = Agent(load())
    except Failure as failure:
        print(f"[deepspeed-operator] {failure}", flush=True)
        write_message(message(failure.cause, b""))
        return exit_code(failure.cause)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:300]
        print(f"[deepspeed-operator] {text}", flush=True)
        write_message(message({"protocol": PROTOCOL, "reason": "AgentError", "signature": text}, b""))
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda number, _: agent.events.put(number))
    return agent.run()
