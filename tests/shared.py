"""What several processes of tests use together: the first one makes it, and the last one that leaves it ends it."""

import contextlib
import fcntl
import json
from collections.abc import Callable, Generator
from typing import Any

from dev.cluster.settings import CACHE

_LOCKS = CACHE / "tests"


@contextlib.contextmanager
def shared(name: str, begin: Callable[[], Any], end: Callable[[Any], object]) -> Generator[None]:
    """Have it for a while. `end` gets what `begin` has returned, as JSON has it, perhaps in another process."""
    _LOCKS.mkdir(parents=True, exist_ok=True)
    users, begun = _LOCKS / name, _LOCKS / f"{name}.json"
    with users.open("w") as use:
        with _one_at_a_time(name):
            if _has_no_other_user(use):
                begun.write_text(json.dumps(begin()))
            fcntl.flock(use, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with _one_at_a_time(name):
                if _has_no_other_user(use):
                    end(json.loads(begun.read_text()))
                fcntl.flock(use, fcntl.LOCK_UN)


def _has_no_other_user(use: Any) -> bool:
    try:
        fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _one_at_a_time(name: str) -> Generator[None]:
    with (_LOCKS / f"{name}.changes").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
