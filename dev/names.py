"""Names that two things of the package share: two classes, or two modules of rooms of which one imports the other.

The agent's classes are looked at by themselves: it is a program of its own, which speaks of the same things.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "operator/deepspeed_operator"


def shared_names(package: Path) -> Iterator[str]:
    """Yield a sentence for each name that is there twice: of a class, or of modules in the same or neighbouring rooms.

    A room is a directory of the package; modules that are no room's stand in one without a name.
    """
    trees = {path.relative_to(package): ast.parse(path.read_text("utf-8")) for path in sorted(package.rglob("*.py"))}
    classes: dict[tuple[bool, str], list[Path]] = defaultdict(list)
    modules: dict[str, list[Path]] = defaultdict(list)
    neighbours: set[tuple[str, str]] = set()
    for path, tree in trees.items():
        if path.stem not in {"__init__", "__main__"}:
            modules[path.stem].append(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{package.name}."):
                neighbours.add((_room(path), node.module.split(".")[1]))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[_room(path) == "agent", node.name].append(path)
    for (_, name), paths in classes.items():
        if len(paths) > 1:
            yield f"class {name} is defined in {' and '.join(map(str, paths))}"
    for paths in modules.values():
        for one, other in combinations(paths, 2):
            rooms = _room(one), _room(other)
            if rooms[0] == rooms[1] or rooms in neighbours or rooms[::-1] in neighbours:
                yield f"{one} and {other} have one name"


def _room(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else ""


if __name__ == "__main__":
    shared = list(shared_names(PACKAGE))
    print(*shared, sep="\n", end="\n" if shared else "")
    sys.exit(bool(shared))
