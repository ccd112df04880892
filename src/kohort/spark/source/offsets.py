"""Parses and writes the source's offset document, ``{"v":1,"p":{"topic-n":[begin,end,epoch]}}``.

In: a parsed JSON document from a checkpoint. Out: a ``SourceOffset``, and back. Must not know:
Spark, groups, ledgers.

Spark stores the document, compares its text with other documents and returns it. So equal offsets
need equal texts (sorted keys). The document has the start of each range, because the previous
document does not have the partitions that were acquired since. ``lag``, ``generation``,
``rebalances`` and ``held_ms`` are for people: Spark shows the document in the progress of a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

VERSION = 1

_FOR_PEOPLE: Final = ("lag", "generation", "rebalances", "held_ms")

_WHAT_TO_DO = (
    "another source or another version of kohort wrote the checkpoint: start the query with a new "
    "checkpoint directory (a query with a ledger loses nothing by that)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRange:
    """Offsets ``begin`` (inclusive) to ``end`` (exclusive), read under fence number ``epoch``."""

    begin: int
    end: int
    epoch: int

    @property
    def size(self) -> int:
        """The number of offsets; there may be fewer records (compaction, transactions)."""
        return self.end - self.begin

    def settled(self) -> OwnedRange:
        """The empty range at the end of this range."""
        return OwnedRange(begin=self.end, end=self.end, epoch=self.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """One offset of a source: a range for each partition that the application owned.

    Attributes:
        ranges: by partition.
        warm_up: how many starts of the query began with an empty micro-batch; None except in the
            offset of that batch.
        lag: the records behind the ends of the ranges when the batch was planned; None if unknown.
        generation: the group's generation then; None if unknown.
        rebalances: the assignments since the start of the query; None if unknown.
        held_ms: milliseconds since the start in which the query waited for the group; None if
            unknown.
    """

    ranges: Mapping[TopicPartition, OwnedRange] = field(
        default_factory=lambda: MappingProxyType({})
    )
    warm_up: int | None = None
    lag: int | None = None
    generation: int | None = None
    rebalances: int | None = None
    held_ms: int | None = None

    def warmed_up(self) -> SourceOffset:
        """The offset of a warm-up batch after this offset: no records, but another text."""
        return SourceOffset(
            ranges={partition: r.settled() for partition, r in self.ranges.items()},
            warm_up=(self.warm_up or 0) + 1,
        )


def parse(document: object) -> SourceOffset:
    """The offset in a JSON document.

    Raises:
        ConfigError: another source wrote the document, or it is damaged.
    """
    if not isinstance(document, Mapping):
        raise _malformed(f"expected a JSON object, found {document!r}")
    version = document.get("v")
    if version != VERSION or isinstance(version, bool):
        raise _malformed(f"expected version {VERSION} under 'v', found {version!r}")
    unknown = set(document) - {"v", "p", "w", *_FOR_PEOPLE}
    if unknown:
        raise _malformed(f"unknown keys {sorted(map(str, unknown))}")
    partitions = document.get("p")
    if not isinstance(partitions, Mapping):
        raise _malformed(f"expected an object of partitions under 'p', found {partitions!r}")
    return SourceOffset(
        ranges={_partition(name): _range(name, value) for name, value in partitions.items()},
        warm_up=_count(document, "w"),
        **{name: _count(document, name) for name in _FOR_PEOPLE},
    )


def render(offset: SourceOffset) -> dict[str, Any]:
    """The document of an offset; equal offsets give documents with equal texts."""
    ranges = {str(partition): r for partition, r in offset.ranges.items()}
    document: dict[str, Any] = {
        "v": VERSION,
        "p": {
            name: [ranges[name].begin, ranges[name].end, ranges[name].epoch]
            for name in sorted(ranges)
        },
    }
    counts = {"w": offset.warm_up} | {name: getattr(offset, name) for name in _FOR_PEOPLE}
    return document | {name: count for name, count in counts.items() if count is not None}


def _partition(name: object) -> TopicPartition:
    topic, dash, number = str(name).rpartition("-")
    # isdecimal alone would accept digits of other scripts and leading zeros.
    if not dash or not topic or not number.isdecimal() or str(int(number)) != number:
        raise _malformed(f"expected topic-number as the name of a partition, found {name!r}")
    return TopicPartition(topic, int(number))


def _range(name: object, value: object) -> OwnedRange:
    if not isinstance(value, list) or len(value) != 3 or not all(map(_is_count, value)):
        raise _malformed(f"expected [begin, end, epoch] for {name}, found {value!r}")
    begin, end, epoch = value
    if begin > end:
        raise _malformed(f"{name} begins at {begin}, which is greater than its end {end}")
    return OwnedRange(begin=begin, end=end, epoch=epoch)


def _count(document: Mapping[Any, Any], name: str) -> int | None:
    value = document.get(name)
    if value is not None and not _is_count(value):
        raise _malformed(f"expected a count under {name!r}, found {value!r}")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _malformed(what: str) -> ConfigError:
    return ConfigError(f"malformed kohort offset: {what}; {_WHAT_TO_DO}")
