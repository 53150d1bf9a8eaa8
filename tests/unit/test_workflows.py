"""GitHub's workflows do what a person does here: each `make` of theirs names a target, with variables that it reads."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))
MAKEFILES = "".join(path.read_text() for path in (ROOT / "Makefile", *ROOT.glob("dev/*/*.mk")))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_makes_can_be_made(workflow: Path) -> None:
    scripts = [step["run"].replace("\\\n", " ") for step in steps(workflow) if "run" in step]
    made = [match for script in scripts for match in re.findall(r"^make (.*)$", script, re.MULTILINE)]
    assert made or any(".ci/run" in script for script in scripts)
    for command in made:
        for word in command.split(" "):
            variable = re.match(r"([A-Z_]+)=", word)
            if variable:
                assert f"$({variable[1]})" in MAKEFILES, command
            elif re.fullmatch(r"[a-z-]+", word) and "=" not in command.partition(word)[0]:
                assert re.search(rf"^{word}:", MAKEFILES, re.MULTILINE), command


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_is_a_script(workflow: Path) -> None:
    for step in steps(workflow):
        if "run" in step:
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_held_by_their_commits(workflow: Path) -> None:
    for step in steps(workflow):
        assert re.search(r"@[0-9a-f]{40}$", step.get("uses", f"@{0:040}"))
