"""One cluster and one operator for all tests here; every test has its own namespace."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev import preparation
from dev.cluster.cluster import Cluster
from dev.images import images
from tests.e2e.crowd import crowd
from tests.e2e.installation import Operator
from tests.e2e.kube import CORE, Namespace
from tests.shared import shared

__all__ = ["crowd"]


@pytest.fixture(scope="session")
def image() -> Callable[[str], str]:
    """The reference under which the nodes find an image of the project."""
    return images.ensure


@pytest.fixture(scope="session")
def plain(image: Callable[[str], str]) -> str:
    """An image with Python and nothing else."""
    return image("plain-python")


@pytest.fixture(scope="session")
def helm() -> Path:
    preparation.cluster_programs()
    return Cluster().bin / "helm"


@pytest.fixture(scope="package")
def operator(cluster: Cluster) -> Iterator[Operator]:
    """The operator, installed by the chart with the image of this tree; other tests bring their own."""
    installed = Operator(cluster)

    def install() -> None:
        installed.install()
        installed.settled()

    with shared("operator", install, lambda _: installed.uninstall()):
        yield installed


@pytest.fixture(scope="package")
def make_namespace(cluster: Cluster, operator: Operator) -> Iterator[Callable[..., Namespace]]:
    """Makes namespaces that stay to the end, so that a last look sees every state a test has left."""
    made: list[Namespace] = []

    def make(purpose: str, **labels: str) -> Namespace:
        namespace = Namespace.create(cluster, f"{purpose}-{secrets.token_hex(3)}", labels)
        made.append(namespace)
        return namespace

    yield make
    for namespace in made:
        cluster.api.request("DELETE", f"{CORE}/namespaces/{namespace.name}")
