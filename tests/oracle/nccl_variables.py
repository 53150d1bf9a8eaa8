"""Writes lint/network/variables.json: the variables that each release of NCCL reads, from its sources.

python -m tests.oracle.nccl_variables CLONE_OF_NVIDIA_NCCL
"""

import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

TABLE = Path(__file__).parents[2] / "operator/deepspeed_operator/lint/network/variables.json"
RELEASE = re.compile(r"v(2\.\d+)\.\d+-\d+")
OLDEST = (2, 4)
PARAMETER = re.compile(r'NCCL_(?:PARAM|DEFINE_PARAM)\w*\(\s*\w+\s*,\s*"([A-Z0-9_]+)"')
READ = re.compile(r"^.*(?:[gG]et_?[eE]nv|GetLevel|getNthreads).*$", re.MULTILINE)
NAME = re.compile(r'"(NCCL_[A-Z0-9_]+)"')
# Read to build or test NCCL, or by its own tools.
NOT_FOR_USERS = re.compile(r"NCCL_(HOME|USE_CMAKE|PARAM_DUMP_ALL|NO_CACHE)$|NCCL_TESTS?_")
HEADING = re.compile(r"^(\S.*)\n([=\-#])\2+$", re.MULTILINE)


def git(clone: str, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *arguments], capture_output=True, check=True).stdout


def releases(clone: str) -> dict[str, list[str]]:
    """Tags by minor release, both in order."""
    found: dict[str, list[str]] = {}
    for tag in git(clone, "tag", "--sort=version:refname").decode().split():
        match = RELEASE.fullmatch(tag)
        if match and numbers(match[1]) >= OLDEST:
            found.setdefault(match[1], []).append(tag)
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def variables(clone: str, tag: str) -> set[str]:
    """The variables that the sources of this tag read."""
    found: set[str] = set()
    with tarfile.open(fileobj=io.BytesIO(git(clone, "archive", tag, "src"))) as sources:
        for member in sources:
            if Path(member.name).suffix in {".cc", ".cpp", ".h", ".hpp", ".cu", ".c"}:
                file = sources.extractfile(member)
                text = file.read().decode(errors="replace") if file else ""
                found |= {f"NCCL_{name}" for name in PARAMETER.findall(text)}
                found |= {name for line in READ.findall(text) for name in NAME.findall(line)}
    return {name for name in found if not NOT_FOR_USERS.match(name)}


def debugging(clone: str, tag: str) -> set[str]:
    """The variables under the heading of the user guide that says: not in production."""
    page = git(clone, "show", f"{tag}:docs/userguide/source/env.rst").decode()
    return {title for title, rule in HEADING.findall(page.partition("\nDebugging\n")[2]) if rule == "-"}


def table(clone: str) -> dict[str, dict[str, str | bool]]:
    """Each variable: the minor release since which it is read, the first that does not any more, and its heading."""
    tags = releases(clone)
    reading: dict[str, set[str]] = {}
    for release, minor in tags.items():
        reading[release] = {name for tag in minor for name in variables(clone, tag)}
    newest = list(tags)[-1]
    debug = debugging(clone, tags[newest][-1])
    rows: dict[str, dict[str, str | bool]] = {}
    for name in sorted({name for names in reading.values() for name in names}):
        having = [release for release in tags if name in reading[release]]
        row: dict[str, str | bool] = {"since": having[0]}
        if having[-1] != newest:
            row["until"] = having[-1]
        if name in debug:
            row["debug"] = True
        rows[name] = row
    return rows


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table(sys.argv[1]).items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
