"""Takes the frame off a line of a log: its time, the container in front, the logger behind.

In: lines of text. Out: `Framed` values. Formats: Kafka's default pattern with and without brackets,
Spring's, logback's, Python's ``logging``, librdkafka's, JSON (logstash, Docker, KafkaJS), pairs
(logfmt), CRI and compose prefixes. Must not know: wordings.
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

_DATE_TIME: Final = re.compile(
    r"((?:19|20)\d\d)[-/](0[1-9]|1[0-2])[-/](0[1-9]|[12]\d|3[01])[ T](\d\d):(\d\d):(\d\d)"
    r"(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_EPOCH: Final = re.compile(r"(?<![\d.])(\d{10})\.(\d{3,6})(?!\d)")
_CLOCK: Final = re.compile(
    r"(?<![\d:])(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?: ([AP]M))?(?![:\d])"
)
_YEAR_2001: Final = 1e9
_YEAR_2286: Final = 1e10
_FRAME_LENGTH: Final = 160
"""A time stands in the first characters of a line."""
_COMPOSE: Final = re.compile(r"([A-Za-z0-9][\w.@-]*) +\| (?=\S)")
_POD: Final = re.compile(r"\[?pod/([^\s\]]+)\]? ")
_LOGGER: Final = re.compile(
    r"\((?:[a-z]\w*\.)+[\w$]+(?::\d+)?\)(?:\s*\[[^\]]*\])?$|\((?:kafka|org\.apache)\.[\w.$]*$"
)
"""The logger and the thread behind a message; a line that was cut has a part of the logger."""
_MESSAGES: Final = ("message", "msg", "log", "MESSAGE")
_LOGFMT: Final = re.compile(r'([\w.@]+)=("(?:[^"\\]|\\.)*"|\S+)')
"""The pairs of a line as Go's loggers write it: ``level=info msg="joining group" group=g``."""
_TIMES: Final = ("@timestamp", "timestamp", "time", "ts")


@dataclass(frozen=True, slots=True)
class Framed:
    """A line without its frame."""

    text: str
    at: float | None = None
    dated: bool = False
    source: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    """The fields of a JSON line."""


def framed(line: str) -> Framed:
    """Take a line apart. A line without a known frame is its text alone."""
    stripped = line.strip()
    source = ""
    if (compose := _COMPOSE.match(stripped)) or (compose := _POD.match(stripped)):
        source, stripped = compose[1], stripped[compose.end() :]
    fields: dict[str, Any] = {}
    at, dated = time_in(stripped[:_FRAME_LENGTH])
    if stripped.startswith("{") and (found := _json(stripped)):
        fields = found
        text = next((str(found[name]) for name in _MESSAGES if found.get(name)), "")
        inner = framed(text) if text else Framed("")
        outer = next((found[name] for name in _TIMES if found.get(name)), "")
        at, dated = (inner.at, inner.dated) if inner.dated else _told_time(outer)
        return Framed(inner.text, at, dated, source or inner.source, fields)
    if 'msg="' in stripped and (fields := _logfmt(stripped)).get("msg"):
        return Framed(fields["msg"], at, dated, source, fields)
    return Framed(_without_logger(stripped), at, dated, source, fields)


def time_in(text: str) -> tuple[float | None, bool]:
    """The last time with a date in a text, else one without a date; and whether it has a date."""
    dates = list(_DATE_TIME.finditer(text))
    if dates:
        return _instant(dates[-1]), True
    epoch = _EPOCH.search(text)
    if epoch is not None:
        return int(epoch[1]) + int(epoch[2].ljust(6, "0")) / 1e6, True
    clock = _CLOCK.search(text)
    if clock is None:
        return None, False
    hour = int(clock[1]) % 12 + 12 * (clock[5] == "PM") if clock[5] else int(clock[1])
    seconds = hour * 3_600 + int(clock[2]) * 60 + int(clock[3])
    return seconds + int((clock[4] or "0").ljust(6, "0")) / 1e6, False


def _told_time(told: object) -> tuple[float | None, bool]:
    """The time in a field of a JSON line: text, or seconds or milliseconds since 1970."""
    if isinstance(told, int | float) and not isinstance(told, bool):
        for unit in (1, 1_000):
            if _YEAR_2001 <= told / unit < _YEAR_2286:
                return told / unit, True
        return None, False
    return time_in(str(told))


def _instant(found: re.Match[str]) -> float:
    whole = _second(*found.groups()[:6])
    zone = found[8]
    if zone is not None and zone != "Z":
        digits = zone[1:].replace(":", "")
        offset = int(digits[:2]) * 3_600 + int(digits[2:]) * 60
        whole -= offset if zone[0] == "+" else -offset
    return whole + int((found[7] or "0").ljust(9, "0")) / 1e9


@lru_cache(maxsize=1_024)
def _second(*digits: str) -> int:
    """Seconds since 1970; most lines of a log share theirs with the line before."""
    year, month, day, hour, minute, second = map(int, digits)
    return timegm((year, month, day, hour, minute, second))


def _without_logger(text: str) -> str:
    begin = text.rfind("(")
    if begin >= 0 and _LOGGER.match(text, begin):
        return text[:begin].rstrip()
    return text


def _logfmt(text: str) -> dict[str, Any]:
    """The pairs of a line; a value in quotes is without them."""
    return {key: value.strip('"').replace('\\"', '"') for key, value in _LOGFMT.findall(text)}


def _json(text: str) -> dict[str, Any]:
    """The object at the beginning of a text; the rest of the text is ignored."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
