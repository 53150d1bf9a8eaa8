"""How far the clocks of the pods' nodes differ, as the attempt's hub has measured it."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

_MOST: Final = 64
_FURTHEST: Final = 10**9  # seconds: what is added to a time must be one
_CLOCKS: Final = TypeAdapter[dict[int, float]](
    Annotated[
        dict[int, Annotated[float, Field(ge=-_FURTHEST, le=_FURTHEST, allow_inf_nan=False)]], Field(max_length=_MOST)
    ]
)


def clocks_of(said: object) -> Mapping[int, float]:
    """Return how many seconds ahead of most each clock that differs is, by the pod's index; what is no number, not."""
    try:
        return _CLOCKS.validate_python(said)
    except ValidationError:
        return {}


ToldClocks = Annotated[Mapping[int, float], BeforeValidator(clocks_of)]
