"""The values of client settings that users write in several ways, or as texts with parts.

In: a value of a user. Out: its one spelling, or its parts. Must not know: the settings together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kohort.model.errors import ConfigError
from kohort.policies.registry import JAVA_CLASSES

_RESET_WORDS: Final[Mapping[str, str]] = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}
"""librdkafka's words for ``auto.offset.reset`` -> Kafka's."""


def moves_limit(text: str) -> int | float | None:
    """``5`` is a number, ``10%`` a share of all partitions, the empty text no limit."""
    number = text.strip()
    if not number:
        return None
    share = number.removesuffix("%")
    if share.isdecimal() and (int(share) > 0 and (share == number or int(share) <= 100)):
        return int(share) if share == number else int(share) / 100
    raise ConfigError(
        f"kohort.max.moves.per.round is {text!r}, expected a number from 1, or a share such as 10%"
    )


def parse_bootstrap(servers: str) -> list[tuple[str, int]]:
    """Split ``host:port,host:port`` (an IPv6 address stands in brackets).

    Raises:
        ConfigError: there is none, or one is not ``host:port``.
    """
    found: list[tuple[str, int]] = []
    for server in servers.split(","):
        text = server.strip()
        if not text:
            continue
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ConfigError(f"bootstrap.servers has {text!r}, expected host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ConfigError("bootstrap.servers is missing, expected host:port of one broker or more")
    return found


def one_spelling(name: str, value: object) -> object:
    """The one spelling of a value that users may spell in several ways."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        words = [value]
    else:
        words = list(value)
    if name == "partition.assignment.strategy":
        texts = [str(getattr(word, "name", word)) for word in words]  # classes of kafka-python
        return ",".join(_assignor(part) for text in texts for part in text.split(","))
    if name == "bootstrap.servers":
        return ",".join(str(word).strip() for word in words)
    if name in ("kohort.max.moves.per.round", "scheduled.rebalance.max.delay.ms"):
        return str(value)
    if name in ("security.protocol", "sasl.mechanism"):
        return str(value).upper()
    if name == "auto.offset.reset":
        return _RESET_WORDS.get(str(value), value)
    return value


def _assignor(name: str) -> str:
    """The wire name of an assignor, from the name or from the name of its Java class."""
    known = JAVA_CLASSES.get(name.strip().rpartition(".")[2])
    return name.strip() if known is None else known.name
