"""Debian root file systems made on this machine: what the public base images are elsewhere."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from dev.images import locks
from dev.images.buildah import buildah, container, exists
from dev.images.commands import run, step
from dev.images.keys import key
from dev.images.settings import SOURCES, SUITE

_OPTIONS = (
    "--variant=minbase",
    "--format=directory",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)


@dataclass(frozen=True)
class Debian:
    """Debian's essential packages and those named here, without what they merely recommend."""

    repository: str
    packages: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def key(self) -> str:
        return key(self.repository, self.packages, self.env, SUITE, SOURCES, _OPTIONS)

    def make(self) -> str:
        image = f"localhost/{self.repository}:{self.key}"
        with locks.building(self.repository):
            if not exists(image):
                self._install(image)
        return image

    def _install(self, image: str) -> None:
        with container("scratch") as name:
            with step(f"{self.repository}: install Debian {SUITE}"):
                root = buildah("mount", name)
                run(["mmdebstrap", *_OPTIONS, f"--include={','.join(self.packages)}", SUITE, root, *SOURCES])
            with step(f"{self.repository}: commit"):
                for variable, value in self.env.items():
                    buildah("config", "--env", f"{variable}={value}", name)
                buildah("commit", "--quiet", name, image)


@dataclass(frozen=True)
class Busybox:
    """One static binary and its links: a shell and a sleep, no Python, no libraries."""

    repository: str

    @property
    def key(self) -> str:
        return key("busybox-static", SUITE, SOURCES)

    def make(self) -> str:
        image = f"localhost/{self.repository}:{self.key}"
        with locks.building(self.repository):
            if not exists(image):
                self._unpack(image)
        return image

    def _unpack(self, image: str) -> None:
        with step(f"{self.repository}: make"), tempfile.TemporaryDirectory() as directory, container("scratch") as name:
            unpacked, root = Path(directory, "unpacked"), Path(buildah("mount", name))
            extract = ["mmdebstrap", "--variant=extract", "--format=directory", "--include=busybox-static"]
            run([*extract, SUITE, str(unpacked), *SOURCES])
            (root / "bin").mkdir()
            (root / "tmp").mkdir()
            (root / "tmp").chmod(0o1777)
            binary = shutil.copy2(unpacked / "usr" / "bin" / "busybox", root / "bin" / "busybox")
            for applet in set(run([str(binary), "--list"]).split()) - {"busybox"}:
                (root / "bin" / applet).symlink_to("busybox")
            buildah("config", "--env", "PATH=/bin", "--cmd", "sh", name)
            buildah("commit", "--quiet", name, image)


PYTHON = Debian("plain-python", ("ca-certificates", "python3"))

# Debian's PyTorch is the CPU build; the one on PyPI brings 3 GB of CUDA. The rest DeepSpeed needs, and Debian has it.
TORCH = Debian(
    "debian-torch",
    (
        *("ca-certificates", "python3", "python3-pip", "python3-torch"),
        *("python3-numpy", "python3-packaging", "python3-psutil", "python3-pydantic", "python3-tqdm"),
    ),
    # Without a GPU DeepSpeed warns and guesses; Debian's PyTorch is built without libuv.
    {"DS_ACCELERATOR": "cpu", "USE_LIBUV": "0"},
)

NO_PYTHON = Busybox("no-python")
