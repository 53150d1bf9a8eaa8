"""A real API server takes what the golden files say we render, and keeps it as we wrote it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from dev.cluster.cluster import Cluster
from tests.e2e.kube import CORE, SLICES, Json

FILES = sorted((Path(__file__).parents[1] / "golden").glob("*.yaml"))
RENDERED = "# Rendered from the above; `make generate` writes it again.\n"
COLLECTIONS = {
    "Service": f"{CORE}/namespaces/default/services",
    "ConfigMap": f"{CORE}/namespaces/default/configmaps",
    "Secret": f"{CORE}/namespaces/default/secrets",
    "Pod": f"{CORE}/namespaces/default/pods",
    "EndpointSlice": f"{SLICES}/namespaces/default/endpointslices",
}
# These are made by others: their absence says nothing about what we render.
ASSUMED = {"serviceAccountName", "priorityClassName"}


def differences(sent: Any, stored: Any, path: str = "") -> Iterator[str]:
    """Where the stored object lacks what was sent; what the server adds does not count.

    Quantities become strings, and an empty list nothing.
    """
    if isinstance(sent, dict) and isinstance(stored, dict):
        for key, value in cast(Json, sent).items():
            yield from differences(value, cast(Json, stored).get(key), f"{path}.{key}")
    elif isinstance(sent, list) and isinstance(stored, list):
        items = cast(list[Any], sent)
        for position, item in enumerate(items):
            yield from differences(item, cast(list[Any], stored)[position], f"{path}[{position}]")
    elif not (sent == [] and stored is None) and str(cast(object, sent)) != str(cast(object, stored)):
        yield f"{path}: {sent!r} became {stored!r}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rendered_objects_are_accepted_and_kept(cluster: Cluster, path: Path) -> None:
    sent: list[Json] = list(yaml.safe_load_all(path.read_text().partition(RENDERED)[2]))
    assert {document["kind"] for document in sent} == COLLECTIONS.keys()
    for manifest in sent:
        manifest["metadata"]["namespace"] = "default"
        for field in ASSUMED:
            manifest.get("spec", {}).pop(field, None)
        query = "?dryRun=All&fieldValidation=Strict"
        stored = cluster.api.request("POST", COLLECTIONS[manifest["kind"]] + query, manifest)
        assert list(differences(manifest, stored)) == []
