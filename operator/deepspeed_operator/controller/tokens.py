"""The tokens of attempts: derived from a key of the install, so that nothing random has to be remembered."""

import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import SECRETS, Json

_KEY: Final = "key"
_BYTES: Final = 32


class Tokens:
    """Derives a token of each attempt, once the key is known."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def of(self, uid: str, attempt: int) -> str:
        """Return what a caller must know to change the state of this attempt of the job with this uid."""
        assert self._key, "the key is read before any job"
        return hmac.digest(self._key, f"{uid}/{attempt}".encode(), "sha256").hex()

    async def load(self, client: Client, namespace: str, name: str) -> str | None:
        """Read the key from its Secret, which all replicas share; return why it cannot be read.

        The chart makes that Secret empty, and the first replica to come fills it: a chart that is rendered anew, with
        no look at the cluster, has nothing in it that would replace the key.
        """
        try:
            while not self._key:
                self._key = await _read_or_fill(client, namespace, name)
        except ApiError as error:
            hint = "; if it is gone, `helm upgrade` makes it again" if error.status == 403 else ""
            secret = f"Secret {namespace}/{name}, which holds the key of the attempts' tokens,"
            return f"{secret} cannot be used{hint}: {error}"
        except ValueError:
            return f"Secret {namespace}/{name} has no {_KEY} of {_BYTES} bytes: delete that key from it, for a new one"
        return None


async def _read_or_fill(client: Client, namespace: str, name: str) -> bytes:
    """Return the key, or nothing if it was written, by us or another replica: that is read, whoever it was."""
    try:
        live = await client.get(SECRETS, namespace, name)
    except ApiError as error:
        if not error.not_found:
            raise
        live = None
    held = object_at(live, "data")
    if kept := held.get(_KEY):
        key = b64decode(str(kept), validate=True)
        if len(key) < _BYTES:
            raise ValueError(_KEY)
        return key
    data = {_KEY: b64encode(secrets.token_bytes(_BYTES)).decode()}
    try:
        if live is None:
            manifest: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
            await client.create(SECRETS, namespace, manifest)
        else:
            await client.replace(SECRETS, namespace, {**live, "data": {**held, **data}})
    except ApiError as error:
        if not (error.already_exists or error.conflict):
            raise
    return b""
