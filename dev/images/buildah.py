"""Buildah, with its storage in our cache: nothing is shared with the machine's own containers."""

import configparser
import os
import secrets
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dev.images.commands import run
from dev.images.settings import RUNTIME, STORAGE

# What a build may learn of this machine's pip: where packages come from. Paths would be of no use to it.
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "default-timeout", "retries", "proxy")
# Containers of this module, as opposed to those that a build makes for its steps.
_OURS = "opened-"
_PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")


def buildah(*arguments: str, check: bool = True) -> str:
    storage = ["--root", str(STORAGE), "--runroot", str(RUNTIME), "--storage-driver", _driver()]
    return run(["buildah", *storage, *arguments], check=check)


def exists(image: str) -> bool:
    return buildah("images", "--quiet", image, check=False) != ""


def size(image: str) -> str:
    return buildah("images", "--format={{.Size}}", image)


def build(
    image: str, *, containerfile: Path, context: Path, arguments: Mapping[str, str], ignorefile: Path | None = None
) -> None:
    """A base that is not in our storage is pulled."""
    options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    if ignorefile:
        options.append(f"--ignorefile={ignorefile}")
    with _secrets() as given:
        build = ["bud", "--isolation=chroot", "--network=host", "--layers", "--pull=false"]
        buildah(*build, *given, *options, f"--tag={image}", f"--file={containerfile}", str(context))


@contextmanager
def container(image: str) -> Generator[str]:
    """A working container of `image` ("scratch" for an empty one), removed at the end whatever happens."""
    name = buildah("from", "--pull=never", f"--name={_OURS}{os.getpid()}-{secrets.token_hex(4)}", image)
    try:
        yield name
    finally:
        buildah("rm", name, check=False)


def remove_leftovers() -> None:
    """Working containers of builds and tests that were killed; for a caller that knows that no build is running now."""
    for name in buildah("containers", "--format={{.ContainerName}}").split():
        owner = name.removeprefix(_OURS).partition("-")[0] if name.startswith(_OURS) else ""
        if not (owner and Path(f"/proc/{owner}").exists()):
            buildah("rm", name, check=False)


def _driver() -> str:
    """Overlay needs a file system under it that is not an overlay itself, as it is inside many containers."""
    parent = next(path for path in (STORAGE, *STORAGE.parents) if path.exists())
    return "vfs" if run(["stat", "--file-system", "--format=%T", str(parent)]) == "overlayfs" else "overlay"


@contextmanager
def _secrets() -> Generator[list[str]]:
    """This machine's package index and certificates, seen by the steps that ask for them and kept in no layer."""
    with tempfile.TemporaryDirectory() as directory:
        settings = Path(directory) / "pip.conf"
        with settings.open("w") as file:
            _pip_settings().write(file)
        authorities = os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
        yield [f"--secret=id=pip,src={settings}", f"--secret=id=ca,src={authorities}"]


def _pip_settings() -> configparser.RawConfigParser:
    settings = configparser.RawConfigParser()
    settings.read(Path(name).expanduser() for name in _PIP_FILES)
    known = dict(settings["global"]) if settings.has_section("global") else {}
    for key in _PIP_SETTINGS:
        variable = f"PIP_{key.upper().replace('-', '_')}"
        known[key] = os.environ.get(variable, known.get(key, ""))
    settings.clear()
    settings["global"] = {"cert": "/run/secrets/ca", **{key: known[key] for key in _PIP_SETTINGS if known[key]}}
    return settings
