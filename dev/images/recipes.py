"""The images made by a Containerfile. A key covers everything that goes in, so that a tag never means two contents."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dev.images import locks
from dev.images.bases import PYTHON, TORCH
from dev.images.buildah import build, exists, size
from dev.images.commands import say, step
from dev.images.keys import key
from dev.images.settings import ROOT

_IMAGES = ROOT / "images"


class Image(Protocol):
    @property
    def repository(self) -> str: ...
    @property
    def key(self) -> str: ...
    def make(self) -> str:
        """Its name in our own storage, where it is made if it is not there."""
        ...


@dataclass(frozen=True)
class Public:
    """Somebody else's image, pulled by the build."""

    repository: str

    @property
    def key(self) -> str:
        return self.repository

    def make(self) -> str:
        return self.repository


@dataclass(frozen=True)
class Recipe:
    repository: str
    containerfile: Path
    context: Path
    # By build argument.
    bases: Mapping[str, Image]
    inputs: tuple[Path, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    ignorefile: Path | None = None

    @property
    def key(self) -> str:
        bases = {argument: image.key for argument, image in self.bases.items()}
        return key(bases, dict(self.arguments), files=(self.containerfile, *self.inputs))

    def make(self) -> str:
        image = f"localhost/{self.repository}:{self.key}"
        with locks.building(self.repository):
            if not exists(image):
                self._build(image)
        return image

    def _build(self, image: str) -> None:
        bases = {argument: base.make() for argument, base in self.bases.items()}
        with step(f"{self.repository}: build"):
            build(
                image,
                containerfile=self.containerfile,
                context=self.context,
                arguments={**bases, **self.arguments},
                ignorefile=self.ignorefile,
            )
        say(f"{self.repository}: {size(image)}")


def operator(base: str = "") -> Recipe:
    return Recipe(
        repository="deepspeed-operator",
        containerfile=_IMAGES / "operator" / "Containerfile",
        context=ROOT,
        bases={"BASE": Public(base) if base else PYTHON},
        inputs=tuple(
            ROOT / name
            for name in ("images/operator/build.txt", "pyproject.toml", "uv.lock", "README.md", "LICENSE", "operator")
        ),
        arguments={} if base else {"BUILD_PACKAGES": "python3-pip"},
        ignorefile=_IMAGES / "operator" / "Containerfile.dockerignore",
    )


def worker(base: str = "", build_base: str = "") -> Recipe:
    # Debian's PyTorch has its headers, and what they include, in packages of their own.
    headers = "g++ python3-dev libtorch-dev pybind11-dev libgoogle-glog-dev"
    return Recipe(
        repository="deepspeed-worker",
        containerfile=_IMAGES / "worker" / "Containerfile",
        context=_IMAGES / "worker",
        bases={"BASE": Public(base), "BUILD_BASE": Public(build_base or base)}
        if base
        else {"BASE": TORCH, "BUILD_BASE": TORCH},
        inputs=tuple(
            _IMAGES / "worker" / name for name in ("build.txt", "portable-cxx", "requirements.txt", "without_libuv.py")
        ),
        arguments={} if base else {"BUILD_PACKAGES": headers, "ACCELERATOR": "cpu"},
    )


def worker_deepspeed() -> str:
    """Return the version of DeepSpeed that the worker image has."""
    found = re.search(r"^deepspeed==(\S+)", (_IMAGES / "worker" / "requirements.txt").read_text(), re.MULTILINE)
    assert found is not None, "it is pinned there"
    return found[1]


def hugging_face(base: str = "", build_base: str = "") -> Recipe:
    """Return the worker with transformers, accelerate and peft."""
    return Recipe(
        repository="deepspeed-worker-huggingface",
        containerfile=_IMAGES / "worker" / "huggingface.Containerfile",
        context=_IMAGES / "worker",
        bases={"BASE": worker(base, build_base)},
        inputs=(_IMAGES / "worker" / "huggingface.txt",),
    )
