"""Content keys: the same inputs give the same key, and a key names what was made from them."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from dev.images.settings import ROOT


def key(*parts: object, files: Iterable[Path] = ()) -> str:
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    for path in sorted(_expanded(files)):
        digest.update(f"\0{path.relative_to(ROOT)}\0{path.stat().st_mode & 0o100}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _expanded(files: Iterable[Path]) -> Iterator[Path]:
    for path in files:
        if path.is_dir():
            yield from (found for found in path.rglob("*") if found.is_file() and "__pycache__" not in found.parts)
        else:
            yield path
