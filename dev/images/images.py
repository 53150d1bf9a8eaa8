"""Images by name, made when they are missing: `images.ensure("operator")` is what the cluster's nodes pull."""

from collections.abc import Callable

from dev.images import bases, locks, pruning, recipes, registry
from dev.images.buildah import remove_leftovers
from dev.images.commands import install_tools
from dev.images.recipes import Image

_IMAGES: dict[str, Callable[[], Image]] = {
    "operator": recipes.operator,
    "worker": recipes.worker,
    "worker-huggingface": recipes.hugging_face,
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
        pruning.prune(image.repository)
    return registry.name_on_nodes(image.repository, image.key)


def local(name: str) -> str:
    """The same image by its name in our own storage, for looking into it without a cluster."""
    return make(_IMAGES[name]())


def make(image: Image) -> str:
    install_tools()
    with locks.nothing_builds() as idle:
        if idle:
            remove_leftovers()
    return image.make()
