"""Lists of the API server: of each object is kept what is asked for before the next is decoded.

In the process an object takes up to 25 times its bytes, and a page has many, each of which may have 1.5 MB.
"""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from deepspeed_operator.api.names import PLURAL
from deepspeed_operator.controller.resources import Json

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


def decode_list(content: bytes, project: Callable[[Json], Any]) -> Json:
    """Decode a list, keeping of each item what `project` returns; ValueError for what is no JSON object."""
    text = content.decode("utf-8", "replace")
    found: Json = {}
    at = _skip(text, _expect(text, _skip(text, 0), "{"))
    while text[at : at + 1] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        if key == "items" and text[at : at + 1] == "[":
            found[key], at = _items(text, at, project)
        else:
            found[key], at = _DECODER.raw_decode(text, at)
        at = _next(text, at, "}")
    if found.get("items", ()) is None:
        found["items"] = []  # how a list of partial metadata says that it is empty
    return found


def _items(text: str, at: int, project: Callable[[Json], Any]) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        item, at = _DECODER.raw_decode(text, at)
        items.append(project(item))
        at = _next(text, at, "]")
    return items, at + 1


def _next(text: str, at: int, end: str) -> int:
    at = _skip(text, at)
    return at if text[at : at + 1] == end else _skip(text, _expect(text, at, ","))


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise json.JSONDecodeError(f"expecting {character}", text, at)
    return at + 1


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def slim(item: Json) -> Json:
    """Return an object with nothing but its identity: managed fields and annotations are users' data, too."""
    metadata: Json = item["metadata"]
    kept = ("namespace", "name", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
    return {"metadata": {field: metadata[field] for field in kept if field in metadata}}


class SlimResponse(ClientResponse):
    """An answer to kopf, of whose lists nothing but the objects' identities is kept."""

    async def json(self, **_: Any) -> Any:
        """Decode the body, whatever type it says it has."""
        return decode_list(await self.read(), slim)


async def ask_for_metadata(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Have kopf told of jobs by their metadata alone: it would parse them whole, many at a time."""
    if request.url.path.endswith(f"/{PLURAL}"):
        request.headers["Accept"] = METADATA if "watch" in request.url.query else METADATA_LIST
    return await handler(request)
