"""What has to be built before a cluster can run jobs, each part cached by its content."""

from collections.abc import Callable, Mapping

from tests.cluster import build
from tests.cluster.settings import CACHE, STATE, Layout
from tests.images import images


def cluster_programs() -> None:
    """Kubernetes, containerd, DNS, helm: compiled from their Go modules."""
    build.install_packages()
    build.build(Layout(STATE, CACHE))


def image(name: str) -> Callable[[], None]:
    """Return a step that puts one image into the registry of this machine."""

    def step() -> None:
        images.ensure(name)

    return step


STEPS: Mapping[str, Callable[[], None]] = {
    "build: cluster programs": cluster_programs,
    **{f"build: image {name}": image(name) for name in images.NAMES},
}
