"""One JSON object a line on standard error: what happened, where, how grave, with the traceback if there is one."""

from __future__ import annotations

import logging

import msgspec


class JsonFormatter(logging.Formatter):
    """Writes a record as JSON, whatever its message holds."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up(level: str) -> None:
    """Send everything from this level up to standard error; raise ValueError for a level that does not exist."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
