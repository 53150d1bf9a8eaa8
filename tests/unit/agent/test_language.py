"""The agent runs in any image with Python ≥ 3.8, from its standard library alone, and is small."""

import ast
import subprocess
import sys

from tests.unit.agent.harness import AGENT

MODULES = sorted(path for path in AGENT.glob("*.py") if path.name != "__init__.py")


def test_the_grammar_and_the_library_of_python_3_8() -> None:
    for path in MODULES:
        ast.parse(path.read_text(), feature_version=(3, 8))
    vermin = [sys.executable, "-c", "from vermin.main import main; main()", "--target=3.8-", "--no-tips"]
    found = subprocess.run([*vermin, *map(str, MODULES)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_only_the_standard_library_is_imported() -> None:
    own = {path.stem for path in MODULES}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names | own, f"{path.name} imports {name}"


def test_its_modules_names_cannot_hide_a_users() -> None:
    assert all(path.stem.startswith("dso_") or path.stem == "__main__" for path in MODULES)


def test_an_older_python_is_told_so_and_not_by_a_traceback() -> None:
    pretend = f"import runpy, sys; sys.version_info = (3, 7, 9); runpy.run_path({str(AGENT)!r})"
    done = subprocess.run([sys.executable, "-c", pretend], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("the image's python3 is Python ")
