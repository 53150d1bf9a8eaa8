"""What krew, kubectl's manager of plugins, is told of dsjob: an archive for each platform, and a manifest of them."""

import gzip
import hashlib
import io
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dev.dsjob.archive import ROOT

PLUGIN: Final = "dsj"
PROGRAM: Final = "kubectl-dsj"
_DESCRIPTION: Final = """\
Judges, plans, runs and follows DeepSpeedJobs: whether a configuration is right
and fits, what a step costs, how far jobs are, why one failed, where its ranks
are. It needs no more rights than you have.
"""
_CAVEATS: Final = """\
It needs Python {python}, as python3. `run` also needs the PyTorch and DeepSpeed
of this machine.
"""


@dataclass(frozen=True, slots=True)
class Platform:
    """As krew names it: the words of Go."""

    os: str
    arch: str


def here() -> Platform:
    """Return the platform that this interpreter runs on."""
    name, _, machine = sysconfig.get_platform().replace("macosx", "darwin").partition("-")
    machine = machine.rpartition("-")[2]
    return Platform(name, {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine))


def write_archive(program: Path, path: Path) -> None:
    """Write the archive that krew unpacks: the program, and the licence, which krew demands."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, file, mode in ((PROGRAM, program, 0o755), ("LICENSE", ROOT / "LICENSE", 0o644)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = file.stat().st_size, mode
            with file.open("rb") as content:
                archive.addfile(entry, content)
    path.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))


def manifest(version: str, homepage: str, archives: Mapping[Platform, tuple[str, Path]]) -> dict[str, Any]:
    """Return the manifest of a version; `archives`: where each is fetched from, and the file that will be there."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version}",
            "homepage": homepage,
            "shortDescription": "Judge, plan and follow DeepSpeed training",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS.format(python=python),
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": platform.os, "arch": platform.arch}},
                    "uri": uri,
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                    "bin": PROGRAM,
                }
                for platform, (uri, path) in archives.items()
            ],
        },
    }
