"""A seeded generator of web-access events, the demo's default input.

In: a count and a seed. Out: lines in the combined log format of web servers, so that one SQL file
parses both these and real logs. The same seed gives the same lines. Must not know: brokers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

VISITORS: Final = 4_096
_PATHS: Final = 1_024
_REQUESTS_PER_SECOND: Final = 40
_START: Final = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)

_SECTIONS: Final = ("articles", "images", "projects", "blog", "downloads", "api/v1", "static")
_WORDS: Final = ("group", "member", "leader", "offset", "broker", "record", "topic", "window")
_ENDINGS: Final = ("", "/", ".html", ".png", ".css", ".js", "?page=2", "?sort=new")
_METHODS: Final = ("GET",) * 14 + ("POST", "HEAD")
_STATUSES: Final = (200,) * 24 + (304,) * 4 + (404, 404, 301, 500)
_REFERRERS: Final = ("-", "-", "https://example.org/", "https://example.org/articles/")
_AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1 Version/18.0 Safari/605.1",
    "Mozilla/5.0 (compatible; examplebot/2.1; +https://example.org/bot)",
    "curl/8.14.1",
)


def web_events(count: int, seed: int) -> Iterator[bytes]:
    """``count`` access-log lines without line ends; 40 lines have the same second."""
    draw = random.Random(seed)
    visitors = [_address(draw) for _ in range(VISITORS)]
    paths = _popular(draw)
    bits, size = draw.getrandbits, len(paths)
    stamp = ""
    for number in range(count):
        if number % _REQUESTS_PER_SECOND == 0:
            moment = _START + timedelta(seconds=number // _REQUESTS_PER_SECOND)
            stamp = moment.strftime("%d/%b/%Y:%H:%M:%S +0000")
        # One draw of many bits for each line, since draws take most of the time.
        chance = bits(64)
        status = _STATUSES[chance >> 12 & 31]
        yield (
            f"{visitors[chance & 4_095]} - - [{stamp}] "
            f'"{_METHODS[chance >> 17 & 15]} /{paths[(chance >> 21) % size]} HTTP/1.1" '
            f"{status} {0 if status == 304 else chance >> 40 & 65_535} "
            f'"{_REFERRERS[chance >> 56 & 3]}" "{_AGENTS[chance >> 58 & 3]}"'
        ).encode()


def first_field(line: bytes) -> bytes:
    """The key of a record: the text before the first blank; empty for a blank line."""
    return line.split(None, 1)[0] if line.strip() else b""


def _address(draw: random.Random) -> str:
    # 198.18.0.0/15 is reserved for measurements.
    return f"198.{18 + draw.getrandbits(1)}.{draw.getrandbits(8)}.{draw.getrandbits(8)}"


def _popular(draw: random.Random) -> list[str]:
    """Paths by popularity: the list has the n-th path 1/n as often as the first."""
    paths: list[str] = []
    for rank in range(1, _PATHS + 1):
        section, word, ending = (draw.choice(words) for words in (_SECTIONS, _WORDS, _ENDINGS))
        paths += [f"{section}/{word}-{rank}{ending}"] * max(1, 256 // rank)
    return paths
