"""What a key that DeepSpeed does not know was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from deepspeed_operator.dsconfig.notation import parts
from deepspeed_operator.dsconfig.schema import TOP, Schema, known_in
from deepspeed_operator.dsconfig.versions import ranges

_MEANT: Final = {"max_grad_norm": "gradient_clipping", "clip_grad": "gradient_clipping"}  # elsewhere's names
_LONGEST: Final = 80  # difflib's time grows with the square
_MOST_SEARCHES: Final = 20  # who has more unknown names has another problem, and a search takes half a millisecond


class NearNames:
    """Looks for the names that the unknown ones of one object were meant to be, so many times and no more."""

    def __init__(self, searches: int = _MOST_SEARCHES) -> None:
        self._left = searches

    def search(self) -> bool:
        """Whether there may be one more search, which counts."""
        self._left -= 1
        return self._left >= 0

    def nearest(self, name: str, names: Iterable[str], cutoff: float = 0.75) -> str | None:
        """Return the name that is near enough, if any is and may still be looked for."""
        return nearest(name, names, cutoff) if self.search() else None


def misplaced_or_nearest(schema: Schema, section: str, key: str, near: NearNames) -> tuple[str, str]:
    """Return a half-sentence about an unknown key of a section or model, and what to do about it."""
    if not near.search():
        return "", ""
    known = known_in(section)
    if section == TOP and key in _MEANT:
        return f"; it is {_MEANT[key]} here", f"Write {_MEANT[key]}."
    versions = known.get(key, frozenset[str]()) - {schema.version}
    if versions:
        return f"; DeepSpeed {ranges(set(versions))} knows it", "Remove it, or use a version that knows it."
    home = _home(schema, section, key)
    if home:
        return f"; it belongs in {home}", f"Move it into {home}."
    close = nearest(key, [name for name, having in known.items() if schema.version in having])
    return (f"; the nearest that exists is {close}", f"Write {close}, or remove it.") if close else ("", "")


def nearest_choice(described: Any, value: object, near: NearNames) -> object:
    """Return the value of an enum that is nearest to another; None where the type is no enum."""
    kind, choices = parts(described)
    if kind != "enum":
        return None
    if isinstance(value, str):
        return near.nearest(value, [choice for choice in choices if isinstance(choice, str)])
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    number: float = value  # an int stays one: it may be larger than any float
    numbers: list[int] = [choice for choice in choices if isinstance(choice, int)]
    return min(numbers, key=lambda choice: abs(choice - number), default=None)


def nearest(key: str, names: Iterable[str], cutoff: float = 0.75) -> str | None:
    """Return the name that is near enough; of an object with any number of names, NearNames bounds the searches."""
    return _close(key[:_LONGEST], tuple(sorted(names)), cutoff)


@lru_cache(maxsize=4096)
def _close(key: str, names: tuple[str, ...], cutoff: float) -> str | None:
    same = [name for name in names if name.lower() == key.lower()]
    close = same or get_close_matches(key, names, n=1, cutoff=cutoff)
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
