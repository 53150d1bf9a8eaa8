"""What rank 0 measures of its first steps, for the operator's plan: the hook in its process, and the result."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
import tempfile
from typing import Any, Iterable

from dso_plan import Plan
from dso_ranks import Spec

PATH = "PYTHONPATH"


class Measure:
    def __init__(self, plan: Plan) -> None:
        self.directory: str | None = None
        self.result: dict[str, Any] | None = None
        source = pkgutil.get_data(__name__, "dso_hook.py") if plan.measure else None
        if source is None:
            return
        try:
            self.directory = tempfile.mkdtemp(prefix="deepspeed-operator-measure-")
            with open(os.path.join(self.directory, "sitecustomize.py"), "wb") as file:
                file.write(source)
        except OSError:
            self.end()  # nowhere to write: what is not measured is no reason not to train

    def hook(self, specs: Iterable[Spec]) -> None:
        """Behind whatever the user's PYTHONPATH names."""
        for spec in specs if self.directory else ():
            users = spec.environment.get(PATH)
            spec.environment[PATH] = f"{users}:{self.directory}" if users else str(self.directory)

    def found(self) -> dict[str, Any] | None:
        if self.result is None and self.directory:
            try:
                with open(os.path.join(self.directory, "measured.json"), encoding="utf-8") as file:
                    self.result = json.load(file)
            except (OSError, ValueError):
                return None  # not yet
        return self.result

    def end(self) -> None:
        self.found()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None
