"""This pod's part of one round, from the start of its ranks to their end."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Callable

from dso_cause import ending
from dso_endings import endings_of
from dso_evidence import gather
from dso_hookdir import HookDirectory
from dso_launch import Cause, LaunchDocument
from dso_output import Output, Printer, Tap
from dso_pace import Pace
from dso_processes import Child, Processes
from dso_progress import CHECKPOINT, Progress
from dso_progressinput import CallbackService, ProgressInput
from dso_progressranks import RankRecords
from dso_ranks import ProcessSpec, specs
from dso_shm import SharedMemory
from dso_starts import starts_of
from dso_steps import Steps
from dso_symptom import settle_seconds, symptom
from dso_transport import ReportSource, TransportWatch
from dso_world import of_pod

if TYPE_CHECKING:
    from dso_checkpoint import Checkpoints
    from dso_walltime import WallTime
    from dso_warm import WarmInterpreters


class Round:
    """The ranks with all that is theirs: output and its taps, port, error files, reports, and how they end.

    Nothing of a round outlives it: ranks that start again in the same pod are another round, with another number, port
    and files. What lives as long as the pod is the agent's.
    """

    def __init__(
        self,
        launch: LaunchDocument,
        number: int,
        printer: Printer,
        transport_changed: Callable[[dict[str, Any]], None],
        checkpoints: Checkpoints | None,
        *,
        callback: CallbackService | None = None,
        wall_time: WallTime | None = None,
    ) -> None:
        self.launch, self.printer, self.wall_time = launch, printer, wall_time
        self.checkpoints = checkpoints  # None but on rank 0
        self.number = number
        self.shared_memory = SharedMemory()
        self.steps = Steps()
        self.watch = TransportWatch(ReportSource(os.environ), transport_changed)
        self.hook = HookDirectory(launch)
        self.specs = specs(launch, self.number, self.watch.source.environment)
        self.hook.install(self.specs)
        self.records = RankRecords(self.hook.directory)
        self.progress = Progress(self.records.ranks)
        self.progress_input = ProgressInput(launch, self.hook.directory)
        self.progress_input.install(self.specs, callback)
        self.pace = Pace()
        self.processes = self._processes()
        self.started = 0.0  # when its ranks were
        self.forked = False  # from a warm interpreter
        self.endings: dict[str, Any] | None = None  # dso_endings.endings_of, once it has ended
        self.reported: bool | None = None  # by the hook: whether an engine has made a step; None without one
        # How it ends here. The log of the first process that failed, or left, is what the termination message shows.
        self.first: Child | None = None
        self.left: Cause | None = None  # the first rank that ended with 0
        self.failure: Cause | None = None  # of the first rank that failed by itself
        # A failure that may only follow from another rank's, and until when the report of that one is waited for.
        self.suspect: Cause | None = None
        self.settles = 0.0

    def _processes(self) -> Processes:
        taps: list[Tap] = [self.steps.take, self.watch.take]
        if self.launch.index == 0:  # rank 0, of which progress is told, is in the first pod
            taps.append(self.progress.take_output)
        if self.checkpoints:
            taps.append(self.checkpoints.take)
        return Processes(self.launch, Output(self.printer, taps))

    def resume_from(self, path: str) -> None:
        """Let the ranks' arguments name the checkpoint that they go on from; empty: there is none."""
        for spec in self.specs:
            spec.resume_from(path)

    def start(self, processes: list[ProcessSpec], warm: WarmInterpreters | None = None) -> None:
        """Start the ranks, or a preflight's processes before them. Raises OSError."""
        if self.processes.children:
            self.processes.end()
            self.processes = self._processes()
        self.started = time.monotonic()
        self.forked = warm is not None and self.processes.fork(processes, warm)
        if not self.forked:
            self.processes.start(processes)

    def warm_up(self, warm: WarmInterpreters) -> None:
        """Once the ranks make steps: have what they have imported ready for the next round."""
        warm.look()
        if warm.lacks_a_server:
            imports = self.hook.imports()
            if imports:
                warm.prepare(self.specs[0], imports)

    def rank_ended(self, child: Child) -> Cause | None:
        """Take the end of one of the ranks; return it if it is a failure that the hub has to know of."""
        if self.failure:
            return None
        if not child.code:
            if self.left is None:
                # Nothing is wrong with it, unless another rank fails for want of this one.
                self.first = self.first or child
                self.left = self.launch.cause("RankLeft", "", rank=child.spec.rank, exitCode=0)
            return None
        cause = self.processes.failure(child)
        self.printer.say(ending(cause))
        secondary = symptom(cause)
        if self.suspect and secondary >= symptom(self.suspect):
            return None
        self.first = child
        if secondary:
            self.suspect, self.settles = cause, self.settles or time.monotonic() + settle_seconds(cause)
        else:
            self.failure = cause
        return cause

    @property
    def stepped(self) -> bool | None:
        """Whether a rank of this pod has made an optimizer step; None where that could not be seen here."""
        return True if self.steps.seen else self.reported

    def look(self) -> dict[str, Any] | None:
        """At what the hook has reported since: this pod's part of the world, or None if that is nothing."""
        if self.launch.index == 0:
            self.look_at_progress()
        reports = self.hook.reports()
        if reports is None:
            return None
        pod: dict[str, Any] = {**of_pod(reports), "starts": starts_of(reports)}
        if any(report.get("stepped") is True for report in reports):
            self.reported = True
        elif any(engine.get("optimizer") for engine in pod["engines"]):
            self.reported = False
        return pod

    def look_at_pace(self) -> dict[str, Any] | None:
        """How long the ranks of this pod have been where they are; None where none runs."""
        living = [child.spec.rank for child in self.processes.children if child.code is None]
        if not living:
            return None
        alive = None if self.launch.launcher != "Ranks" else [rank for rank in living if rank is not None]
        now = time.monotonic()
        return self.pace.take(self.records.ranks(), alive, self.progress.told_steps(), self.started, now)

    def inspect(self) -> list[dict[str, Any]]:
        """Where each rank of this pod stands, which goes to the log, too."""
        return gather(self.hook.directory, self.records.ranks(), self.processes.children, self.printer.say)

    def look_at_progress(self) -> None:
        """At all that tells of it, but for whole lines of output, which come by themselves."""
        self.progress_input.look(self.progress)
        self.progress.look(b"".join(child.stream.partial for child in self.processes.children[:1]))
        if self.checkpoints:
            if self.progress.save:
                self.checkpoints.take_save(*self.progress.save)
            completed = self.checkpoints.completed
            if completed and completed.step is not None:
                self.progress.take(CHECKPOINT, {"step": completed.step}, time.monotonic())
        if self.wall_time:
            self.wall_time.look(self.number, self.progress.last_step)

    @property
    def finished(self) -> bool:
        """Whether all ranks have ended with 0."""
        return not (self.processes.running() or self.failure or self.suspect)

    def outcome(self, now: float) -> Cause | None:
        """Why the round ends by this pod's ranks; None while it goes on, or where all ended with 0."""
        settled = now > self.settles or (self.launch.nodes == 1 and not self.processes.running())
        return self.failure or (self.suspect if settled else None)

    def tail(self) -> bytes:
        child = self.first or (self.processes.children or [None])[0]
        return child.stream.tail if child else b""

    def end(self) -> None:
        """Nothing that a rank left behind outlives its round, but its files until `clear`."""
        self.processes.end()
        self.endings = endings_of(self.processes, self.number, time.monotonic())

    def clear(self) -> None:
        self.watch.end()
        self.records.end()
        self.hook.end()
        for spec in self.specs:
            with contextlib.suppress(KeyError, OSError):  # most programs write none
                os.unlink(spec.ours["TORCHELASTIC_ERROR_FILE"])
