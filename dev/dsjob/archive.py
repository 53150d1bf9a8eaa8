"""One file that is `dsjob`: a zip archive that Python runs, with the packages that it needs.

One of them, pydantic-core, is compiled, and no interpreter loads such a module from an archive. The file therefore
unpacks itself once, into the user's cache, and serves the minor version of Python and the platform it was made on.
"""

import hashlib
import stat
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, version
from pathlib import Path
from string import Template
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = "deepspeed_operator"
# What the commands import; not what the operator does, nor what rich draws Markdown and listings with.
DEPENDENCIES: Final = (
    "annotated-types",
    "pydantic",
    "pydantic-core",
    "pyyaml",
    "rich",
    "typing-extensions",
    "typing-inspection",
)
_INTERPRETER: Final = b"#!/usr/bin/env python3\n"
_SAME_TIME: Final = (1980, 1, 1, 0, 0, 0)  # so that the same content is the same file
_START: Final = Template('''\
"""Unpacks dsjob where this user keeps caches, once for each content, and runs it."""

import os
import shutil
import sys
import tempfile
import zipfile

if sys.version_info[:2] != $python:
    made = ".".join(map(str, $python))
    sys.exit("dsjob: this file is for Python " + made + " on $platform: run it with python" + made)
cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
home = os.path.join(cache, "dsjob", "$digest")
if not os.path.isdir(home):
    try:
        os.makedirs(os.path.dirname(home), exist_ok=True)
        beside = tempfile.mkdtemp(dir=os.path.dirname(home))
    except OSError as error:
        sys.exit("dsjob: cannot unpack itself (set XDG_CACHE_HOME to a directory that can be written): " + str(error))
    with zipfile.ZipFile(os.path.dirname(os.path.abspath(__file__))) as archive:
        archive.extractall(beside)
    try:
        os.rename(beside, home)
    except OSError:  # another one was faster
        shutil.rmtree(beside, ignore_errors=True)
sys.path.insert(0, home)
from deepspeed_operator.cli.main import entry

entry()
''')


def write(path: Path) -> None:
    """Write the file, executable, of the source tree and of the packages that are installed beside this interpreter."""
    content = dict(sorted(_content()))
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" + data for name, data in content.items())).hexdigest()[:32]
    python = repr(tuple(sys.version_info[:2]))
    start = _START.substitute(python=python, platform=sysconfig.get_platform(), digest=digest)
    with path.open("wb") as file:
        file.write(_INTERPRETER)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {"__main__.py": start.encode(), **content}.items():
                archive.writestr(zipfile.ZipInfo(name, _SAME_TIME), data, zipfile.ZIP_DEFLATED)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _content() -> Iterator[tuple[str, bytes]]:
    source = ROOT / "operator"
    for file in (source / PACKAGE).rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts and "controller" not in file.relative_to(source).parts:
            yield str(file.relative_to(source)), file.read_bytes()
    for name in DEPENDENCIES:
        yield from _files(distribution(name))
    told = f"Metadata-Version: 2.1\nName: deepspeed-operator\nVersion: {version('deepspeed-operator')}\n"
    yield f"{PACKAGE}-{version('deepspeed-operator')}.dist-info/METADATA", told.encode()


def _files(package: Distribution) -> Iterator[tuple[str, bytes]]:
    for file in package.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts and not file.name.startswith("INSTALLER"):
            yield str(file), Path(str(file.locate())).read_bytes()
