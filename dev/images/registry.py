"""The registry that the cluster's nodes pull from, as this machine sees it."""

import urllib.request
from collections.abc import Collection
from pathlib import Path

from dev.cluster import Cluster
from dev.cluster.settings import REGISTRY_ADDRESS, REGISTRY_NAME
from dev.images.buildah import buildah
from dev.images.commands import step

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def ensure_running() -> None:
    if not _answers("/v2/"):
        Cluster().start_registry()


def name_on_nodes(repository: str, tag: str) -> str:
    return f"{REGISTRY_NAME}/{repository}:{tag}"


def has(repository: str, tag: str) -> bool:
    return _answers(f"/v2/{repository}/manifests/{tag}")


def push(image: str, repository: str, tag: str) -> None:
    destination = f"docker://{REGISTRY_ADDRESS}/{repository}:{tag}"
    with step(f"{repository}: push"):
        # The nodes unpack zstd several times faster than gzip.
        packed = ("--format=oci", "--compression-format=zstd", "--compression-level=1")
        buildah("push", "--quiet", *packed, "--tls-verify=false", image, destination)


def tags(repository: str) -> list[str]:
    """Return the tags that were pushed, the newest first."""
    directory = _tags(repository)
    found = directory.iterdir() if directory.exists() else ()
    return [tag.name for tag in sorted(found, key=lambda tag: tag.stat().st_mtime, reverse=True)]


def keep(repository: str, kept: Collection[str]) -> None:
    """Forget the other tags; the space that they take is free once the registry starts again."""
    digests = {tag: (_tags(repository) / tag / "current" / "link").read_text() for tag in tags(repository)}
    for digest in set(digests.values()) - {digests[tag] for tag in kept}:
        _answers(f"/v2/{repository}/manifests/{digest}", "DELETE")


def _tags(repository: str) -> Path:
    storage = Cluster().layout.registry / "docker" / "registry" / "v2" / "repositories"
    return storage / repository / "_manifests" / "tags"


def publish(image: str, reference: str) -> None:
    """To a registry that is not ours."""
    with step(f"{reference}: push"):
        buildah("push", "--quiet", image, f"docker://{reference}")


def _answers(path: str, method: str = "HEAD") -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    url = f"http://{REGISTRY_ADDRESS}{path}"
    try:
        with direct.open(urllib.request.Request(url, method=method, headers={"Accept": _MANIFEST}), timeout=10):
            return True
    except OSError:
        return False
