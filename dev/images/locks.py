"""Builds beside each other: of different images yes, of the same image never (the second waits, and finds it made)."""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager

from dev.images.settings import LOCKS


@contextmanager
def building(repository: str) -> Generator[None]:
    with _held(repository, fcntl.LOCK_EX), _held(_ANY, fcntl.LOCK_SH):
        yield


@contextmanager
def nothing_builds() -> Generator[bool]:
    """Whether that is so; if it is, it stays so inside."""
    try:
        with _held(_ANY, fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield True
    except BlockingIOError:
        yield False


_ANY = "any build"


@contextmanager
def _held(name: str, how: int) -> Generator[None]:
    LOCKS.mkdir(parents=True, exist_ok=True)
    with (LOCKS / name).open("w") as lock:
        fcntl.flock(lock, how)
        yield
