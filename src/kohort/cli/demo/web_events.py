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
_START: Final = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
_WORDS: Final = ("group", "member", "leader", "offset", "broker", "record", "topic", "window")
_METHODS: Final = ("GET",) * 14 + ("POST", "HEAD")
_STATUSES: Final = (200,) * 24 + (304,) * 4 + (404, 404, 301, 500)
_REFERRERS: Final = ("-", "-", "https://example.org/", "https://example.org/articles/")
_AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64)",
    "Mozilla/5.0 (Macintosh)",
    "examplebot/2.1",
    "curl/8.14.1",
)


def web_events(count: int, seed: int) -> Iterator[bytes]:
    """``count`` access-log lines without line ends; 40 lines have the same second."""
    draw = random.Random(seed)
    # 198.18.0.0/15 is reserved for measurements.
    visitors = [f"198.18.{draw.getrandbits(8)}.{draw.getrandbits(8)}" for _ in range(VISITORS)]
    # The n-th path is 1/n as popular as the first.
    paths = [
        f"{_WORDS[rank % 8]}-{rank}.html"
        for rank in range(1, 1_025)
        for _ in range(256 // rank or 1)
    ]
    bits, size = draw.getrandbits, len(paths)
    stamp = ""
    for number in range(count):
        if number % 40 == 0:
            stamp = f"{_START + timedelta(seconds=number // 40):%d/%b/%Y:%H:%M:%S +0000}"
        # One draw of many bits for each line, since draws take most of the time.
        chance = bits(64)
        status = _STATUSES[chance >> 12 & 31]
        yield (
            f"{visitors[chance & 4_095]} - - [{stamp}] "
            f'"{_METHODS[chance >> 17 & 15]} /{paths[(chance >> 21) % size]} HTTP/1.1" '
            f"{status} {0 if status == 304 else chance >> 40 & 65_535} "
            f'"{_REFERRERS[chance >> 56 & 3]}" "{_AGENTS[chance >> 58 & 3]}"'
        ).encode()
