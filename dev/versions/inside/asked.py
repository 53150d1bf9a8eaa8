"""A dictionary that notes which of its keys are asked for: how the sections without a pydantic model are found."""

from collections.abc import Iterator
from typing import Any

Path = tuple[str, ...]
Asked = dict[Path, dict[str, Any]]


class _Keys:
    def __init__(self, owner: "Asking") -> None:
        self._owner = owner

    def __contains__(self, key: str) -> bool:
        return key in self._owner

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner)

    def __len__(self) -> int:
        return len(self._owner)


class Asking(dict[str, Any]):
    """Behaves like its values; a copy of it goes on noting in the same place."""

    def __init__(self, values: Any, path: Path, asked: Asked) -> None:
        wrapped: dict[str, Any] = {
            key: Asking(value, (*path, key), asked) if type(value) is dict else value for key, value in values.items()
        }
        super().__init__(wrapped)
        self._path = path
        self._asked = asked

    def _note(self, key: Any, default: Any = None) -> None:
        if isinstance(key, str):
            noted = self._asked.setdefault(self._path, {})
            noted[key] = default if noted.get(key) is None else noted[key]

    def get(self, key: Any, default: Any = None) -> Any:
        self._note(key, default)
        return super().get(key, default)

    def __getitem__(self, key: Any) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self._note(key)
        return super().__contains__(key)

    def pop(self, key: Any, *default: Any) -> Any:
        self._note(key)
        return super().pop(key, *default)

    def keys(self) -> Any:
        return _Keys(self)
