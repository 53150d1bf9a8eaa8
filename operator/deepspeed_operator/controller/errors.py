"""What the API server answers when it does not do what was asked."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from deepspeed_operator.controller.resources import Json

# A tenant's webhook has words of its own.
_OF_RBAC: Final = re.compile(r' cannot [a-z]+ resource "')


class ApiError(Exception):
    """An answer other than success; status 0 if there was none."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        details: Json | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.details = details or {}

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """Whether somebody else's write came between: worth another try."""
        return self.status == 409 and self.reason == "Conflict"

    @property
    def expired(self) -> bool:
        """Whether a list or watch must start anew."""
        return self.status == 410

    @property
    def namespace_terminating(self) -> bool:
        causes = cast("list[Json]", self.details.get("causes", []))
        return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)

    @property
    def transient(self) -> bool:
        """Whether it is the server that is in trouble, or the way to it: the same request may succeed later."""
        return self.status in {0, 429} or self.status >= 500

    @property
    def lacks_right(self) -> bool:
        """Whether it is the operator that may not do this, whatever the object says."""
        return self.status == 403 and _OF_RBAC.search(self.message) is not None

    @property
    def quota(self) -> bool:
        """Whether a quota is used up for now: not the object's fault."""
        return self.status == 403 and "exceeded quota" in self.message

    @property
    def refusal(self) -> bool:
        """Whether the server judged the object, and would judge it the same at once.

        A webhook that cannot be reached is a 500, which the client has retried before anybody sees it here.
        """
        return self.status in {400, 403, 404, 405, 409, 413, 422, 500}


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Make an error of a response; a proxy in between may send something that is no Status object."""
    try:
        parsed: Any = json.loads(body)
    except ValueError:
        parsed = None
    answer = cast("Json", parsed) if isinstance(parsed, dict) else {}
    retry_after = headers.get("Retry-After", "")
    return ApiError(
        status,
        answer.get("reason") or "Unknown",
        answer.get("message") or body[:500].decode(errors="replace"),
        float(retry_after) if retry_after.isdecimal() else None,
        answer.get("details"),
    )
