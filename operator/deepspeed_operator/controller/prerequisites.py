"""What must be there before the operator can work: a server that is new enough, and our kind."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

from deepspeed_operator.api.names import API_VERSION, PLURAL
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import Json

OLDEST = (1, 31)
NEWEST_TRIED = (1, 36)
CHECK_SECONDS = 5.0
REMIND_CHECKS = 12

_log = logging.getLogger(__name__)


async def wait_for_prerequisites(
    client: Client, report: Callable[[str | None], None], more: Callable[[], Awaitable[str | None]]
) -> None:
    """Return when the operator can work; meanwhile report, and now and then log, why it cannot.

    `more` is asked last, and returns a problem likewise.
    """
    checks = 0
    while True:
        problem = await _problem(client) or await more()
        report(problem)
        if problem is None:
            return
        if checks % REMIND_CHECKS == 0:
            _log.error("Not ready: %s", problem)
        checks += 1
        await asyncio.sleep(CHECK_SECONDS)


async def _problem(client: Client) -> str | None:
    try:
        server = (await client.get_path("/version"))["gitVersion"]
        version = server_version(server)
        if version < OLDEST:
            return f"the API server is {server}, Kubernetes {_dotted(OLDEST)} or newer is needed"
        if version > NEWEST_TRIED:
            _log.warning("The API server is %s; the newest that was tried is %s", server, _dotted(NEWEST_TRIED))
        kinds: list[Json] = (await client.get_path(f"/apis/{API_VERSION}"))["resources"]
    except ApiError as error:
        if not error.not_found:
            return f"the API server does not answer as it should: {error}"
        kinds = []
    if any(kind["name"] == PLURAL for kind in kinds):
        return None
    return f"the API server does not serve {PLURAL} of {API_VERSION}: apply the CRD, crds/deepspeedjobs.yaml"


def server_version(text: str) -> tuple[int, int]:
    """Parse a gitVersion such as v1.36.3 or v1.31.0-gke.1."""
    found = re.match(r"v?(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"not a Kubernetes version: {text}")
    return int(found[1]), int(found[2])


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
