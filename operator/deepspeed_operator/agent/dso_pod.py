"""What this pod's agent knows, and what the operator gets of it: the state over HTTP, and the termination message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from dso_checkpoint import LONGEST_LOOK_SECONDS, Checkpoints
from dso_descendants import descendants
from dso_hub import Hub
from dso_late import ranks_now
from dso_launch import PROTOCOL, Cause, LaunchDocument
from dso_member import Member
from dso_message import message, write_message
from dso_output import Printer
from dso_preflight import Probe
from dso_progressinput import CallbackService
from dso_round import Round
from dso_transport import brief

if TYPE_CHECKING:
    from dso_checkpoint_files import Checkpoint
    from dso_universal import Conversion
    from dso_warm import WarmInterpreters

WORDS = 120  # characters of the latest restart's failure that a termination message has


class Pod:
    """What lives as long as the pod: its membership, the hub where it is rank 0's, and the round that it plays.

    The main thread changes it, and the HTTP thread reads it.
    """

    def __init__(self, launch: LaunchDocument, wake: Callable[[], None]) -> None:
        self.launch = launch
        self.started = time.monotonic()
        self.printer = Printer()
        self.member = Member(launch, wake)
        self.hub = Hub(launch, self.started) if launch.index == 0 else None
        self.warnings: list[str] = []
        self.checkpoints: Checkpoints | None = None
        if self.hub:
            self.checkpoints = self.hub.checkpoints = Checkpoints(launch, self.warn)
            self.checkpoints.start()
        self.callback = self._callback() if launch.index == 0 else None
        self.round = self._round()
        self.member.describe = lambda: ranks_now(self.round.processes.children)
        self.member.current_round = lambda: self.round
        self.hang: dict[str, Any] | None = None  # as the log has told it
        self.probe: Probe | None = None
        self.phase = "Waiting"
        self.bandwidth: int | None = None  # bytes a second, where a preflight has measured it
        self.killed_after: float | None = None  # seconds of grace after which ranks were killed
        self.saved_at_end = ""  # whether the ranks saved when they were told to end, in words; empty: nobody knows
        self.warm = self._warm_interpreters() if launch.warm_interpreters else None
        self.conversion: Conversion | None = None  # of the checkpoint that the latest round begins with
        self.stuck: Cause | None = None  # why the gang has ended where a process of this pod does not

    def _warm_interpreters(self) -> WarmInterpreters:
        from dso_warm import WarmInterpreters  # here, so that an agent that needs none starts without it

        return WarmInterpreters(self.printer.say)

    def _callback(self) -> CallbackService | None:
        service = CallbackService(lambda: self.round.progress)
        try:
            service.start()
        except OSError:
            return None  # what is not heard is no reason not to train
        return service

    def _round(self) -> Round:
        """The round that the member reports of."""
        current = self.member.current
        return Round(
            self.launch,
            current.number,
            self.printer,
            current.take_transport,
            self.checkpoints,
            callback=self.callback,
            wall_time=self.hub.wall_time if self.hub else None,
        )

    def begin(self, number: int, stop_seconds: float, phase: str) -> None:
        """The round before is over in this pod, which took so many seconds: report of this one."""
        self.phase = phase
        ended = self.hub.restarts if self.hub else None
        if self.hub and ended and ended.pending_cause:
            self.hub.wall_time.end_round(ended.pending_cause["reason"], ended.decided_at)
        self.member.begin(number, stop_seconds, self.round.endings, phase)
        self.round = self._round()

    @property
    def rounds(self) -> dict[str, Any] | None:
        """The attempt's rounds as the hub counts them; None before it has answered."""
        return self.hub.restarts.summary() if self.hub else self.member.rounds

    def wall_time(self, now: float) -> dict[str, Any] | None:
        """Where the attempt's wall time went, as the hub has counted it; None before the first step."""
        return self.hub.wall_time.summary(now) if self.hub else (self.member.record or {}).get("wallTime")

    @property
    def stepped(self) -> bool | None:
        """Whether a rank of any pod has made a step in this round; None where nobody could see one."""
        known = self.hub.round.stepped if self.hub else self.member.stepped
        return known or self.round.stepped if known is not None else self.round.stepped

    @property
    def deepspeed(self) -> str | None:
        return self.probe.version if self.probe else None

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.printer.say(f"warning: {text}")

    def complete(self, cause: Cause) -> Cause:
        """The cause with the version of this pod's DeepSpeed, if it is this pod's, and the round that it ended."""
        cause = {**cause, "round": self.round.number}
        return {**cause, "deepspeed": self.deepspeed} if cause["index"] == self.launch.index else cause

    def find_checkpoint(self, pause: Callable[[], bool]) -> None:
        """Rank 0's agent: before the hub can open a round, see what its ranks are to go on from.

        `pause` waits a little; it returns whether the pod was told to end. Raises RunFailedError where the ranks load
        universal checkpoints, and none can be made.
        """
        if self.checkpoints:
            self.checkpoints.settle()
            while not (self.checkpoints.idle or pause()):
                pass
            if self.launch.conversion_seconds and self.checkpoints.before:
                self._convert(self.checkpoints.before, pause)

    def _convert(self, newest: Checkpoint, pause: Callable[[], bool]) -> None:
        from dso_universal import Conversion  # here, so that an agent that needs none starts without it

        self.conversion = Conversion(self.launch, newest, self.printer.say)
        if not self.conversion.done:
            self.conversion.wait(pause)

    def reaped(self, pid: int, code: int) -> None:
        """A child of this process has ended that is no rank."""
        if self.probe and pid == self.probe.process.pid:
            for warning in self.probe.reaped(code):
                self.warn(warning)
        if self.warm:
            self.warm.reaped(pid, code)
        if self.conversion:
            self.conversion.reaped(pid, code)

    def see_last_save(self, pause: Callable[[], bool]) -> None:
        """See what the ranks, which have ended, had saved, and whether they did when they were told to end."""
        ended, checkpoints = time.time(), self.checkpoints
        if checkpoints:
            self.round.look_at_progress()  # which tells where the last save went
            checkpoints.look_again()
            while not checkpoints.idle and time.time() < ended + LONGEST_LOOK_SECONDS:
                pause()
            self.saved_at_end = checkpoints.saved_at_end(ended)
            if self.saved_at_end:
                self.printer.say(f"told to end, the ranks {self.saved_at_end}")

    def processes(self) -> list[int]:
        """What lives of the round: all below the agent, but for what is the pod's."""
        pods = [self.probe.process.pid] if self.probe and not self.probe.done else []
        if self.warm and self.warm.server:
            pods.append(self.warm.server.process.pid)
        return descendants(without=pods)

    def look_at_hang(self) -> None:
        """Rank 0's log tells when the ranks hang, and when they go on."""
        before, self.hang = self.hang, self.hub.hang() if self.hub else None
        if self.hang and not before:
            self.printer.say(f"the ranks hang: {self.hang['words']}")
        elif before and not self.hang and self.phase == "Running":
            self.printer.say("steps go on")

    def transport(self) -> dict[str, Any] | None:
        """How the gang's ranks are connected; only the hub knows it."""
        if not self.hub:
            return None
        over = self.round.stepped or self.phase == "Finished"
        transport = self.hub.round.transport(bool(over), self.round.watch.source.note)
        return transport if self.bandwidth is None else {**transport, "busBandwidth": self.bandwidth}

    def state(self) -> dict[str, Any]:
        """docs/agent-protocol.md lists it."""
        launch, hub, now = self.launch, self.hub, time.monotonic()
        return {
            "protocol": PROTOCOL,
            "job": launch.job,
            "uidDigest": launch.uid_digest,
            "attempt": launch.attempt,
            "round": self.round.number,
            "rounds": self.rounds,
            "index": launch.index,
            "phase": self.phase,
            "deepspeed": self.deepspeed,
            "warnings": self.warnings,
            "hosts": {"expected": launch.nodes, "registered": len(hub.peers) if hub else self.member.registered},
            "missing": [launch.hosts[index] for index in hub.missing()[:10]] if hub else [],
            "refused": hub.refused(now) if hub else {},
            "ranks": self.round.processes.states(),
            "rankSteps": [each.state(now) for each in self.round.records.ranks()],
            "progress": self.round.progress.state(now),
            "hang": hub.hang() if hub else None,
            "stragglers": hub.stragglers() if hub else [],
            "wallTime": self.wall_time(now),
            "transport": self.transport(),
            "measured": self.round.hook.measured(),
            "stuck": self.stuck,
            "world": hub.round.world_summary(over=self.phase == "Finished") if hub else None,
            "checkpoint": self.checkpoints.summary() if self.checkpoints else None,
        }

    def end(self, cause: Cause | None) -> None:
        """Nothing of the pod's processes is left, and the hub and the operator are told how they ended."""
        if self.warm:
            self.warm.end()
        self.round.end()
        self.write_message(cause)
        if cause and self.round.endings:
            self.member.tell_endings(self.round.endings)

    def tell_endings(self, cause: Cause | None) -> None:
        """Rank 0's agent, which has heard of all pods how their ranks ended, says so."""
        if self.hub and self.hub.last_endings:
            self.printer.say(self.hub.last_endings.table())
            self.write_message(cause)

    def _last_wall_time(self, succeeded: bool) -> dict[str, Any] | None:
        """Where the wall time went until now, when the ranks have ended."""
        if self.hub:
            self.round.look()  # they may have saved since
            if succeeded:
                self.hub.wall_time.succeed(time.monotonic())
        return self.wall_time(time.monotonic())

    def write_message(self, cause: Cause | None) -> None:
        """Write the termination message; a cause of None is success."""
        transport, measured = self.transport(), self.round.hook.measured()
        more: dict[str, Any] = {"stepped": self.stepped}
        rounds = self.rounds
        if rounds:
            # More of what it says of the latest failure, the operator may have read meanwhile.
            last = rounds["last"] and {**rounds["last"], "signature": rounds["last"]["signature"][:WORDS]}
            more["rounds"] = {**rounds, "last": last}
        if transport and (transport["links"] or self.bandwidth):
            more["transport"] = brief(transport)
        endings = self.hub.last_endings if self.hub else None
        if endings:
            more["ranks"] = endings.brief()
        known: dict[str, Any] = {
            "measured": measured,
            "wallTime": self._last_wall_time(cause is None),
            "progress": self.round.progress.state(time.monotonic()) if self.hub else None,
            "clocks": self.hub.clocks.apart if self.hub else self.member.clocks,
            "savedAtEnd": self.saved_at_end,
            "checkpoint": self.checkpoints.summary() if self.checkpoints else None,
        }
        more.update({name: said for name, said in known.items() if said})
        world = self.hub.round.world_summary(over=cause is None) if self.hub else None
        if self.killed_after is not None:
            more["killedAfterSeconds"] = int(self.killed_after)
        if world and any(world.values()):
            more["world"] = {**world, "engines": world["engines"][:2]}
        if cause:
            write_message(message({**cause, **more}, self.round.tail()))
        else:
            done = {
                "protocol": PROTOCOL,
                "reason": "Completed",
                "round": self.round.number,
                "deepspeed": self.deepspeed,
            }
            write_message(message({**done, **more}, b""))
