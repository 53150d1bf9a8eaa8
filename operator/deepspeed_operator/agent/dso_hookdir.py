"""The hook in the ranks' interpreters, dso_hook.py: how it gets there, and what it reports of worlds and engines."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
import tempfile
from typing import Any, Iterable, Iterator

from dso_launch import WORKSPACE, LaunchDocument
from dso_ranks import ProcessSpec

PATH = "PYTHONPATH"
REPORTS_BYTES = 1 << 20


class HookDirectory:
    """A directory of its own for each round. Python imports sitecustomize.py from it, and the hook writes there."""

    def __init__(self, launch: LaunchDocument) -> None:
        self.directory: str | None = None
        self.first_steps: dict[str, Any] | None = None
        self.size = 0  # of the reports that were read
        files = {
            "sitecustomize.py": pkgutil.get_data(__name__, "dso_hook.py") or b"",
            "dso_progresshook.py": pkgutil.get_data(__name__, "dso_progresshook.py") or b"",
        }
        if launch.measure:
            files["measure"] = b""
        if launch.conversion_seconds:
            files["universal"] = b""
        if launch.warm_interpreters:
            files["dso_imports.py"] = pkgutil.get_data(__name__, "dso_imports.py") or b""
        # A root file system may be read-only, and then the files' volume or the shared memory is not.
        for place in (None, WORKSPACE, "/dev/shm"):
            if self.directory is None:
                self.write(place, files)

    def write(self, place: str | None, files: dict[str, bytes]) -> None:
        try:
            self.directory = tempfile.mkdtemp(prefix="deepspeed-operator-", dir=place)
            for name, data in files.items():
                with open(os.path.join(self.directory, name), "wb") as file:
                    file.write(data)
        except OSError:
            self.end()  # nowhere to write: what is not seen is no reason not to train

    def install(self, specs: Iterable[ProcessSpec]) -> None:
        """Behind whatever the user's PYTHONPATH names."""
        for spec in specs if self.directory else ():
            users = spec.environment.get(PATH)
            spec.environment[PATH] = f"{users}:{self.directory}" if users else str(self.directory)

    def measured(self) -> dict[str, Any] | None:
        """The first steps as the hook measured them; None before they are over, and where the job asks for none."""
        if self.first_steps is None and self.directory:
            try:
                with open(os.path.join(self.directory, "measured.json"), encoding="utf-8") as file:
                    self.first_steps = json.load(file)
            except (OSError, ValueError):
                return None  # not yet
        return self.first_steps

    def imports(self) -> dict[str, Any] | None:
        """What a rank had imported when it took its first step; None before."""
        try:
            with open(os.path.join(self.directory or "", "imports.json"), encoding="utf-8") as file:
                imports: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return None
        return imports

    def reports(self) -> list[dict[str, Any]] | None:
        """All that the ranks have reported; None if there is nothing that was not read before."""
        path = os.path.join(self.directory or "", "reports.jsonl")
        try:
            if not self.directory or os.stat(path).st_size == self.size:
                return None
            with open(path, "rb") as file:
                data = file.read(REPORTS_BYTES)
        except OSError:
            return None  # none yet
        self.size = len(data)
        return list(parsed(data))

    def end(self) -> None:
        self.measured()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None


def parsed(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        try:
            report = json.loads(line)
        except ValueError:
            continue  # a rank was killed while it wrote
        if isinstance(report, dict):
            yield report
