"""Checks the options of ``spark.readStream.format("kohort")``.

In: Spark's mapping of option texts. Out: ``SourceOptions``. Must not know: the use of the options.

The names are those of Spark's own Kafka source where that has the same option: ``subscribe``,
``subscribePattern``,
``startingOffsets``, ``minOffsetsPerTrigger``, ``maxTriggerDelay``, ``maxOffsetsPerTrigger``,
``includeHeaders``, ``failOnDataLoss``,
``kafka.bootstrap.servers`` and any other ``kafka.*`` setting of the client. ``maxBytesPerTrigger``
is that of Spark's source of files. ``columns`` names the columns of the stream (ADR 0086). Case is
ignored.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kohort.client.config import ClientSettings, parse_client_settings
from kohort.model.errors import ConfigError

DEFAULT_LIMIT: Final = 1_000_000
"""A micro-batch cannot be interrupted for a revocation, so batches are limited by default."""

DEFAULT_LIMIT_BYTES: Final = 1 << 30
"""So that a batch of large records is not longer than one of small ones."""

DEFAULT_FETCH_BYTES: Final = 4 << 20
"""``max.partition.fetch.bytes`` unless the options say otherwise. A task wants thousands of records
of a partition. With 1 MiB, the default of Kafka's clients, broker and task need more CPU time."""

DELETED: Final = (
    "records were deleted before they were read; to continue behind them, start "
    "kohort pipeline with --skip-deleted, or set failOnDataLoss=false on format kohort"
)
"""The end of an error message about a position before the start of the log."""

LOST: Final = (
    "name another group and another output directory to read the topic anew; to continue at the "
    "offset, start kohort pipeline with --skip-deleted or set failOnDataLoss=false on format kohort"
)
"""The end of an error message about a log without the records before the position."""

HEADERS: Final = "headers"
RECORD_COLUMNS: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key: string, value: binary>>",
}
"""The columns of Spark's Kafka source, in its order, and their types in Spark."""

_KNOWN: Final = {
    "bootstrap", "subscribe", "subscribepattern", "group.id", "startingoffsets",
    "maxoffsetspertrigger", "maxbytespertrigger", "includeheaders", "failondataloss", "ledger",
    "application", "readtasks", "idlewaitms", "drainfile", "batchintervalms", "wholepartitions",
    "columns", "statecopies", "minoffsetspertrigger", "maxtriggerdelay", "piecesonly",
}  # fmt: skip
_UNITS: Final = {
    "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400,
}  # fmt: skip
_TIME: Final = re.compile(rf"(\d+)({'|'.join(_UNITS)})")
_APPLICATION: Final = re.compile(r"[0-9a-f]{32}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of one query.

    Attributes:
        topics: the subscribed topics, each once; empty with a pattern.
        pattern: matches the whole names of the subscribed topics; None for ``topics``.
        client: settings of membership, admin and fetching; ``auto_offset_reset`` comes from
            ``startingOffsets``.
        ledger: directory of the exactly-once table; None makes the query at-least-once.
        drain_file: when this file exists, the member gives all partitions away, and the source
            then removes the file; None for no such file.
        application: the name of this start of this application in the ledger; unique.
        limit: most offsets of a micro-batch.
        limit_bytes: most bytes of records in a micro-batch, decompressed, as far as samples tell
            them.
        read_tasks: most read tasks of a micro-batch.
        idle_wait_s: how long ``latestOffset`` waits for records before it reports none.
        batch_interval_s: least time between the beginnings of two batches, unless the first one
            left records behind. With ``availableNow`` it has no effect.
        whole_partitions: whether one task reads all records of a partition in a batch.
        state_copies: directory of the copies of states that this host keeps; None for none.
        min_offsets: a batch waits until this many records wait in the owned partitions; 0 for none.
        max_delay_s: longest time from the beginning of a batch to the next one, if there are
            records but fewer than ``min_offsets``. With ``availableNow`` both have no effect.
        columns: the columns of the stream, in their order; all but the headers of records unless
            ``columns`` or ``includeHeaders`` say otherwise.
        pieces_only: make one row for each task, which holds the pieces to read
            (``kohort.spark.plain.reading``); else one row for each record.
        fail_on_data_loss: stop when records were deleted or lost before they were read; else
            continue behind them.
    """

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    client: ClientSettings
    ledger: Path | None
    drain_file: Path | None
    application: str
    limit: int
    limit_bytes: int
    read_tasks: int
    idle_wait_s: float
    batch_interval_s: float
    whole_partitions: bool
    state_copies: Path | None
    min_offsets: int
    max_delay_s: float
    columns: tuple[str, ...]
    pieces_only: bool
    fail_on_data_loss: bool


def record_columns(*, headers: bool) -> tuple[str, ...]:
    """The columns of Spark's Kafka source, with headers on demand."""
    return tuple(name for name in RECORD_COLUMNS if headers or name != HEADERS)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of one ``load()``.

    Raises:
        ConfigError: one is missing, unknown or malformed.
    """
    options = {name.lower(): str(value) for name, value in given.items()}
    kafka = {
        name.removeprefix("kafka."): value
        for name, value in options.items()
        if name.startswith("kafka.")
    }
    unknown = sorted(n for n in options if n not in _KNOWN and not n.startswith("kafka."))
    if unknown:
        raise ConfigError(
            f"format kohort has no option {', '.join(unknown)}; "
            f"it has kafka.* and {', '.join(sorted(_KNOWN))}"
        )
    for short, name in (("bootstrap", "bootstrap.servers"), ("group.id", "group.id")):
        if short in options:
            kafka[name] = options[short]
    if "group.id" not in kafka:
        raise ConfigError("format kohort needs the option group.id: the group to join")
    if "auto.offset.reset" in kafka:
        raise ConfigError("use the option startingOffsets instead of kafka.auto.offset.reset")
    kafka["auto.offset.reset"] = _word(options, "startingoffsets", "latest", "earliest", "latest")
    kafka.setdefault("max.partition.fetch.bytes", str(DEFAULT_FETCH_BYTES))
    client = parse_client_settings(kafka)
    _ = client.bootstrap
    state_copies = _path(options, "statecopies")
    if client.stateful_topics and state_copies is None:
        raise ConfigError(
            "kafka.kohort.stateful.topics has no effect here: only `kohort pipeline --state` with "
            "a master local[N] prepares copies, so partitions would only move later"
        )
    return SourceOptions(
        topics=() if "subscribepattern" in options else _topics(options),
        pattern=_pattern(options),
        client=client,
        ledger=_path(options, "ledger"),
        drain_file=_path(options, "drainfile"),
        application=_application(options),
        limit=_count(options, "maxoffsetspertrigger", DEFAULT_LIMIT),
        limit_bytes=_count(options, "maxbytespertrigger", DEFAULT_LIMIT_BYTES),
        read_tasks=_count(options, "readtasks", 2),
        idle_wait_s=_count(options, "idlewaitms", 250) / 1000,
        batch_interval_s=_count(options, "batchintervalms", 0, least=0) / 1000,
        whole_partitions=_word(options, "wholepartitions", "false", "true", "false") == "true",
        state_copies=state_copies,
        min_offsets=_min_offsets(options),
        max_delay_s=_time(options, "maxtriggerdelay", "15m"),
        columns=_columns(options),
        pieces_only=_word(options, "piecesonly", "false", "true", "false") == "true",
        fail_on_data_loss=_word(options, "failondataloss", "true", "true", "false") == "true",
    )


def _application(options: Mapping[str, str]) -> str:
    # Intents are found by this name: with one name, a query would commit the ranges of another.
    given = options.get("application") or uuid.uuid4().hex
    if not _APPLICATION.fullmatch(given):
        raise ConfigError(
            f"option application is {given!r}, expected the 32 hexadecimal digits of a random "
            "UUID, new for each start: leave the option out"
        )
    return given


def _pattern(options: Mapping[str, str]) -> re.Pattern[str] | None:
    text = options.get("subscribepattern")
    if text is None:
        return None
    if "subscribe" in options:
        raise ConfigError("give one of the options subscribe and subscribePattern, not both")
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(
            f"option subscribePattern is {text!r}, expected a regular expression: {error}"
        ) from error


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    topics = dict.fromkeys(part.strip() for part in options.get("subscribe", "").split(","))
    topics.pop("", None)
    if not topics:
        raise ConfigError("format kohort needs the option subscribe: topics with commas between")
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            raise ConfigError(
                f"option subscribe names the topic {topic!r}: expected at most 249 letters, "
                "digits, '.', '_' and '-'"
            )
    return tuple(topics)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    headers = _word(options, "includeheaders", "false", "true", "false") == "true"
    given = options.get("columns")
    if given is None:
        return record_columns(headers=headers)
    known = {name.lower(): name for name in RECORD_COLUMNS}
    wanted = [part.strip().lower() for part in given.split(",")]
    if len({*wanted} & known.keys()) != len(wanted):
        raise ConfigError(
            f"option columns is {given!r}, expected some of {', '.join(RECORD_COLUMNS)}, each "
            "once, with commas between"
        )
    if headers and HEADERS not in wanted:
        raise ConfigError(
            f"option columns is {given!r} and includeHeaders is true: name {HEADERS} in columns, "
            "or leave includeHeaders out"
        )
    return tuple(known[name] for name in wanted)


def _path(options: Mapping[str, str], name: str) -> Path | None:
    return Path(options[name]) if options.get(name) else None


def _word(options: Mapping[str, str], name: str, default: str, *allowed: str) -> str:
    value = options.get(name, default).lower()
    if value not in allowed:
        raise ConfigError(f"option {name} is {value!r}, expected {' or '.join(allowed)}")
    return value


def _min_offsets(options: Mapping[str, str]) -> int:
    least = _count(options, "minoffsetspertrigger", 0, least=0)
    most = _count(options, "maxoffsetspertrigger", DEFAULT_LIMIT)
    if least > most:
        raise ConfigError(
            f"option minOffsetsPerTrigger (--min-rows) is {least}, expected at most "
            f"maxOffsetsPerTrigger (--limit), which is {most}: a batch would wait for more records "
            "than it may read"
        )
    return least


def _time(options: Mapping[str, str], name: str, default: str) -> float:
    """A time in seconds, in Spark's form."""
    text = options.get(name, default)
    found = _TIME.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"option {name} is {text!r}, expected a number with a unit ({', '.join(_UNITS)}), such "
            "as 15m"
        )
    return int(found[1]) * _UNITS[found[2]]


def _count(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ConfigError(f"option {name} is {text!r}, expected a number of at least {least}")
    return int(text)
