"""What has to be built before a cluster can run jobs, each part cached by its content."""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.cluster import build
from tests.cluster.settings import CACHE, STATE, Layout
from tests.images import images

_AT_ONCE = 3


def cluster_programs() -> None:
    """Kubernetes, containerd, DNS, helm: compiled from their Go modules."""
    build.install_packages()
    build.build(Layout(STATE, CACHE))


# The longest first.
STEPS: Mapping[str, Callable[[], object]] = {
    "cluster programs": cluster_programs,
    **{f"image {name}": partial(images.ensure, name) for name in images.NAMES},
}


def take(names: Collection[str]) -> dict[str, float]:
    """Take these steps, and return how many seconds each took.

    Some at once: downloads, unpacking and linkers leave processors idle.
    """

    def seconds(name: str) -> float:
        begin = time.monotonic()
        STEPS[name]()
        return time.monotonic() - begin

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(names, pool.map(seconds, names), strict=True))
