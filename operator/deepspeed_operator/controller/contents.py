"""Comparing what we want with what is: the server adds defaults and others add labels."""

from typing import Any, cast

from deepspeed_operator.controller.resources import Json


def contains(live: Any, desired: Any) -> bool:
    """Whether `live` has everything that `desired` says; lists count as a whole, empty ones as absent."""
    if desired in ({}, []):
        return not live
    if isinstance(desired, dict):
        there = cast("Json", live)
        return isinstance(live, dict) and all(
            contains(there.get(key), value) for key, value in cast("Json", desired).items()
        )
    if isinstance(desired, list):
        wanted, present = cast("list[Any]", desired), cast("list[Any]", live)
        return (
            isinstance(live, list)
            and len(present) == len(wanted)
            and all(contains(one, want) for one, want in zip(present, wanted, strict=True))
        )
    return live == desired


def merged(live: Json, desired: Json) -> Json:
    """Return `live` with everything that `desired` says; lists are taken whole."""
    result = dict(live)
    for key, value in desired.items():
        both_are_objects = isinstance(value, dict) and isinstance(live.get(key), dict)
        result[key] = merged(live[key], cast("Json", value)) if both_are_objects else value
    return result
