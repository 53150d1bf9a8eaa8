"""The run's checkpoints as rank 0's agent knows them: the newest complete one, and what `latest` is to name.

All files are looked at in a thread of its own: a volume may not answer, and then nobody else must wait for it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import threading
import time
from typing import Any, Callable

from dso_checkpoint_files import (
    LATEST,
    Checkpoint,
    checkpoint_at,
    checkpoints,
    named_by_latest,
    newest_complete,
)
from dso_launch import LaunchDocument, expand

LOOK_SECONDS = 5.0
LONGEST_LOOK_SECONDS = 3.0
INSIST_SECONDS, RETRY_SECONDS = 10.0, 0.5  # on a look that a round begins with
UNFINISHED_SECONDS = 600.0  # after which an unfinished checkpoint that nobody changes is not looked at any more
TORN = "latest.torn"
UNIVERSAL = "_universal"  # of the name of a checkpoint that was made universal
_NOT_THERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL))
# DeepSpeed's own line when it begins to save.
_SAVING = re.compile(rb"Saving model checkpoint: (/?[^\s/][^\s]*?/[^\s/]+)/[^\s/]+_model_states\.pt")
_OF_A_FRAMEWORK = re.compile(r"checkpoint[-_]\d+|.*\.ckpt")
_TAGS_OF_FRAMEWORKS = ("pytorch_model", "checkpoint")  # Accelerate's and Lightning's
_BEGUN_KEPT = 8


class Checkpoints(threading.Thread):
    """The main thread asks for a look by `settle` or `look_again`, and so does the one that reads the ranks' output
    when they save; the main and the HTTP thread read single attributes.

    `root` is the directory of the checkpoints: the job's, else the one that its arguments name or DeepSpeed's output
    shows; None while it is not known. What is on an object store is not looked at.
    """

    def __init__(self, launch: LaunchDocument, warn: Callable[[str], None]) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self.launch, self.warn = launch, warn
        # Of which a checkpoint that does not tell has parts; 0: others may have saved it, which an elastic run had.
        self.ranks = 0 if launch.conversion_seconds else launch.nodes * launch.slots
        given = launch.checkpoint_path
        self.root: str | None = expand(given, os.environ) if given else None
        self.divided = _has_parts_on_each_node(launch.config)
        self.newest: Checkpoint | None = None  # complete
        self.before: Checkpoint | None = None  # the newest when the latest round began
        self.repaired: dict[str, Any] | None = None  # what was done to `latest` last
        self.begun: dict[str, float] = {}  # when saving began, by directory
        # The directories of the save that has shown where the round saves, and when it began.
        self.first_saves: dict[str, float] = {}
        self.lock = threading.RLock()  # of whoever asks for a look; for files nobody waits with it
        # Looks by their numbers: the latest that was asked for and that is done, and of those asked for the latest that
        # mends `latest`, and that finds what a round begins with.
        self.asked = self.answered = self.mends = self.begins = 0
        self.wakes = threading.Event()
        self.seen: list[int] = []  # of the directory, when it was looked into
        self.changed = float("-inf")
        self.look_until: float | None = None  # at the end of a round
        # The look for the newest one when the ranks were told to end, which one that was, and when they were told.
        self.ends, self.told_at = 0, 0.0
        self.at_the_end: Checkpoint | None = None

    @property
    def visible(self) -> bool:
        """Whether there is a directory to look into that has the parts of all ranks."""
        return self.root is not None and "://" not in self.root and not self.divided

    @property
    def idle(self) -> bool:
        """Whether every look that was asked for is done."""
        return self.answered == self.asked

    @property
    def resume_from(self) -> str:
        """What $(RESUME_FROM) stands for in the round that is about to begin."""
        before = self.before
        if before and before.own and self.launch.conversion_seconds:
            return before.path + UNIVERSAL  # what the ranks load was made of it
        return before.path if before else ""

    @property
    def completed(self) -> Checkpoint | None:
        """The newest that was completed in the latest round; None if none was."""
        newest, before = self.newest, self.before
        return newest if newest is not None and (before is None or newest.time > before.time) else None

    @property
    def progressed(self) -> bool:
        """Whether a checkpoint was completed in the latest round."""
        return self.completed is not None

    def looked(self, now: float) -> bool:
        """Whether it is known what the round that is over has completed; for a look that takes long nobody waits."""
        if self.visible and self.look_until is None:
            self.look_until = now + LONGEST_LOOK_SECONDS
            self.look_again()
        return self.idle or not self.visible or now > (self.look_until or now)

    def tell_to_end(self) -> None:
        """The ranks get SIGTERM now, and may save."""
        with self.lock:
            self.ends, self.told_at = self.asked + 1, time.time()
            self.look_again()

    def saved_at_end(self, ended: float) -> str:
        """Whether they did until then, in words; empty where nobody can see it, or told them to end."""
        if not self.ends or not self.visible:
            return ""
        newest = self.newest
        # The clock of whoever holds the files may be another one, so that the first look tells what came later, too.
        if newest is None or (newest == self.at_the_end and newest.time < self.told_at):
            return "did not save"
        step = f"step {newest.step}" if newest.step is not None else newest.tag[:64]
        return f"saved at {step}, {max(0, round(ended - newest.time))} s before the end"

    def settle(self) -> None:
        """Before a round, when no rank writes any more: mend `latest`, and see what the ranks can go on from."""
        with self.lock:
            self.first_saves = {}
            self.ends = 0  # nobody has told those of this round to end
            if self.visible:
                self.root = os.path.abspath(str(self.root))
                self.mends = self.begins = self.asked + 1
                self.look_until = None
                self.look_again()

    def look_again(self) -> None:
        with self.lock:
            if self.visible:
                self.asked += 1
                self.wakes.set()

    def take(self, text: bytes) -> None:
        """A tap on the ranks' output."""
        if b"Saving model checkpoint: " not in text:
            return
        for match in _SAVING.finditer(text):
            if b"://" not in match[1]:
                directory = os.path.abspath(os.fsdecode(match[1]))
                self.take_save(directory, self.begun.get(directory, time.time()))

    def take_save(self, directory: str, begun: float) -> None:
        """A save goes to this directory, which rank 0's hook tells, too: DeepSpeed may be silent."""
        above = os.path.dirname(directory)
        of_framework = os.path.basename(directory) in _TAGS_OF_FRAMEWORKS
        of_framework = of_framework or _OF_A_FRAMEWORK.fullmatch(os.path.basename(above)) is not None
        root = os.path.dirname(above) if of_framework else above
        with self.lock:
            self.begun.update(dict.fromkeys((directory, above), begun))
            for each in list(self.begun)[: -2 * _BEGUN_KEPT]:
                del self.begun[each]
            if root != self.root and not self.launch.checkpoint_declared:
                self.root, self.first_saves = root, dict.fromkeys((directory, above), begun)
                self.begins = self.asked + 1  # what is complete there now was so before
                self.look_again()

    def run(self) -> None:
        while True:
            self.wakes.wait(LOOK_SECONDS)
            self.wakes.clear()
            asked, answered = self.asked, self.answered
            if self.visible:
                root, insists = str(self.root), answered < self.begins <= asked
                if answered < self.mends <= asked:
                    self._try(lambda root=root: self._mend(root), insists)
                self._try(lambda root=root, again=answered < asked: self._look(root, again=again), insists)
            if answered < self.begins <= asked:
                self.before = self._newest_before()
            if answered < self.ends <= asked:
                self.at_the_end = self.newest
            self.answered = asked

    def _try(self, act: Callable[[], None], insists: bool) -> None:
        """`insists`: a round begins with what is seen, so that a volume which fails now is no empty one."""
        until = time.monotonic() + INSIST_SECONDS
        while True:
            try:
                return act()
            except ValueError:  # it is no path
                return None
            except OSError as error:
                if error.errno in _NOT_THERE or not insists:
                    return None
                if time.monotonic() > until:
                    return self.warn(f"checkpoints in {self.root} cannot be seen: {error}")
            time.sleep(RETRY_SECONDS)

    def _newest_before(self) -> Checkpoint | None:
        """The newest one without that of the save which has shown where the round saves, if it was that fast."""
        newest, first = self.newest, self.first_saves
        # Some file systems count whole seconds.
        if newest is None or newest.path not in first or newest.time < int(first[newest.path]):
            return newest
        with contextlib.suppress(OSError, ValueError):
            others = checkpoints(str(self.root), self.ranks)
            return next((each for each in others if not (each.missing or each.path in first)), None)
        return None

    def _look(self, root: str, again: bool) -> None:
        now, seen = time.monotonic(), _seen(root)
        if seen != self.seen:
            self.seen, self.changed = seen, now
        elif not again:
            newest = self.newest
            written = newest is not None and newest.time * 1e9 >= seen[0]  # since a directory came
            if written or now - self.changed > UNFINISHED_SECONDS:
                return
        self.newest = newest_complete(root, self.ranks)

    def _mend(self, root: str) -> None:
        """Let `latest` name a complete tag: DeepSpeed cannot load another one, however often it is started."""
        named = named_by_latest(root)
        if named is None or not self.launch.repair_latest:
            return
        directory = os.path.join(root, named)
        torn = checkpoint_at(directory, self.ranks) if named and os.path.isdir(directory) else None
        if named and not torn and os.path.isdir(directory) and os.listdir(directory):
            return  # a universal checkpoint, or one of a kind that is not known here
        missing = (torn.missing if torn else "there is nothing of it") if named else "the file is empty"
        if not missing:
            return
        others = [each for each in checkpoints(root, self.ranks) if each.own and each.tag != named]
        whole = next((each for each in others if not each.missing), None)
        path = os.path.join(root, LATEST)
        if whole:
            rewrite(path, whole.tag)
            done = f"it now names {whole.tag}, the newest complete one"
        elif torn and not others and torn.time >= self.launch.run_began:
            os.replace(path, os.path.join(root, TORN))
            done = f"no other one is there: it is {TORN} now, and the run begins anew"
        else:
            self.warn(f"{path} names {named or 'nothing'}, which is not complete: {missing}; no other one is either")
            return
        self.repaired = {"torn": named[:200], "missing": missing[:200], "tag": whole.tag[:200] if whole else None}
        self.warn(f"{path} named {named or 'nothing'}, which is not complete: {missing}; {done}")

    def summary(self) -> dict[str, Any] | None:
        """docs/agent-protocol.md lists it as `checkpoint`."""
        newest = self.newest
        if self.root is None:
            return None
        known: dict[str, Any] = {"tag": None, "step": None, "time": None, "sizeBytes": None, "seconds": None}
        if newest:
            begun = self.begun.get(os.path.abspath(newest.path))
            known = {
                "tag": newest.tag,
                "step": newest.step,
                "time": int(newest.time),
                "sizeBytes": newest.size,
                "seconds": None if begun is None else max(0, round(newest.time - begun)),
            }
        began = self.before.step if self.before else None
        return {
            "path": self.root,
            **known,
            "beganWith": began,
            "progressed": self.progressed,
            "repaired": self.repaired,
        }


def _has_parts_on_each_node(config: str | None) -> bool:
    """Whether DeepSpeed is configured to save on each node what is its own."""
    try:
        with open(str(config), encoding="utf-8") as file:
            return bool(json.load(file)["checkpoint"]["use_node_local_storage"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _seen(root: str) -> list[int]:
    """What changes when a checkpoint begins, or `latest` names another one."""
    found = [os.stat(root).st_mtime_ns]
    with contextlib.suppress(OSError):
        found.append(os.stat(os.path.join(root, LATEST)).st_mtime_ns)
    return found


def rewrite(path: str, text: str) -> None:
    """At once for whoever reads it, also where the node ends in between."""
    new = f"{path}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileNotFoundError):  # it is the first
        shutil.copymode(path, new)
    os.replace(new, path)
