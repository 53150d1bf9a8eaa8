"""Images: a registry on the machine that nodes know by name, archives, and images of a single static program."""

import hashlib
import io
import json
import secrets
import tarfile
import urllib.request
from pathlib import Path

from tests.cluster import cgroups, control_plane, network, processes
from tests.cluster.processes import run, wait_for
from tests.cluster.settings import REGISTRY_ADDRESS, REGISTRY_NAME, Layout


def start_registry(layout: Layout) -> str:
    """The address to push to; the nodes pull the same images from REGISTRY_NAME.

    Its storage stays when the cluster goes down.
    """
    if not processes.is_alive(layout.processes, "registry"):
        network.bridge_up()
        cgroups.create(control_plane.CGROUP)
        storage = layout.cache / "registry"
        storage.mkdir(parents=True, exist_ok=True)
        layout.state.mkdir(parents=True, exist_ok=True)
        config = layout.state / "registry.json"
        content = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
            "http": {"addr": REGISTRY_ADDRESS, "secret": secrets.token_hex(16)},
        }
        config.write_text(json.dumps(content))
        control_plane.start_daemon(layout, "registry", ["docker-registry", "serve", str(config)])
        wait_for("the registry", _registry_answers, seconds=15, log=layout.logs / "registry.log")
    return REGISTRY_ADDRESS


def push(name: str) -> str:
    """Copies an image from buildah's store to the registry; returns the name by which pods use it."""
    path = name.removeprefix("localhost/")
    run(["buildah", "push", "--tls-verify=false", name, f"docker://{REGISTRY_ADDRESS}/{path}"], timeout=1800)
    return f"{REGISTRY_NAME}/{path}"


def static_image(layout: Layout, program: str, name: str) -> Path:
    """An archive of an image that holds one static program and starts it."""
    archive = layout.state / f"{program}.tar"
    layer = _tar({program: ((layout.bin / program).read_bytes(), 0o755)})
    config = json.dumps(
        {
            "architecture": "amd64",
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
