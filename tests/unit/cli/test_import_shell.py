"""What `dsjob import` makes of the shell's ways to compose a command: appending, arguments, conditions, arrays."""

from pathlib import Path

import pytest


from tests.unit.cli.test_import import job_of, line
from tests.unit.cli.test_import_scripts import START, batch, entrypoint


def arguments(script: str) -> list[str]:
    """Return what the program of this script is given."""
    return line(script)["training"].get("args", [])


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ('ARGS=(--a 1)\nARGS+=(--b 2)\nARGS+=("--c 3")', '"${ARGS[@]}"'),
        ('ARGS="--a 1"\nARGS+=" --b 2"\nARGS+=" --c\\ 3"', "$ARGS"),
        ("ARGS+=(--a 1)\ndeclare ARGS+=(--b 2)", '"${ARGS[@]}"'),
    ],
)
def test_what_a_script_appends_is_added(before: str, words: str) -> None:
    assert arguments(f"{before}\n{START} {words}")[:4] == ["--a", "1", "--b", "2"]


def test_what_a_batch_script_appends_to_a_variable_that_it_exports_is_added(tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH -N 1\nexport FLAGS=a\nexport FLAGS+=,b\nS=--x\nS+=\" 1\"\n"
    spec = job_of(batch(tmp_path, f"{script}{START} $S"))
    assert spec["training"]["args"] == ["--x", "1"]
    assert {"name": "FLAGS", "value": "a,b"} in spec["template"]["spec"]["containers"][0]["env"]
