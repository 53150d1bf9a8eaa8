"""DeepSpeed of every supported version beside a CPU PyTorch, in a Debian root file system of its own.

The root is a copy of the image that the worker is built on; each version is installed beside it, once.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dev.cluster.settings import CACHE
from dev.images import images, locks
from dev.images.bases import TORCH
from dev.images.buildah import buildah, container
from dev.images.commands import run, step

_HOME = CACHE / "oracle"
INSIDE = Path(__file__).parent / "inside"
_OPERATOR = Path(__file__).parents[2] / "operator"
# What DeepSpeed imports and its build needs, where Debian's packages of the image do not have it.
_BESIDE = ("setuptools", "wheel", "ninja", "py-cpuinfo", "hjson", "msgpack", "einops")
# What some tests need beside DeepSpeed; the version is that of which something is asserted.
_OTHERS = {
    "lightning": (
        *("--no-deps", "pytorch-lightning==2.6.6", "lightning-utilities", "torchmetrics"),
        *("fsspec", "PyYAML", "typing-extensions"),
    )
}
_OF_PIP = ("PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT")
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_ENTER = """
root=$1 home=$2 inside=$3 operator=$4; shift 4
mount -t proc proc $root/proc
mount -t tmpfs tmpfs $root/tmp
mount --rbind /dev $root/dev
mount --bind $home $root/oracle
mount --bind $inside $root/inside
mount --bind $operator $root/operator
mount --bind $(dirname $CERT) $root/etc/ssl/certs
mount --bind /etc/resolv.conf $root/etc/resolv.conf
exec chroot $root "$@"
"""


def installed(version: str, *others: str) -> None:
    """Install a version of DeepSpeed, and before it the root, where they are missing; `others` are of _OTHERS."""
    _install("beside", _BESIDE)
    for other in others:
        _install(other, _OTHERS[other])
    # Its setup imports torch; nothing is compiled.
    alone = ["--no-deps", "--no-build-isolation", "--no-binary", "deepspeed"]
    _install(version, [*alone, f"deepspeed=={version}"], _shim(version))


def command(version: str, script: str, *arguments: str, others: Sequence[str] = ()) -> list[str]:
    """The command that runs a script of `inside` with that version."""
    names = (version, "beside", *others)
    paths = [*_shim(version), *(f"/oracle/{_directory(name).name}" for name in names), "/inside"]
    environment = {"PYTHONPATH": ":".join([*paths, "/operator"]), "DS_ACCELERATOR": "cpu"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return _entered(["python3", "-u", f"/inside/{script}", *arguments], environment)


def _shim(version: str) -> list[str]:
    return ["/inside/shim"] if version == "0.19.6" else []


def _directory(name: str) -> Path:
    return _HOME / f"{name}-{TORCH.key}"


def _install(name: str, what: Sequence[str], paths: Sequence[str] = ()) -> None:
    target = _directory(name)
    with locks.building(f"oracle-{name}"):
        if target.exists():
            return
        unfinished = target.with_name(f"{target.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        pip = ["pip", "install", "--quiet", "--root-user-action=ignore", "--break-system-packages"]
        own = {variable: os.environ[variable] for variable in _OF_PIP if variable in os.environ}
        environment = {
            **own,
            "PYTHONPATH": ":".join([*paths, f"/oracle/{_directory('beside').name}"]),
            "DS_BUILD_OPS": "0",
            "DS_ACCELERATOR": "cpu",
        }
        with step(f"oracle: install {target.name}"):
            run(_entered([*pip, "--target", f"/oracle/{unfinished.name}", *what], environment))
        unfinished.rename(target)


def _root() -> Path:
    root = _directory("root")
    with locks.building("oracle-root"):
        if not root.exists():
            _copy_root(root)
    return root


def _copy_root(root: Path) -> None:
    image = images.make(TORCH)
    unfinished = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    _HOME.mkdir(parents=True, exist_ok=True)
    with step("oracle: copy the root file system"), container(image) as name:
        run(["cp", "--archive", buildah("mount", name), str(unfinished)])
        for directory in ("oracle", "inside", "operator"):
            (unfinished / directory).mkdir()
        (unfinished / "etc" / "resolv.conf").touch()
        settings = Path("/etc/pip.conf")
        if settings.exists():
            shutil.copy(settings, unfinished / "etc" / "pip.conf")
    unfinished.rename(root)


def _entered(command: Sequence[str], environment: dict[str, str]) -> list[str]:
    """In namespaces of its own, so that nothing runs on, stays mounted or lies in its /tmp, whatever ends it."""
    settings = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "PIP_CERT": _AUTHORITIES, **environment}
    given = [f"{name}={value}" for name, value in settings.items()]
    cert = os.environ.get("PIP_CERT", _AUTHORITIES)
    apart = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
    unshared = ["env", "-i", f"CERT={cert}", *given, *apart]
    return [*unshared, "sh", "-ec", _ENTER, "sh", str(_root()), str(_HOME), str(INSIDE), str(_OPERATOR), *command]


def output(version: str, script: str, *arguments: str) -> str:
    """What a script of `inside` printed."""
    done = subprocess.run(command(version, script, *arguments), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout
