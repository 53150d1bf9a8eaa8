"""What a key that DeepSpeed does not know was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from deepspeed_operator.dsconfig.notation import parts
from deepspeed_operator.dsconfig.schema import TOP, Schema, known_in
from deepspeed_operator.dsconfig.versions import ranges

MOST_HINTS = 20  # who has more unknown keys has another problem, and looking costs half a millisecond each
_MEANT: Final = {"max_grad_norm": "gradient_clipping", "clip_grad": "gradient_clipping"}  # elsewhere's names
_LONGEST = 80  # difflib's time grows with the square


def misplaced_or_nearest(schema: Schema, section: str, key: str) -> tuple[str, str]:
    """Return a half-sentence about an unknown key of a section or model, and what to do about it."""
    known = known_in(section)
    if section == TOP and key in _MEANT:
        return f"; it is {_MEANT[key]} here", f"Write {_MEANT[key]}."
    versions = known.get(key, frozenset[str]()) - {schema.version}
    if versions:
        return f"; DeepSpeed {ranges(set(versions))} knows it", "Remove it, or use a version that knows it."
    home = _home(schema, section, key)
    if home:
        return f"; it belongs in {home}", f"Move it into {home}."
    close = _close(key[:_LONGEST], tuple(name for name, having in known.items() if schema.version in having))
    return (f"; the nearest that exists is {close}", f"Write {close}, or remove it.") if close else ("", "")


def nearest_choice(described: Any, value: object) -> object:
    """Return the value of an enum that is nearest to another; None where the type is no enum."""
    kind, choices = parts(described)
    if kind != "enum":
        return None
    if isinstance(value, str):
        return nearest(value, [choice for choice in choices if isinstance(choice, str)])
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    number: float = value  # an int stays one: it may be larger than any float
    numbers: list[int] = [choice for choice in choices if isinstance(choice, int)]
    return min(numbers, key=lambda choice: abs(choice - number), default=None)


def nearest(key: str, names: Iterable[str]) -> str | None:
    return _close(key[:_LONGEST], tuple(sorted(names)))


@lru_cache(maxsize=4096)
def _close(key: str, names: tuple[str, ...]) -> str | None:
    same = [name for name in names if name.lower() == key.lower()]
    close = same or get_close_matches(key, names, n=1, cutoff=0.75)
    return close[0] if close else None


def _home(schema: Schema, section: str, key: str) -> str | None:
    """The one section, other than this, that has a key of this name."""
    if key in {"enabled", "type", "params"}:
        return None
    homes = [
        name
        for name, entry in schema.sections[TOP].keys.items()
        if entry.model is not None and entry.model != section and _has(schema, entry.model, key)
    ]
    plain = ((path, found) for path, found in schema.sections.items() if path not in {TOP, section} and "." not in path)
    homes += [path for path, found in plain if key in found.keys]
    if section != TOP and key in schema.sections[TOP].keys:
        homes.append("the top level")
    return homes[0] if len(homes) == 1 else None


def _has(schema: Schema, model: str, key: str) -> bool:
    fields = schema.models[model]["fields"]
    return key in fields or any(info.get("alias") == key for info in fields.values())
