"""What rank 0's agent tells of ranks that make no steps any more, and of those that make all others wait."""

from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.restarts import Count


class ToldHang(ApiModel):
    """Who is behind, and where; without rank, pod and node where that is not certain."""

    words: str = Field(max_length=1000)
    learned: bool  # nobody has given the limit
    rank: Count | None = None
    pod: str | None = Field(default=None, max_length=253)
    node: str | None = Field(default=None, max_length=253)


class ToldStraggler(ApiModel):
    """Ranks of a pod that compute more slowly than the others."""

    words: str = Field(max_length=300)
    pod: str = Field(max_length=253)
    node: str | None = Field(default=None, max_length=253)


_STRAGGLERS: Final = TypeAdapter(Annotated[tuple[ToldStraggler, ...], Field(max_length=4)])


def told_stragglers_of(said: object) -> tuple[ToldStraggler, ...]:
    """Return what an agent tells of slow ranks; none if it tells of none, or nothing that status could hold."""
    try:
        return _STRAGGLERS.validate_python(said)
    except ValidationError:
        return ()
