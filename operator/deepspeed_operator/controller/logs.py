"""Log lines: one JSON object each for machines, or plain text for people."""

import json
import logging
from datetime import UTC, datetime

from deepspeed_operator.controller.settings import LogFormat


class JsonFormatter(logging.Formatter):
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
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else plain)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("kopf", "kubernetes", "aiohttp.access", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
