"""Builds the cluster's programs from Go modules, each cached by its content: sources, module versions and flags."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from dev import debian
from dev.cluster.processes import CommandError, run
from dev.cluster.settings import KUBERNETES_VERSION, Layout

SOURCES = Path(__file__).parent / "go"
# Without these Kubernetes calls itself v0.0.0, and clients and charts refuse it.
_LINKER_FLAGS = "-s -w " + " ".join(
    f"-X k8s.io/{package}.{key}={value}"
    for package in ("component-base/version", "client-go/pkg/version")
    for key, value in (
        ("gitVersion", KUBERNETES_VERSION),
        ("gitMajor", "1"),
        ("gitMinor", KUBERNETES_VERSION.split(".")[1]),
        ("gitTreeState", "clean"),
    )
)
# Nobody debugs these programs: the compiler takes a seventh less time without debug information. It takes a fifth less
# again where it inlines nothing, in large packages that spend little of a cluster's time.
_NOT_INLINED = (
    "k8s.io/kubernetes/...",
    "k8s.io/kubectl/...",
    "k8s.io/client-go/kubernetes/...",
    "k8s.io/client-go/informers/...",
)
_COMPILER_FLAGS = ("-gcflags=all=-dwarf=false", *(f"-gcflags={packages}=-dwarf=false -l" for packages in _NOT_INLINED))
_KUBE_NAMES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
# What has to be on the machine besides, and the Debian package that brings it.
_PACKAGES = {
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
    "openssl": "openssl",
    "docker-registry": "docker-registry",
    _AUTHORITIES: "ca-certificates",
}


@dataclass(frozen=True)
class Program:
    name: str
    package: str
    module: Path = SOURCES
    also_called: tuple[str, ...] = ()


PROGRAMS = (
    Program("pause", "./pause"),
    Program("probe", "./probe"),
    Program("forget", "./forget"),
    Program("kube", "./kube", also_called=_KUBE_NAMES),
    *(
        Program(name, f"github.com/containerd/containerd/v2/cmd/{name}", module=SOURCES / "containerd")
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ),
    Program("coredns", "./coredns"),
    Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("helm", "helm.sh/helm/v4/cmd/helm"),
)


# For tests of queues only, which are run by hand.
KUEUE = Program("kueue", "sigs.k8s.io/kueue/cmd/kueue", module=SOURCES / "kueue")


def build(layout: Layout) -> Path:
    """The directory of all programs, built as far as they are not in the cache."""
    layout.cache.mkdir(parents=True, exist_ok=True)
    with (layout.cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = {program: layout.cache / "bin" / f"{program.name}-{_digest(program)}" for program in PROGRAMS}
        missing = [program for program, path in wanted.items() if not path.exists()]
        if missing:
            go = _go(layout)
            for program in missing:
                _compile(go, program, wanted[program])
        _link(layout.bin, wanted)
    return layout.bin


def build_kueue(layout: Layout) -> Path:
    """Kueue's manager, built if it is not in the cache."""
    layout.cache.mkdir(parents=True, exist_ok=True)
    with (layout.cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target = layout.cache / "bin" / f"{KUEUE.name}-{_digest(KUEUE)}"
        if not target.exists():
            _compile(_go(layout), KUEUE, target)
    return target


def kueue_source(layout: Layout) -> Path:
    """The sources of that Kueue, which hold its kinds and webhooks."""
    answer = run([_go(layout), "-C", str(KUEUE.module), "mod", "download", "-json", "sigs.k8s.io/kueue"], timeout=600)
    return Path(json.loads(answer)["Dir"])


def install_packages() -> None:
    """What Debian has of what the cluster runs."""
    debian.ensure(_PACKAGES)


def _digest(program: Program) -> str:
    content = hashlib.sha256(f"{program.package} {_LINKER_FLAGS} {_COMPILER_FLAGS}".encode())
    sources = sorted((program.module / program.name).glob("*.go"))
    for path in (program.module / "go.mod", program.module / "go.sum", *sources):
        content.update(path.read_bytes())
    return content.hexdigest()[:16]


def _compile(go: str, program: Program, target: Path) -> None:
    print(f"building {program.name}", flush=True)
    started = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}")
    run(
        [
            go,
            "build",
            "-C",
            str(program.module),
            "-trimpath",
            "-buildvcs=false",
            *_COMPILER_FLAGS,
            "-ldflags",
            _LINKER_FLAGS,
            "-o",
            str(unfinished),
            program.package,
        ],
        env={"CGO_ENABLED": "0"},
        timeout=3600,
    )
    unfinished.rename(target)
    for older in target.parent.glob(f"{program.name}-{'[0-9a-f]' * 16}"):
        if older != target:
            older.unlink()
    print(f"built {program.name} in {time.monotonic() - started:.0f} s", flush=True)


def _link(directory: Path, programs: dict[Program, Path]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for program, path in programs.items():
        for name in (program.name, *program.also_called):
            link = directory / name
            if not link.is_symlink() or link.readlink() != path:
                link.unlink(missing_ok=True)
                link.symlink_to(path)


def _go(layout: Layout) -> str:
    """The machine's Go where it can build the module or fetch one that can (1.21), else one from the module proxy."""
    wanted = _wanted_go()
    installed = shutil.which("go")
    if installed and _version(installed) >= (1, 21):
        os.environ["GOTOOLCHAIN"] = "auto"
        return installed
    toolchain = layout.cache / f"go{wanted}"
    if not toolchain.exists():
        if not installed:
            debian.ensure({"go": "golang-go", _AUTHORITIES: "ca-certificates"})
        started = time.monotonic()
        _fetch_toolchain(wanted, toolchain)
        print(f"fetched go {wanted} in {time.monotonic() - started:.0f} s", flush=True)
    return str(toolchain / "bin" / "go")


def _fetch_toolchain(wanted: str, toolchain: Path) -> None:
    """An old `go` knows nothing of toolchains, but it can download their module, which has no executable bits."""
    module = f"golang.org/toolchain@v0.0.1-go{wanted}.linux-{run(['go', 'env', 'GOARCH']).strip()}"
    scratch = toolchain.with_suffix(".unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "module").mkdir(parents=True)
    (scratch / "module" / "go.mod").write_text("module scratch\n")
    run(["sh", "-c", f"cd {scratch}/module && go mod download {module}"], timeout=1200)
    shutil.copytree(Path(run(["go", "env", "GOMODCACHE"]).strip()) / module, scratch / "go")
    for program in [*(scratch / "go" / "bin").iterdir(), *(scratch / "go" / "pkg" / "tool").rglob("*")]:
        program.chmod(0o755)
    (scratch / "go").rename(toolchain)
    shutil.rmtree(scratch)


def _wanted_go() -> str:
    found = re.search(r"^go (\S+)$", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise CommandError("go.mod names no Go version")
    return found[1]


def _version(go: str) -> tuple[int, ...]:
    found = re.search(r"go(\d+)\.(\d+)", run([go, "version"]))
    return (int(found[1]), int(found[2])) if found else (0, 0)
