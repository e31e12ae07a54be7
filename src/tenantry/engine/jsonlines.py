"""The log of processes that run until they are stopped: one JSON object for each record."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from typing_extensions import override

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as one line: time (UTC), level, logger, message, and the fields given as `extra`."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def soften_closed(record: logging.LogRecord) -> bool:
    """Make a warning of what uvloop calls a fatal error: a connection closed in the moment of a write. A log filter.

    The client of that connection reports it, too, and connects again. Source: uvloop's issues 506 and 685.
    """
    error = record.exc_info[1] if record.exc_info else None
    if record.name == "asyncio" and isinstance(error, RuntimeError) and "the handler is closed" in str(error):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = f"a connection ended during a write: {error}", None
        record.exc_info = None
    return True


def log_to(handler: logging.Handler, level: str = "INFO") -> None:
    """Send all records of this process from a level on to a handler, as JSON lines."""
    handler.addFilter(soften_closed)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler])
