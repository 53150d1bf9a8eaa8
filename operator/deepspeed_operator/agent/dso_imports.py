"""Tells the agent what a rank had imported when it took its first step, for the ranks of a later round.

The hook imports it where the agent has put it beside, and like the hook it brings no other module with it.
"""

from __future__ import annotations

import importlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RESULT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "imports.json")
MOST_MODULES = 20000


class Imports:
    """Finds no module, but sees each import begin.

    A module may read variables of the environment as it is imported, which the program may have set before.
    """

    def __init__(self) -> None:
        self.before = dict(os.environ)
        # For each top-level module the variables that were not as at the start when its import began: a digest each,
        # since a value may be a secret; None for one that was taken away.
        self.changed: dict[str, dict[str, int | None]] = {}
        # As the imports began: sys.modules has them as they were done, a part of a circle before what leads into it.
        self.begun: dict[str, bool] = {}

    def find_spec(self, name: str, *_: Any) -> None:
        self.begun[name] = True
        if "." not in name and name != "zlib":
            try:
                self.look(name)
            except Exception:
                return  # no import of the program's fails for it

    def look(self, name: str) -> None:
        now = dict(os.environ)
        if now != self.before:
            changed = [each for each in {*now, *self.before} if now.get(each) != self.before.get(each)]
            self.changed[name] = {each: digest(now.get(each)) for each in changed}

    def write(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            if not os.path.exists(RESULT):
                json: Any = importlib.import_module("json")
                modules = [name for name in self.begun if of_a_file(name, sys.modules.get(name))]
                own = f"{RESULT}.{os.getpid()}"
                with open(own, "w", encoding="utf-8") as file:
                    json.dump({"modules": modules[:MOST_MODULES], "changed": self.changed}, file)
                os.replace(own, RESULT)


def digest(value: str | None) -> int | None:
    zlib: Any = importlib.import_module("zlib")
    return None if value is None else zlib.crc32(value.encode("utf-8", "surrogateescape"))


def of_a_file(name: str, module: Any) -> bool:
    """Whether it can be imported by this name; what a program makes itself cannot."""
    spec = getattr(module, "__spec__", None)
    return getattr(spec, "name", None) == name and getattr(spec, "has_location", False) is True
