"""The termination message: one JSON object, then the end of a rank's log. Kubernetes shows it to the operator."""

from __future__ import annotations

import json

from dso_launch import TERMINATION_LOG, Cause
from dso_output import KEPT
from dso_words import legible

MESSAGE_BYTES = 4000
OBJECT_BYTES = 2000
LINE_BYTES = 200


def message(cause: Cause, tail: bytes) -> bytes:
    head = _dump(cause)
    text = cause.get("signature", "")
    while len(head) > OBJECT_BYTES and text:
        text = text[: len(text) * 3 // 4]
        head = _dump({**cause, "signature": text})
    room = MESSAGE_BYTES - len(head) - 1
    log = legible(tail).encode()
    kept = log[-room:] if room > 0 else b""
    first, newline, rest = kept.partition(b"\n")
    if newline and len(first) < LINE_BYTES and (len(log) > room or len(tail) == KEPT):
        kept = rest  # it began within a line
    # Cut at a character: the API server refuses what is not UTF-8, and a replacement character may be longer.
    kept = kept.decode("utf-8", "ignore").encode()
    return head + (b"\n" + kept if kept else b"")


def write_message(data: bytes) -> None:
    try:
        with open(TERMINATION_LOG, "wb") as file:
            file.write(data)
    except OSError as error:
        print(f"[deepspeed-operator] no termination message: {error}", flush=True)


def _dump(cause: Cause) -> bytes:
    return json.dumps(dict(cause), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
