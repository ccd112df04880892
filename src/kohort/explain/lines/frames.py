"""Takes the frame off a line of a log: its time, the container before it, the logger after it.

In: lines of text. Out: `Framed` values. Formats: Kafka's default pattern with and without brackets,
Spring's, logback's, Spark's, Python's ``logging``, librdkafka's, JSON (logstash, Docker, KafkaJS),
a text with JSON after it (zap, winston), pairs (logfmt), CRI and compose prefixes. Must not know:
wordings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import unescape
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kohort.explain.lines.times import kafka_minute, time_in, told_time

LINES_OF_A_RECORD: Final = 5
"""A line without a time has the time of the line before, up to this many lines before."""
_LEVELS: Final = ("INFO ", "WARN ", "ERROR ", "DEBUG ", "TRACE ", "FATAL ")
_SECONDS: Final = {f"{number:02},": number for number in range(100)}
_MILLIS: Final = {f"{number:03}": number / 1_000 for number in range(1_000)}
_KAFKA_ENDS: Final = (" (kafka.", " (org.apache.")
_FRAME_LENGTH: Final = 160
"""A time stands in the first characters of a line."""
_COMPOSE: Final = re.compile(r"([A-Za-z0-9][\w.@-]*) +\| (?=\S)")
_POD: Final = re.compile(r"\[?pod/([^\s\]]+)\]? ")
_LOGGER: Final = re.compile(
    r"\((?:[a-z]\w*\.)+[\w$]+(?::\d+)?\)(?:\s*\[[^\]]*\]?|\s*\{[^{}]*\}| - \w+=.*)?[\"'`*]*,?$|"
    r"\((?:kafka|org\.apache)\.[\w.$]*$"
)
"""The logger after a message, with the thread or with pairs such as ``app=connect`` after it; a
line that was cut has a part of the logger."""
_WITHIN: Final = re.compile(
    r" \((?:kafka|org\.apache\.kafka)\.(?!common\.errors\.)(?:[a-z]\w*\.)+[A-Z][\w$]*(?::\d+)?\)"
)
"""The logger of a line that goes on with columns of an export."""
_AROUND: Final = re.compile(r"(?:\s*(?:<br ?/?>|[|│┃]))+$")
"""The end of a line of a web page, of a row of a table in Markdown, or of a frame in a terminal."""
_COLOURS: Final = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_MESSAGES: Final = (
    *("message", "msg", "log", "MESSAGE", "textPayload", "@message", "short_message", "line"),
    *("body", "content", "text", "event", "_raw", "Message", "RenderedMessage", "@m", "@mt"),
    *("LogMessage", "logMessage", "LogEntry", "Log", "full_message"),
    *("raw", "formattedMessage", "Body"),
)
_INNER: Final = (
    "jsonPayload",
    "fields",
    "_source",
    "data",
    "event",
    "result",
    "message",
    "log",
    "attributes",
    "content",
    "body",
)
"""Objects in a JSON line that may hold the message."""
_OWN_MESSAGES: Final = _MESSAGES[:8]
"""An object after a text holds the whole message only under one of these names."""
_INNER_MESSAGES: Final = (*_MESSAGES, "reason", "stringValue")
"""A service of rebalance logs keeps a coordinator's line as the reason in an object."""
_LOGFMT: Final = re.compile(r'([\w.@]+)=("(?:[^"\\]|\\.)*"|\S+)')
"""The pairs of a line as Go's loggers write it: ``level=info msg="joining group" group=g``."""
_JSON_MARKS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],]')
"""The strings, the brackets and the commas of JSON."""
_LONGEST_CUT: Final = 20_000
_TIMES: Final = (
    *("@timestamp", "timestamp", "time", "ts", "timeMillis", "asctime", "datetime", "date"),
    *("eventTime", "@t", "timestamp_ms"),
    *("Timestamp", "TimeGenerated", "TimeGenerated [UTC]", "_time", "timeUnixNano"),
    "__REALTIME_TIMESTAMP",
)


_NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
_new: Final = tuple.__new__


class Framed(NamedTuple):
    """A line without its frame."""

    text: str
    at: float | None = None
    dated: bool = False
    source: str = ""
    fields: Mapping[str, Any] = _NO_FIELDS
    """The fields of a JSON line, or of a JSON object after a text."""


def framed(line: str) -> Framed:
    """Take a line apart. A line without a known frame is its text alone."""
    if line.endswith(")") and (known := kafka_frame(line)) is not None:
        return known
    stripped = line.strip()
    if "\x1b" in stripped:
        stripped = _COLOURS.sub("", stripped)
    if "&quot;" in stripped or "&lt;" in stripped or "&#" in stripped:
        stripped = unescape(stripped)
    if stripped.endswith((">", "|", "│", "┃")):
        stripped = _AROUND.sub("", stripped)
    source = ""
    if (compose := _COMPOSE.match(stripped)) or (compose := _POD.match(stripped)):
        source, stripped = compose[1], stripped[compose.end() :]
    at, dated = time_in(stripped[:_FRAME_LENGTH])
    if stripped.startswith("{") and (found := _json(stripped) or _cut_json(stripped)):
        return _from_json(found, source)
    if (begin := stripped.find('{"')) > 0 and (found := _json(stripped[begin:])):
        return _before_json(stripped[:begin].rstrip(), found, source)
    if 'msg="' in stripped and (fields := _logfmt(stripped)).get("msg"):
        return Framed(fields["msg"], at, dated, source, fields)
    return Framed(_without_logger(stripped), at, dated, source)


def kafka_frame(line: str) -> Framed | None:
    """A line in the default pattern of Kafka's loggers taken apart; None for another line.

    Args:
        line: ends with a bracket.
    """
    if line[24:26] == "] " and line.startswith(_LEVELS, 26):
        minute, begin = kafka_minute(line[:18]), line.rfind(" (")
        second, millis = _SECONDS.get(line[18:21]), _MILLIS.get(line[21:24])
        if minute is None or second is None or millis is None:
            return None
        if line.startswith(_KAFKA_ENDS, begin):
            # This takes half the time of a call with the names of the fields.
            return _new(Framed, (line[26:begin], minute + second + millis, True, "", _NO_FIELDS))
    return None


def _before_json(text: str, found: Mapping[str, Any], source: str) -> Framed:
    """A text with an object after it, which has values of the text, or the whole message."""
    at, dated = time_in(text[:_FRAME_LENGTH])
    if _first(found, _OWN_MESSAGES):
        whole = _from_json(found, source)
        return whole if whole.at is not None else whole._replace(at=at, dated=dated)
    if not dated:
        at, dated = time_of(found)
    return Framed(_without_logger(text), at, dated, source, found)


def _from_json(found: Mapping[str, Any], source: str) -> Framed:
    text = str(_first(found, _MESSAGES, _INNER_MESSAGES))
    inner = framed(text) if text else Framed("")
    at, dated = (inner.at, inner.dated) if inner.dated else time_of(found)
    if at is None and isinstance(instant := found.get("instant"), dict):
        # log4j's JsonLayout
        at, dated = told_time(instant.get("epochSecond"))
        nanos = instant.get("nanoOfSecond")
        at = at + nanos / 1e9 if at is not None and isinstance(nanos, int) else at
    fields = {**found, **inner.fields} if inner.fields else found
    return Framed(inner.text, at, dated, source or inner.source, fields)


def time_of(found: Mapping[str, Any]) -> tuple[float | None, bool]:
    """The time in an object, and whether it has a date."""
    return told_time(_first(found, _TIMES))


def _first(
    found: Mapping[str, Any], names: tuple[str, ...], deeper: tuple[str, ...] | None = None
) -> object:
    """The first value that is no object, here or in an inner object; empty if there is none.

    Args:
        found: the object.
        names: the names of the values.
        deeper: the names of the values in an inner object, if they differ from ``names``.
    """
    for name in names:
        value = found.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if value and not isinstance(value, dict | list):
            return value
    for name in _INNER:
        inner = found.get(name)
        if isinstance(inner, dict):
            for key in deeper or names:
                value = inner.get(key)
                value = value[0] if isinstance(value, list) and value else value
                if value and not isinstance(value, dict | list):
                    return value
    return ""


def same_source_time(frame: Framed, lines: Iterable[str]) -> Framed:
    """The frame of a line without a time, with the time of a line before in the same record.

    Args:
        frame: the frame of the line.
        lines: the lines up to this one, at most those of one record.
    """
    for line in reversed(tuple(lines)[:-1]):
        before = framed(line)
        if before.source != frame.source:
            return frame
        if before.at is not None:
            return frame._replace(at=before.at, dated=before.dated)
    return frame


def _without_logger(text: str) -> str:
    begin = text.rfind("(")
    if begin >= 0 and _LOGGER.match(text, begin):
        return text[:begin].rstrip()
    if " (kafka." in text or " (org.apache.kafka." in text:
        text = text[: found.start()] if (found := _WITHIN.search(text)) is not None else text
    return text


def _logfmt(text: str) -> dict[str, Any]:
    """The pairs of a line; a value in quotes is without them."""
    return {key: value.strip('"').replace('\\"', '"') for key, value in _LOGFMT.findall(text)}


def _cut_json(text: str) -> dict[str, Any]:
    """The object at the beginning of a text that was cut: its complete pairs.

    The last pair may lack a part of its value. It counts only if the others have no message.
    """
    brackets: list[str] = []
    comma, end = 0, ""
    for mark in _JSON_MARKS.finditer(text[:_LONGEST_CUT]):
        sign = mark[0][0]
        if sign in "{[":
            brackets.append("}" if sign == "{" else "]")
        elif sign in "}]" and brackets:
            brackets.pop()
        elif sign == "," and len(brackets) == 1:
            comma = mark.start()
        elif sign == '"':
            end = "" if len(mark[0]) > 1 and mark[0].endswith('"') else '"'
    if not brackets:
        return {}
    whole = _json(f"{text[:comma]}}}")
    if _first(whole, _MESSAGES, _INNER_MESSAGES):
        return whole
    return _json(f"{text[:_LONGEST_CUT]}{end}{''.join(reversed(brackets))}") or whole


def _json(text: str) -> dict[str, Any]:
    """The object at the beginning of a text; the rest of the text is ignored."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
