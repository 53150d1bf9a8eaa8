"""Bytes as people read them."""

from typing import Final

GIB: Final = 2**30


def gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
