"""Log lines of a command and of the processes that it starts, as text or as JSON.

In: a form and a level, in other processes the environment variable ``KOHORT_LOG``. Out: lines of
the logger ``kohort`` on standard error. Must not know: the events that are logged.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Final

from kohort.model.errors import ConfigError

VARIABLE: Final = "KOHORT_LOG"
"""The environment variable with the settings of log lines, for processes that a command starts."""

TEXT: Final = "text"
JSON: Final = "json"
_TEXT_FORM: Final = "%(asctime)s %(levelname)s %(message)s (%(name)s)"


def utc_text(at: float) -> str:
    """A time in seconds since 1970, as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonLines(logging.Formatter):
    """Makes one JSON object of each record: time (UTC), level, logger, pid, fields, message.

    Args:
        fields: the same in all lines of the process, such as the name of the application.
    """

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__()
        self.fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """The object in one line; a stack trace is in ``error``."""
        line: dict[str, object] = {
            "time": utc_text(record.created),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            **self.fields,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_log_lines(form: str, level: str, **fields: str) -> None:
    """Log in a form from a level on, also in processes that start after this call.

    A second call replaces the first one.

    Args:
        form: ``text`` or ``json``.
        level: the lowest level that is logged, such as ``INFO``.
        fields: further values for each line of JSON.

    Raises:
        ConfigError: the level is unknown.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"--log-level is {level!r}, expected DEBUG, INFO, WARNING or ERROR")
    os.environ[VARIABLE] = json.dumps({"form": form, "level": level, "fields": fields})
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(fields) if form == JSON else logging.Formatter(_TEXT_FORM))
    logger = logging.getLogger("kohort")
    logger.handlers = [handler]
    logger.setLevel(number)
    logger.propagate = False


def set_up_from_environment(**more: str) -> None:
    """Log as the command that started this process, if that has called ``set_up_log_lines``.

    Args:
        more: further fields, also for processes that this one starts from now on.
    """
    noted = os.environ.get(VARIABLE)
    if noted is not None:
        given = json.loads(noted)
        set_up_log_lines(given["form"], given["level"], **{**given["fields"], **more})
