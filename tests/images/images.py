"""Images by name, made when they are missing: `images.ensure("operator")` is what the cluster's nodes pull."""

import fcntl
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tests.cluster.settings import CACHE
from tests.images import bases, recipes, registry
from tests.images.buildah import remove_leftovers
from tests.images.commands import install_tools
from tests.images.recipes import Image
from tests.images.settings import LOCK

_IMAGES: dict[str, Callable[[], Image]] = {
    "operator": recipes.operator,
    "worker": recipes.worker,
    "hf": recipes.hugging_face,
    "plain-python": lambda: bases.PYTHON,
    "no-python": lambda: bases.NO_PYTHON,
}
NAMES = tuple(_IMAGES)


def ensure(name: str) -> str:
    """Builds and pushes what is missing, and only that; a second call costs one question to the registry."""
    image = _IMAGES[name]()
    registry.ensure_running()
    if not registry.has(image.repository, image.key):
        registry.push(make(image), image.repository, image.key)
    return registry.name_on_nodes(image.repository, image.key)


def local(name: str) -> str:
    """The same image by its name in our own storage, for looking into it without a cluster."""
    return make(_IMAGES[name]())


def make(image: Image) -> str:
    """Two builds of one image at the same time would both do all the work: the second waits, and finds it made."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with _alone():
        install_tools()
        remove_leftovers()
        return image.make()


@contextmanager
def _alone() -> Generator[None]:
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
