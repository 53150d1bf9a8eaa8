"""Runs `dsjob` as a shell would, in this process."""

import json
from typing import Any

from click.testing import CliRunner, Result

from deepspeed_operator.cli.main import main


def dsjob(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """Run the command; an exception that it lets through fails the test."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)


def judged(*arguments: object, stdin: str | bytes | None = None) -> dict[str, Any]:
    """Run `dsjob validate -o json`, and return what it says."""
    return json.loads(dsjob("validate", "-o", "json", *arguments, stdin=stdin).stdout)


def findings(*arguments: object, stdin: str | bytes | None = None) -> list[dict[str, Any]]:
    """Return all findings of `dsjob validate`, of all documents."""
    return [finding for document in judged(*arguments, stdin=stdin)["documents"] for finding in document["findings"]]
