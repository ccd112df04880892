"""Finds the time of a line of a log, in the formats of loggers, services and languages.

In: the beginning of a line, or a value of a JSON line. Out: seconds since 1970, or seconds of a
day. Must not know: frames, wordings.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_ZONE: Final = r"(?: ?(Z|UTC|GMT|[+-]\d\d:?\d\d)(?![\d:]))?"
_DATE_TIME: Final = re.compile(
    r"((?:19|20)\d\d[-/.](?:0[1-9]|1[0-2])[-/.](?:0[1-9]|[12]\d|3[01])[ T]\d\d:\d\d:\d\d)"
    rf"(?:[.,:](\d{{1,9}}))?{_ZONE}",
    re.ASCII,
)
_COMPACT: Final = re.compile(
    r"(?<![\d-])((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])[ T-]"
    rf"([01]\d|2[0-3]):?([0-5]\d):?([0-5]\d)(?:[.,](\d{{1,9}}))?{_ZONE}(?!\d)",
    re.ASCII,
)
"""A date without marks between its parts, as in ``20260301T120000Z``."""
_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            "jan ene gen",
            "feb fév fev",
            "mar mär mrz mrt",
            "apr avr abr",
            "may mai mag mei",
            "jun juin giu",
            "jul juil lug",
            "aug aoû ago",
            "sep set",
            "oct okt ott out",
            "nov",
            "dec dez dic déc",
        ),
        1,
    )
    for name in names.split()
}
"""Months by their first three letters in seven languages; two French ones have four."""
_MONTH: Final = r"[A-Za-zäéû]{3,10}\.?"
_OTHER_DATE: Final = re.compile(
    rf"(?:(?P<day>\d{{1,2}})\.?[ /-](?P<month>{_MONTH})[ /-](?P<year>(?:19|20)\d\d)|"
    rf"(?P<month2>{_MONTH}) (?P<day2>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<year2>(?:19|20)\d\d)|"
    r"(?<!\d)(?P<first>\d{1,2})(?P<mark>[./-])(?P<second>\d{1,2})(?P=mark)"
    r"(?P<year3>(?:(?:19|20)\d\d|\d\d)))[ ,:T@]+"
    r"(?P<clock>\d{1,2}:\d\d:\d\d)(?:[.,](?P<rest>\d{1,9}))?(?: (?P<half>[AP]M))?",
    re.ASCII,
)
"""Dates with a month's name, or with the year at the end."""
_YEAR_LAST: Final = re.compile(
    r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)"
    r"(?:[.,](?P<rest>\d{1,9}))?(?: [A-Z]{2,5})? (?P<year>(?:19|20)\d\d)(?!\d)",
    re.ASCII,
)
"""The time of C's ``asctime`` and of the command ``date``."""
_SHORT_YEAR: Final = re.compile(
    r"(?<![\d/])(\d\d/(?:0[1-9]|1[0-2])/(?:0[1-9]|[12]\d|3[01]) \d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? "
    r"(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ",
    re.ASCII,
)
"""The default pattern of Spark's loggers."""
_EPOCH: Final = re.compile(r"(?<![\d.])(\d{10})\.(\d{3,6})(?!\d)")
_LIBRDKAFKAS: Final = re.compile(r"\|(\d{10})\.(\d{3})\|")
"""librdkafka's own time: it tells more than a date that the application wrote in front."""
_WHOLE_EPOCH: Final = re.compile(
    r"(?:^\W{0,3}|[\"'](?:\w*[tT]ime\w*|ts)[\"'] ?: ?[\"']?)(1\d{9}(?:\d{3}){0,3})(?![\w.])",
    re.ASCII,
)
"""Seconds, or thousandths and smaller parts of them, in front of a line or in a line of JSON."""
_CLOCK: Final = re.compile(
    r"(?<![\d:])(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?: ([AP]M))?(?![:\d])"
)
_KAFKA: Final = re.compile(
    r"\[(20\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]) \d\d:\d\d:)", re.ASCII
)
"""The beginning of a line in the default pattern of Kafka's loggers, as most lines are."""
_UNITS: Final = (1, 10**3, 10**6, 10**9)
_YEAR_2001: Final = 1e9
_YEAR_2286: Final = 1e10


def time_in(text: str) -> tuple[float | None, bool]:
    """The last time with a date in a text, else one without a date; and whether it has a date."""
    if not text.isascii():
        text = text.replace("\u00a0", " ").replace("\u202f", " ")
    if (own := _LIBRDKAFKAS.search(text)) is not None:
        return int(own[1]) + int(own[2]) / 1e3, True
    dates = _DATE_TIME.findall(text)
    if dates:
        return _instant(*dates[-1]), True
    dated = _less_common(text)
    if dated is not None:
        return dated, True
    clock = _CLOCK.search(text)
    if clock is None:
        return None, False
    hour = int(clock[1]) % 12 + 12 * (clock[5] == "PM") if clock[5] else int(clock[1])
    seconds = hour * 3_600 + int(clock[2]) * 60 + int(clock[3])
    return seconds + int((clock[4] or "0").ljust(6, "0")) / 1e6, False


def _less_common(text: str) -> float | None:
    """The time with a date in a text without a date of the usual form."""
    for form, value in _FORMS:
        found = form.search(text)
        if found is not None and (at := value(found)) is not None:
            return at
    return None


def _compact(found: re.Match[str]) -> float:
    year, month, day, hour, minute, second, rest, zone = found.groups(default="")
    return _instant(f"{year}-{month}-{day} {hour}:{minute}:{second}", rest, zone)


def _other_date(found: re.Match[str]) -> float | None:
    """The time; None if day and month cannot be told apart, or there is no such day."""
    year = int(found["year"] or found["year2"] or found["year3"])
    if found["mark"]:
        first, second = int(found["first"]), int(found["second"])
        day, month = (first, second) if first > 12 or found["mark"] == "." else (second, first)
        unsure = year < 100 or (first <= 12 and first != second)
        if unsure and found["mark"] != "." and second <= 12:
            return None
        year += 2_000 * (year < 100)
    else:
        day, month = int(found["day"] or found["day2"]), _month(found["month"] or found["month2"])
    return _on((year, month, day), found["clock"], found["rest"], found["half"])


def _year_last(found: re.Match[str]) -> float | None:
    date = int(found["year"]), _month(found["month"]), int(found["day"])
    return _on(date, found["clock"], found["rest"])


def _month(name: str) -> int:
    """The number of a month; 0 for another word."""
    name = name.lower()
    return _MONTHS.get(name[:3]) or _MONTHS.get(name[:4], 0)


def _on(
    date: tuple[int, int, int], clock: str, rest: str | None, half: str | None = None
) -> float | None:
    """The time of a day, given as year, month and day; None if there is no such day."""
    hour, minute, second = map(int, clock.split(":"))
    if half:
        hour = hour % 12 + 12 * (half == "PM")
    if not 1 <= date[1] <= 12 or not 1 <= date[2] <= 31:
        return None
    return timegm((*date, hour, minute, second)) + int((rest or "0").ljust(9, "0")) / 1e9


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], float | None]], ...]] = (
    (_EPOCH, lambda found: int(found[1]) + int(found[2].ljust(6, "0")) / 1e6),
    (_SHORT_YEAR, lambda found: _instant(f"20{found[1]}", found[2], "")),
    (_OTHER_DATE, _other_date),
    (_COMPACT, _compact),
    (_YEAR_LAST, _year_last),
    (_WHOLE_EPOCH, lambda found: _since_1970(int(found[1]))),
)


def told_time(told: object) -> tuple[float | None, bool]:
    """The time in a field of a JSON line: text, or seconds or parts of them since 1970."""
    if isinstance(told, str) and told.isdecimal() and len(told) <= 19:
        told = int(told)
    if isinstance(told, int | float) and not isinstance(told, bool):
        at = _since_1970(told)
        return at, at is not None
    return time_in(str(told))


def _since_1970(told: float) -> float | None:
    """Seconds of a number of seconds, milliseconds, microseconds or nanoseconds."""
    return next((told / unit for unit in _UNITS if _YEAR_2001 <= told / unit < _YEAR_2286), None)


def _instant(told: str, rest: str, zone: str) -> float:
    whole = second_of(told)
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        offset = int(digits[:2]) * 3_600 + int(digits[2:]) * 60
        whole -= offset if zone[0] == "+" else -offset
    return whole + int(rest.ljust(9, "0")) / 1e9 if rest else float(whole)


@lru_cache(maxsize=1_024)
def kafka_minute(beginning: str) -> int | None:
    """The minute in the beginning of a line; None if the line has another pattern."""
    found = _KAFKA.fullmatch(beginning)
    return None if found is None else second_of(f"{found[1]}00")


@lru_cache(maxsize=1_024)
def second_of(told: str) -> int:
    """Seconds since 1970; most lines of a log share theirs with the line before."""
    day, clock = (told[:4], told[5:7], told[8:10]), told[11:].split(":")
    year, month, date, hour, minute, second = map(int, (*day, *clock))
    return timegm((year, month, date, hour, minute, second))
