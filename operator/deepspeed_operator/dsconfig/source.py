"""Configuration text → configuration, as DeepSpeed itself reads it: JSON, or hjson with comments and the rest."""

import json
from typing import Any, Final

from deepspeed_operator.api.finding import Code, advice, error, warning
from deepspeed_operator.api.status import Finding
from deepspeed_operator.dsconfig.hjson import PYTHONIC, parse_hjson
from deepspeed_operator.dsconfig.tree import Document, Problem, Text, UnreadableError, path_at, plain

Config = dict[str, Any]
_OTHERS: Final = "Hugging Face Trainer, Accelerate and Lightning"


def parse_config(text: str, where: str = "spec.dsConfigFrom") -> Config | list[Finding]:
    """Parse a ds_config.json, or say everything that is wrong with it; `where` is the path of its source in the job."""
    lines = Text(text)
    try:
        document = parse_hjson(text)
    except UnreadableError as problem:
        position = f", {_at(lines, problem.position)}" if problem.position is not None else ""
        return [error(where, Code.INVALID_TEXT, f"cannot be read as JSON: {problem.message}{position}.", problem.fix)]
    if not text.strip():
        return [error(where, Code.INVALID_TEXT, "the configuration is empty.", "Begin with { and end with }.")]
    if document.root.members is None:
        kind = "a list" if document.root.items is not None else "a single value"
        return [
            error(
                where,
                Code.INVALID_TEXT,
                f"the configuration must be an object, not {kind}.",
                "Begin with { and end with }.",
            )
        ]
    if document.problems:
        return [_finding(document, problem, lines, where) for problem in document.problems]
    return plain(document.root)


def format_findings(text: str, where: str, *, framework: bool = False) -> list[Finding]:
    """Say whom else than DeepSpeed the text will not please; `framework`: one of them is known to read it."""
    try:
        json.loads(text)
    except json.JSONDecodeError as problem:
        position, what, fix = _unplain(text, problem.pos)
        path = path_at(parse_hjson(text).root, position)
        at = _at(Text(text), position)
        message = f"not plain JSON ({what}, {at}): DeepSpeed reads it, but {_OTHERS} do not."
        remark = warning if framework else advice
        return [remark(f"{where}.{path}".strip(".") if path else where, Code.NOT_PLAIN_JSON, message, fix)]
    except (ValueError, RecursionError):
        return []  # a number of more digits than Python reads, which is told elsewhere
    return []


def _unplain(text: str, position: int) -> tuple[int, str, str]:
    """Return where a text ceases to be JSON, what is there, and what to write instead."""
    while text[position : position + 1].isspace():
        position += 1
    rest, before = text[position : position + 8], text[:position].rstrip()
    if rest.startswith(("#", "//", "/*")):
        return position, "a comment", "Remove the comments."
    word = next((word for word in PYTHONIC if rest.startswith(word)), None)
    if word is not None:
        return position, f"Python's {word}", f"Write {PYTHONIC[word]}."
    if rest.startswith("'"):
        return position, "single quotes", "Write double quotes."
    if rest.startswith(("}", "]")) and before.endswith(","):
        return len(before) - 1, "a trailing comma", "Remove the comma."
    if rest.startswith(",") and text[position + 1 :].lstrip().startswith(("}", "]")):
        return position, "a trailing comma", "Remove the comma."
    return position, "not as JSON has it", "Put names and texts in double quotes, and commas between."


def _finding(document: Document, problem: Problem, lines: Text, where: str) -> Finding:
    path = path_at(document.root, problem.spans[-1][0])
    places = " and ".join(_at(lines, start) for start, _ in problem.spans)
    message = f"{problem.message.removesuffix('.')} ({places})."
    return error(f"{where}.{path}" if path else where, Code.INVALID_TEXT, message, problem.fix)


def _at(lines: Text, position: int) -> str:
    line, column = lines.place(position)
    return f"line {line + 1}, column {column + 1}"
