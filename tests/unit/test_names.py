"""A name means one thing in the package: what dev/names.py finds. That there is nothing of it is for `make lint`."""

from pathlib import Path

from dev.names import shared_names


def test_classes_and_modules_of_one_name_are_found(tmp_path: Path) -> None:
    package = tmp_path / "package"
    files = {
        "plan/memory.py": "class Item: ...\n",
        "plan/fit.py": "from package.lint.shapes import Shape\n",
        "lint/memory.py": "class Item: ...\n",
        "lint/shapes.py": "class Shape: ...\n",
        "render/memory.py": "class _Item: ...\nclass _Shape: ...\n",
        "agent/item.py": "class Item: ...\n",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    assert list(shared_names(package)) == [
        "class Item is defined in lint/memory.py and plan/memory.py",
        "lint/memory.py and plan/memory.py have one name",
    ]
