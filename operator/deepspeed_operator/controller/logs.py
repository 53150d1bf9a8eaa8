"""Log lines: one JSON object each for machines, or plain text for people."""

import json
import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType

from deepspeed_operator.controller.settings import LogFormat

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class PlainFormatter(logging.Formatter):
    """The traceback tells where an exception comes from, and of words only ours: others quote values of users."""

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 -- the library's name
        error, parts = ei[1], list[str]()
        while error is not None:
            frames = "".join(traceback.format_tb(error.__traceback__))
            parts.append(f"{frames}{type(error).__qualname__}{words_of(error)}")
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n\n".join(reversed(parts))


def words_of(error: BaseException) -> str:
    """Return what an exception of ours, the API server's refusals included, says; nothing of any other."""
    return f": {error}" if type(error).__module__.startswith("deepspeed_operator.") else ""


class JsonFormatter(PlainFormatter):
    """Time, level, logger, message and, where there is one, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(log_format: LogFormat, level: str) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler()
    plain = PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else plain)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("kopf", "kubernetes", "aiohttp.access", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
