"""Writes dsconfig/torch_schedulers.json: what the schedulers of PyTorch's releases take, from their sources.

python -m tests.oracle.torch_schedulers DIRECTORY, which has for each release a directory t-2.8.0 with the
torch/optim/lr_scheduler.py of its wheel.
"""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[2] / "operator/deepspeed_operator/dsconfig/torch_schedulers.json"
_GIVEN = {"self", "optimizer"}  # by DeepSpeed


def signatures(source: str) -> dict[str, dict[str, bool]]:
    """Return for each class its parameters, and whether each is required."""
    found: dict[str, dict[str, bool]] = {}
    for each in ast.parse(source).body:
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_") and each.name != "LRScheduler":
            made = (item for item in each.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
            for constructor in made:
                names = [argument.arg for argument in constructor.args.args]
                required = len(names) - len(constructor.args.defaults)
                found[each.name] = {name: place < required for place, name in enumerate(names) if name not in _GIVEN}
    return found


def table(releases: dict[str, dict[str, dict[str, bool]]]) -> dict[str, Any]:
    """Return the parameters of each class; beside one that not all releases have, those that do."""
    classes: dict[str, Any] = {}
    for name in sorted({name for release in releases.values() for name in release}):
        having = {version: release[name] for version, release in releases.items() if name in release}
        names = dict.fromkeys(parameter for parameters in having.values() for parameter in parameters)
        parameters = {
            parameter: [version for version, known in having.items() if parameter in known] for parameter in names
        }
        classes[name] = {
            "required": [name for name in names if all(known.get(name, False) for known in having.values())],
            "parameters": {
                parameter: [] if len(versions) == len(having) else versions
                for parameter, versions in parameters.items()
            },
        }
    return {"versions": list(releases), "classes": classes}


def written(found: dict[str, Any]) -> str:
    lines = ",\n".join(f'  "{name}": {json.dumps(each)}' for name, each in found["classes"].items())
    return f'{{\n "versions": {json.dumps(found["versions"])},\n "classes": {{\n{lines}\n }}\n}}\n'


def main(directory: Path) -> None:
    def order(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.name)]

    releases = {
        ".".join(map(str, order(path)[:2])): signatures((path / "lr_scheduler.py").read_text(encoding="utf-8"))
        for path in sorted(directory.glob("t-*"), key=order)
    }
    TABLE.write_text(written(table(releases)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
