"""Taking away old images: each content has a tag of its own, and nobody pulls the last but a few again.

They fill three places: the storage that they are built in, the registry and the nodes.
"""

from dev.cluster import Cluster
from dev.images import locks, registry
from dev.images.buildah import buildah

# The current one, and those of a branch or two beside it.
KEPT = 3


def prune(repository: str) -> None:
    """Keep the newest; what is in use, or does not go for another reason, stays."""
    kept = registry.tags(repository)[:KEPT]
    registry.keep(repository, kept)
    with locks.nothing_builds() as idle:
        names = buildah("images", "--format={{.Name}}:{{.Tag}}", f"--filter=reference=localhost/{repository}").split()
        for name in names if idle else ():
            if name.rpartition(":")[2] not in kept:
                buildah("rmi", name, check=False)
    Cluster().keep_images(repository, kept)
