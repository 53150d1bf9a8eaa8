"""Runs `dsjob` as a shell would, in this process."""

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from deepspeed_operator.cli.main import main


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str


def dsjob(*arguments: object, stdin: str | bytes = b"") -> Result:
    """Run the command; an exception that it lets through fails the test."""
    given = io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), patch("sys.stdin", given):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:  # argparse, of a wrong command line
            code = ended.code if isinstance(ended.code, int) else 1
    return Result(code, out.getvalue(), err.getvalue())


def judged(*arguments: object, stdin: str | bytes = b"") -> dict[str, Any]:
    """Run `dsjob validate -o json`, and return what it says."""
    return json.loads(dsjob("validate", "-o", "json", *arguments, stdin=stdin).stdout)


def findings(*arguments: object, stdin: str | bytes = b"") -> list[dict[str, Any]]:
    """Return all findings of `dsjob validate`, of all documents."""
    return [finding for document in judged(*arguments, stdin=stdin)["documents"] for finding in document["findings"]]
