"""One pod's part of the gang, from its first heartbeat until the ranks' result is the gang's result."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import time
from typing import Callable

import dso_preflight
from dso_cause import ending, exit_code
from dso_descendants import kill
from dso_home import settle
from dso_http import YOUNG, Server, allow_files, listen
from dso_launch import PROTOCOL, Cause, LaunchDocument, RunFailedError, load
from dso_member import INSIST_SECONDS
from dso_message import message, write_message
from dso_network import name_interface
from dso_pod import Pod
from dso_processes import Child
from dso_reason import OF_A_RANK
from dso_round import Round
from dso_service import Service
from dso_stuck import stuck
from dso_symptom import WITHIN_PREFLIGHT, symptom

KILL_AFTER_SECONDS = 3.0
UNKILLABLE_AFTER_SECONDS = 10.0  # of SIGKILLs; the kernel takes some to free a rank's memory
PR_SET_CHILD_SUBREAPER = 36


class Agent:
    """Plays the pod's part. All of it happens in the main thread, which waits for events.

    An event is the number of a signal, or None for news from the hub. The threads of the HTTP service, of the member,
    of the output and of the transport's report run beside it.
    """

    def __init__(self, launch: LaunchDocument) -> None:
        self.launch = launch
        named = name_interface(os.environ, launch)
        self.events: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.pod = Pod(launch, lambda: self.events.put(None))
        self.member, self.hub = self.pod.member, self.pod.hub
        if named:
            self.pod.warn(named)
        self.terminated_by = 0
        self.stopping = 0.0  # since when the round's processes are being ended

    @property
    def round(self) -> Round:
        return self.pod.round

    def run(self) -> int:
        """The whole life; returns the code to exit with."""
        cause = self.caught(self.prepare) or self.caught(self.play)
        while cause:
            cause = self.stop(cause)
            if cause:
                break
            cause = self.caught(self.play_again)
        self.pod.phase = "Finished"
        self.pod.end(cause)
        self.wait_until_informed()
        self.pod.tell_endings(cause)
        self.wait_until_released()
        self.round.clear()
        return exit_code(cause)

    def caught(self, act: Callable[[], None]) -> Cause | None:
        """Why the round ends; None where all ranks have ended with 0."""
        try:
            act()
        except RunFailedError as failed:
            return failed.cause
        except Exception as error:
            import traceback

            traceback.print_exc()
            return self.launch.cause("AgentError", f"{type(error).__name__}: {error}")
        return None

    def prepare(self) -> None:
        """Serve, check what can be known before the ranks start, and register with the hub."""
        launch = self.launch
        try:
            # Two calls of each peer, one of which stays open while it waits; strangers; and our own.
            allow_files((2 * launch.nodes if self.hub else 0) + YOUNG + 256)
            backlog = min(4096, launch.nodes + 128)
            Server(listen(launch.hosts[launch.index], launch.agent_port, backlog), Service(self.pod)).start()
        except OSError as error:
            text = f"agent port {launch.agent_port}: {error.strerror}"
            raise RunFailedError(launch.cause("PodCheckFailed", text)) from error
        try:
            for warning in dso_preflight.check(launch):
                self.pod.warn(warning)
            for warning in dso_preflight.check_world(launch, self.round.specs):
                self.pod.warn(warning)
            if launch.kind != "command" or dso_preflight.which(launch.python):
                self.pod.probe = dso_preflight.Probe(launch)
        except OSError as error:
            raise self.cannot_start(error) from error
        try:
            self.pod.find_checkpoint(self.pause)
        finally:
            self.member.start()  # peers hear why the round does not begin

    def play(self) -> None:
        """One round: returns when the gang has succeeded, and no rank is left here."""
        launch, current = self.launch, self.round
        waits = not self.member.opened
        self.wait(lambda: self.member.opened == current.number and not self.is_over, for_peers=waits)
        first = current.number == launch.round
        if not first:
            self.pod.printer.say(self.hub.restarts.story if self.hub else f"round {current.number} begins")
            write_message(b"")  # what the round before said is no longer why this pod would end
        if launch.launcher == "DeepSpeed":
            self.wait(lambda: not self.pod.probe or self.pod.probe.done)
            if self.pod.probe and self.pod.probe.missing:
                raise RunFailedError(launch.cause("PodCheckFailed", self.pod.warnings[-1]))
        current.resume_from(self.member.resume_from)
        current.watch.start()
        try:
            if launch.preflight is not None and first:
                self.measure_bandwidth()
            current.start(current.specs, self.pod.warm)
        except OSError as error:
            raise self.cannot_start(error) from error
        self.pod.phase = self.member.current.phase = "Running"
        self.wait(lambda: current.finished or self.member.finished)
        if not current.finished:
            self.pod.phase = "Stopping"
            self.pod.printer.say("stopping, the program of rank 0's pod has ended with success")
            self.end_ranks(None)
        current.watch.poll()
        self.look()
        self.member.report("Finished")
        self.wait(lambda: self.member.finished)
        self.pod.see_last_save(self.pause)

    def play_again(self) -> None:
        """Another round, once nothing of the last one is left here."""
        try:
            self.round.end()
            self.round.clear()
            self.round.shared_memory.clear()
            self.pod.find_checkpoint(self.pause)
        except Exception:
            # The hub has the round before behind it, and leaves what is reported of that one.
            self.pod.begin(self.member.round, time.monotonic() - self.stopping, "Stopping")
            raise
        self.pod.begin(self.member.round, time.monotonic() - self.stopping, "Waiting")
        self.play()

    def cannot_start(self, error: OSError) -> RunFailedError:
        return RunFailedError(self.launch.cause("PodCheckFailed", f"{error.strerror}: {error.filename}"))

    def measure_bandwidth(self) -> None:
        """The bandwidth preflight; raises RunFailedError."""
        launch, current = self.launch, self.round
        if launch.nodes * launch.slots == 1:
            self.pod.warn("one rank has no network to measure: spec.network.preflight does nothing")
            return
        from dso_bandwidth import LIMIT_SECONDS, BandwidthSweep

        self.pod.phase = "Preflight"
        sweep = BandwidthSweep(launch, current.number, current.watch.source.environment)
        try:
            current.start(sweep.specs)
            until = time.monotonic() + LIMIT_SECONDS
            processes = current.processes
            children = processes.children
            self.wait(lambda: not processes.running() or any(c.code for c in children) or time.monotonic() > until)
            done = next((local for local, child in enumerate(children) if child.code is not None), None)
            result = sweep.result(done) if done is not None else None
            failed = next((child for child in children if child.code), None)
            if result:
                self.pod.bandwidth = result["busBandwidth"]
                too_slow = sweep.below_minimum(result)
                if too_slow:
                    if self.hub is None:
                        # All measure the same; rank 0's agent also leaves the number for status.
                        until = time.monotonic() + INSIST_SECONDS
                        self.wait(lambda: time.monotonic() > until)
                    raise RunFailedError(launch.cause("PreflightFailed", too_slow))
            if failed:
                cause = processes.failure(failed)
                text = WITHIN_PREFLIGHT + (cause["signature"] or ending(cause))
                raise RunFailedError({**cause, "reason": "PreflightFailed", "signature": text[:300]})
            if processes.running():
                text = f"the all-reduces did not end in {LIMIT_SECONDS:.0f} s"
                raise RunFailedError(launch.cause("PreflightFailed", text))
        finally:
            sweep.end()

    def look(self) -> None:
        """At what the ranks have reported of their worlds and engines, and whether they make steps."""
        current, told = self.member.current, self.member.current.stepped
        current.take_world(self.round.look())
        self.pod.look_at_hang()
        current.stepped = self.round.stepped
        if self.pod.warm and self.pod.phase == "Running":
            self.round.warm_up(self.pod.warm)
        if current.stepped and not told:
            # At once: whether a failure came before or after it decides what follows.
            self.member.report(current.phase)

    @property
    def is_over(self) -> bool:
        """Whether the hub has this round behind it, and prepares another one."""
        return self.member.round > self.member.current.number

    def wait(self, condition: Callable[[], bool], for_peers: bool = False) -> None:
        """Until the condition holds; raises RunFailedError for whatever ends the round before."""
        while not condition():
            self.next_event(0.25)
            self.look()
            if self.member.cause:
                raise RunFailedError(self.member.cause)
            if self.terminated_by:
                text = f"stopped by {signal.Signals(self.terminated_by).name} from outside"
                raise RunFailedError(self.launch.cause("Terminated", text, signal=self.terminated_by))
            if self.is_over and self.member.over:
                raise RunFailedError(self.member.over)
            now = time.monotonic()
            outcome = self.round.outcome(now)
            if outcome:
                raise RunFailedError(outcome)
            if for_peers:
                self.check_start(now)
            elif self.hub_is_silent():
                raise RunFailedError(self.member.hub_lost())

    def check_start(self, now: float) -> None:
        # Rank 0's agent names who is missing; only a pod that does not reach it speaks for itself.
        launch = self.launch
        if now - self.pod.started > launch.deadline and now - self.member.contact > launch.hold + 5:
            reason, text = self.member.trouble
            raise RunFailedError(launch.cause(reason, text, 0))

    def hub_is_silent(self) -> bool:
        # Without ranks, a pod can wait for another hub.
        seconds = self.launch.fence + (self.launch.hub_seconds if self.pod.phase == "Waiting" else 0)
        return bool(self.member.opened) and time.monotonic() - self.member.contact > seconds

    def pause(self) -> bool:
        self.next_event(0.02)
        return bool(self.terminated_by or self.member.cause)

    def next_event(self, timeout: float) -> None:
        try:
            number = self.events.get(timeout=timeout)
        except queue.Empty:
            number = None
        if number in (signal.SIGTERM, signal.SIGINT):
            self.terminated_by = self.terminated_by or number
        self.reap()

    def reap(self) -> None:
        """Take the end of every child, and of every orphan that came to this process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self.pod.reaped(pid, code)
            child = self.round.processes.reaped(pid, code)
            if child and self.pod.phase == "Running":
                self.rank_ended(child)

    def rank_ended(self, child: Child) -> None:
        failure = self.round.rank_ended(child)
        self.look()  # its last output may have shown a step
        if failure:
            self.member.report("Stopping", self.pod.complete(failure))
        elif self.round.left and not self.member.current.left:
            self.member.current.left = self.pod.complete(self.round.left)
            if self.round.processes.running():
                self.member.report("Running")

    def stop(self, cause: Cause) -> Cause | None:
        """End the ranks, report to the hub, and return the cause that the gang ends with; None: there is another round.

        A process that does not end leaves this pod no other round.
        """
        self.stopping = time.monotonic()
        if self.is_over and self.pod.phase == "Waiting" and not (self.member.cause or self.terminated_by):
            return None  # nothing of that round has started here
        outlives = self.launch.hub_seconds and self.member.opened and self.pod.phase != "Waiting"
        self.pod.phase = "Stopping"
        cause = self.pod.complete(cause)
        self.round.watch.poll()
        self.look()
        words = ending(cause) if cause["reason"] in OF_A_RANK else cause["signature"]
        self.pod.printer.say(f"stopping, {cause['reason']}: {words}")
        self.pod.write_message(cause)  # early: we may be killed before the end
        if self.pod.checkpoints and cause["reason"] == "Terminated":
            self.pod.checkpoints.tell_to_end()
        if not (self.member.cause or self.is_over):
            self.member.report("Stopping", cause)
        if self.pod.warm and self.round.forked and self.round.failure and not self.round.stepped:
            self.pod.warm.failed()
        unkillable = self.end_ranks(cause)
        if cause["reason"] == "Terminated":
            self.pod.see_last_save(self.pause)
        if unkillable:
            self.member.current.stuck = f"Pod {self.launch.pod} does not end: {unkillable}"
            self.member.report("Stopping")
        # Rank 0's agent may be what is missing: then there is nobody to agree with.
        alone = cause["reason"] in ("PeerLost", "PeersMissing", "HostNotResolved") and not (self.is_over or outlives)
        begun = time.monotonic()
        while not (self.member.cause or self.member.finished or self.member.refused or alone):
            if time.monotonic() - begun > self.patience():
                break
            if self.is_over and not unkillable:
                return None
            self.next_event(0.05)
        if not self.member.cause and self.hub_is_silent() and symptom(cause):
            cause = self.pod.complete(self.member.hub_lost())  # which it follows from
        cause = self.member.cause or cause
        if unkillable:
            cause = self.pod.stuck = {**cause, "stuck": self.member.current.stuck}
        if self.hub and self.hub.restarts.refused:
            self.pod.printer.say(f"the ranks do not start again in their pods: {self.hub.restarts.refused}")
        return cause

    def patience(self) -> float:
        """How long to wait for the hub's word on the end of a round."""
        if self.terminated_by:
            return min(INSIST_SECONDS, 2.0)
        if not self.launch.failure_policy["restartInPlace"]:
            return INSIST_SECONDS
        # As long as the hub counts this pod as alive: it may have another round for it. So may another hub.
        return max(INSIST_SECONDS, self.launch.fence) + (self.launch.hub_seconds if self.member.opened else 0)

    def end_ranks(self, cause: Cause | None) -> str:
        """SIGTERM to the ranks, then SIGKILL to all that they have started; returns in words what even that leaves.

        A cause of None is success.
        """
        processes = self.round.processes
        processes.stop()
        # A termination leaves the ranks their grace, so that they can save; a failure has nothing to save.
        graceful = cause is None or cause["reason"] == "Terminated"
        patience = max(2.0, self.launch.grace - 5) if graceful else KILL_AFTER_SECONDS
        until = time.monotonic() + patience
        while (left := self.pod.processes()) and time.monotonic() < until + UNKILLABLE_AFTER_SECONDS:
            ranks = any(processes.groups())
            if ranks and time.monotonic() > until:
                self.pod.killed_after = patience if graceful else None
            # What the ranks have started has nothing to do without them.
            if not ranks or time.monotonic() > until:
                kill(left)
            self.next_event(0.05)
        if not left:
            return ""
        unkillable = stuck(left)
        self.pod.warn(unkillable)
        return unkillable

    def wait_until_informed(self) -> None:
        """Rank 0's agent stays while peers fetch the result, but not for those that are gone."""
        until = time.monotonic() + (2.0 if self.terminated_by else INSIST_SECONDS)
        while self.hub and not self.hub.all_informed() and time.monotonic() < until:
            self.pause()

    def wait_until_released(self) -> None:
        """The first process of a container ends for the kernel only after all others: until then it can as well answer.

        Where another is the first, the container ends with this one.
        """
        while self.pod.stuck and os.getpid() == 1 and self.pod.processes():
            self.next_event(1.0)


def main() -> int:
    if os.getpid() != 1:
        # In a shared process namespace the ranks' orphans would go to another process, unseen.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if given := settle(os.environ):
        print(f"[deepspeed-operator] what the container lacks for uid {os.getuid()}: {given}", flush=True)
    try:
        agent = Agent(load())
    except RunFailedError as failed:
        print(f"[deepspeed-operator] {failed}", flush=True)
        write_message(message(failed.cause, b""))
        return exit_code(failed.cause)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:300]
        print(f"[deepspeed-operator] {text}", flush=True)
        write_message(message({"protocol": PROTOCOL, "reason": "AgentError", "signature": text}, b""))
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda number, _: agent.events.put(number))
    return agent.run()
