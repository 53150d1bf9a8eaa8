"""Images: a registry on the machine that nodes know by name, archives, and images of a single static program."""

import hashlib
import io
import json
import platform
import secrets
import tarfile
import urllib.request
from pathlib import Path

from dev.cluster import cgroups, network, processes
from dev.cluster.processes import wait_for
from dev.cluster.settings import REGISTRY_ADDRESS, Layout

REGISTRY_CGROUP = f"{cgroups.PREFIX}registry"
_ARCHITECTURE = {"aarch64": "arm64"}.get(platform.machine(), "amd64")


def start_registry(layout: Layout) -> str:
    """The address to push to; the nodes pull the same images from REGISTRY_NAME.

    It is apart from the cluster, which may be brought up during a push, and its storage stays when it goes down.
    """
    records, log = layout.registry / "processes", layout.registry / "registry.log"
    if not processes.is_alive(records, "registry"):
        network.bridge_up()
        cgroups.remove(REGISTRY_CGROUP)
        cgroups.create(REGISTRY_CGROUP)
        layout.registry.mkdir(parents=True, exist_ok=True)
        config = layout.registry / "config.json"
        content = {
            "version": 0.1,
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(layout.registry)}, "delete": {"enabled": True}},
            "http": {"addr": REGISTRY_ADDRESS, "secret": secrets.token_hex(16)},
        }
        config.write_text(json.dumps(content))
        # Of images that were forgotten; only while nobody pushes. Where it fails, they take space and do no harm.
        # Within the registry's process, so that it is found and ended if the driver is killed meanwhile.
        collect = "docker-registry garbage-collect $0 >/dev/null 2>&1; exec docker-registry serve $0"
        command = ["sh", "-c", collect, str(config)]
        processes.start("registry", command, records=records, log=log, cgroup=REGISTRY_CGROUP)
    wait_for("the registry", _registry_answers, seconds=60, log=log)
    return REGISTRY_ADDRESS


def static_image(layout: Layout, program: str, name: str) -> Path:
    """An archive of an image that holds one static program and starts it."""
    archive = layout.state / f"{program}.tar"
    layer = _tar({program: ((layout.bin / program).read_bytes(), 0o755)})
    config = json.dumps(
        {
            "architecture": _ARCHITECTURE,
            "os": "linux",
            "config": {"Entrypoint": [f"/{program}"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    members = {"config.json": config, "layer.tar": layer, "manifest.json": manifest}
    archive.write_bytes(_tar({member: (content, 0o644) for member, content in members.items()}))
    return archive


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _registry_answers() -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{REGISTRY_ADDRESS}/v2/", timeout=2):
            return True
    except OSError:
        return False
