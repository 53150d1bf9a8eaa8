"""A universal checkpoint of the newest complete one: rank 0's agent makes it before ranks that load such begin.

DeepSpeed divides the optimizer's states among the ranks, and loads them with as many only. Its own converter writes
them whole, beside the checkpoint, and `latest_universal`, which it reads instead of `latest` where the configuration
says load_universal.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any, Callable

from dso_checkpoint import UNIVERSAL, rewrite
from dso_checkpoint_files import Checkpoint, named_by_latest
from dso_launch import LaunchDocument, RunFailedError

LATEST_UNIVERSAL = "latest_universal"
UNFINISHED = ".part"
MADE_OF = "made_of.json"  # in what was made: when the last file of its source was written, and the size of all
_MODULE = "deepspeed.checkpoint.ds_to_universal"
_SHOWN = 200  # characters of the converter's last line


class Conversion:
    """The converter at work on one checkpoint; `wait` returns once what it writes is whole."""

    def __init__(self, launch: LaunchDocument, newest: Checkpoint, say: Callable[[str], None]) -> None:
        self.launch, self.say = launch, say
        inner = None if newest.own else named_by_latest(newest.path)
        self.source = os.path.join(newest.path, inner) if inner else newest.path
        self.target = self.source + UNIVERSAL
        self.made_of = [newest.time, newest.size]
        self.code: int | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def done(self) -> bool:
        """Whether it was made of this source as it is now, which may have its name again, and DeepSpeed loads it."""
        root, name = os.path.split(self.target)
        try:
            with open(os.path.join(root, LATEST_UNIVERSAL), encoding="utf-8", errors="replace") as file:
                named = file.read(4096).strip()
            with open(os.path.join(self.target, MADE_OF), encoding="utf-8") as file:
                return named == name and json.load(file) == self.made_of
        except (OSError, ValueError):
            return False

    def reaped(self, pid: int, code: int) -> None:
        if self.process and pid == self.process.pid:
            self.code = self.process.returncode = code

    def wait(self, pause: Callable[[], bool]) -> None:
        """Convert; `pause` waits a little, and returns whether the pod was told to end. Raises RunFailedError."""
        began, unfinished = time.monotonic(), self.target + UNFINISHED
        limit = self.launch.conversion_seconds
        self.say(f"{self.source} is made universal, within {limit:.0f} s: the ranks may be others than have saved it")
        with tempfile.TemporaryFile() as output:
            shutil.rmtree(unfinished, ignore_errors=True)  # of an agent that ended meanwhile
            argv = [
                self.launch.python,
                "-u",
                "-m",
                _MODULE,
                "--input_folder",
                self.source,
                "--output_folder",
                unfinished,
            ]
            try:
                self.process = subprocess.Popen(
                    [*argv, "--inject_missing_state"],  # where the program has not saved it, as most do not
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise self._failed(f"{error.strerror}: {error.filename}") from error
            ended = False
            while self.code is None and not ended and time.monotonic() < began + limit:
                ended = pause()
            if self.code is None:
                self._kill(pause)
                if ended:
                    return  # whoever told it to says so
                raise self._failed(f"it was not done within {limit:.0f} s (spec.checkpoint.conversionDeadlineSeconds)")
            if self.code:
                output.seek(0)
                lines = output.read().decode("utf-8", "replace").strip().splitlines() or ["without a word"]
                for line in lines[-20:]:
                    self.say(line)
                raise self._failed(f"{_MODULE} ended with {self.code}: {lines[-1][:_SHOWN]}")
        try:
            self._put_in_place(unfinished)
        except OSError as error:
            raise self._failed(f"{error.strerror}: {error.filename}") from error
        self.say(f"{self.target} is made, in {time.monotonic() - began:.0f} s")

    def _put_in_place(self, unfinished: str) -> None:
        """What is there under its own name is whole; DeepSpeed finds it by the file that is written last."""
        rewrite(os.path.join(unfinished, MADE_OF), json.dumps(self.made_of))
        shutil.rmtree(self.target, ignore_errors=True)
        os.replace(unfinished, self.target)
        root, name = os.path.split(self.target)
        rewrite(os.path.join(root, LATEST_UNIVERSAL), name)

    def _kill(self, pause: Callable[[], bool]) -> None:
        assert self.process
        until = time.monotonic() + 5
        while self.code is None and time.monotonic() < until:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            pause()

    def _failed(self, why: str) -> RunFailedError:
        shutil.rmtree(self.target + UNFINISHED, ignore_errors=True)  # others may save on the volume that it has filled
        cause: dict[str, Any] = self.launch.cause("ConversionFailed", f"{self.source} was not made universal: {why}")
        return RunFailedError(cause)
