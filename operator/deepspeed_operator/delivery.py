"""The agent as every job's pods get it."""

import ast
import io
import tokenize
from base64 import b64encode
from importlib.resources import files
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo


def agent_archive() -> str:
    """Return the agent's modules as a zip archive in base64: the same bytes for the same modules.

    At most 128 KiB, of the 1 MiB that a ConfigMap holds beside a hostfile of 10,000 nodes.
    """
    directory = files("deepspeed_operator").joinpath("agent")
    modules = [each for each in directory.iterdir() if each.name.endswith(".py") and each.name != "__init__.py"]
    archive = io.BytesIO()
    with ZipFile(archive, "w") as writing:
        for module in sorted(modules, key=lambda each: each.name):
            # ZipInfo's own date is fixed, so that an immutable ConfigMap never seems to have changed.
            code = without_words(module.read_text(encoding="utf-8"))
            writing.writestr(ZipInfo(module.name), code.encode(), ZIP_DEFLATED)
    return b64encode(archive.getvalue()).decode()


def without_words(source: str) -> str:
    """Drop comments and docstrings, a fifth of the archive; every statement stays on its line, for tracebacks."""
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or ast.get_docstring(node) is None:
            continue
        words = node.body[0]
        last = words.end_lineno or words.lineno
        alone = [" " * words.col_offset + "pass"] if len(node.body) == 1 else [""]
        lines[words.lineno - 1 : last] = alone + [""] * (last - words.lineno)
    return "\n".join(lines)
