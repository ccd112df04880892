"""Settings of the broker: Kafka's dotted names, Kafka's defaults, validated once.

In: pairs of name and value (command line, properties file, keyword arguments). Out: one frozen
``BrokerSettings``, or a ``ConfigError`` that names the setting, the given value and the allowed
values. Must not know: the environment, and the disk except in ``read_properties``.

A field has the name of its setting with underscores for dots; ``dotted`` and ``attribute`` convert
the names. All listed settings are honoured; a setting without effect here would mislead.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from kohort.model.errors import ConfigError
from kohort.model.group_config import MAX_REQUEST_BYTES, GroupConfig

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

S = TypeVar("S")

GIVEN_OTHERWISE: Final[Mapping[str, str]] = {
    "listeners": "--host and --port",
    "advertised.listeners": "--advertised",
    "log.dir": "--data-dir",
    "log.dirs": "--data-dir",
    "broker.id": "node.id",
}
"""Kafka's settings that kohort expects in another form, and the form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The allowed values of a setting: a kind, a range (inclusive) or a list of words."""

    kind: type
    low: int = -(2**63)
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()
    doc: str = ""
    secret: bool = False

    def parse(self, name: str, value: object) -> int | float | bool | str:
        """The value in its own type.

        Raises:
            ConfigError: the value has another kind, is outside the range, or is not in the list.
        """
        if self.kind is bool:
            return self._parse_bool(name, value)
        if self.kind is int:
            return self._parse_int(name, value)
        if self.kind is float:
            return self._parse_ratio(name, value)
        if not isinstance(value, str) and (self.secret or not self.choices):
            raise ConfigError(f"{name} is of type {type(value).__name__}, expected a text")
        if not isinstance(value, str) or (self.choices and value not in self.choices):
            raise ConfigError(f"{name} is {value!r}, expected {' or '.join(self.choices)}")
        return value

    @staticmethod
    def _parse_bool(name: str, value: object) -> bool:
        text = str(value).strip().lower()
        if text not in ("true", "false"):
            raise ConfigError(f"{name} is {value!r}, expected true or false")
        return text == "true"

    def _parse_int(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ConfigError(f"{name} is {value!r}, expected a whole number")
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(f"{name} is {value!r}, expected a whole number") from None
        if not self.low <= number <= self.high:
            raise ConfigError(f"{name} is {number}, expected {self.low} to {self.high}")
        return number

    @staticmethod
    def _parse_ratio(name: str, value: object) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = -1.0
        if not 0.0 <= number <= 1.0:
            raise ConfigError(f"{name} is {value!r}, expected 0.0 to 1.0")
        return number


def whole(default: int | None, low: int, high: int, doc: str) -> Any:
    """Declare a setting that is a whole number from ``low`` to ``high``; None: not set."""
    rule = Rule(kind=int, low=low, high=high, doc=doc)
    return dataclasses.field(default=default, metadata={"rule": rule})


def flag(default: bool, doc: str) -> Any:
    """Declare a setting that is true or false."""
    return dataclasses.field(default=default, metadata={"rule": Rule(kind=bool, doc=doc)})


def ratio(default: float, doc: str) -> Any:
    """Declare a setting that is a number from 0 to 1."""
    return dataclasses.field(default=default, metadata={"rule": Rule(kind=float, doc=doc)})


def word(default: str | None, choices: tuple[str, ...], doc: str) -> Any:
    """Declare a setting that is one of a few words; None: not set."""
    rule = Rule(kind=str, choices=choices, doc=doc)
    return dataclasses.field(default=default, metadata={"rule": rule})


def secret(doc: str) -> Any:
    """Declare a setting with a text that no message and no ``repr`` shows; None: not set."""
    rule = Rule(kind=str, doc=doc, secret=True)
    return dataclasses.field(default=None, repr=False, metadata={"rule": rule})


def of_group(field_name: str, doc: str) -> Any:
    """Declare a setting that the coordinator has under this name, with its default and range."""
    spec = next(f for f in dataclasses.fields(GroupConfig) if f.name == field_name)
    default: Any = spec.default
    return whole(default, spec.metadata["low"], spec.metadata["high"], doc)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Every setting of the broker. Source: Kafka's broker configs, version 4.3.

    Those that begin with ``kohort.`` are limits that Kafka does not have.
    """

    node_id: int = whole(1, 0, INT_MAX, "Id of this broker in Metadata and FindCoordinator.")

    group_min_session_timeout_ms: int = whole(6_000, 1, INT_MAX, "Shortest session timeout.")
    group_max_session_timeout_ms: int = whole(1_800_000, 1, INT_MAX, "Longest session timeout.")
    group_initial_rebalance_delay_ms: int = whole(
        3_000, 0, INT_MAX, "How long the first rebalance of an empty group waits for joiners."
    )
    group_max_size: int = whole(INT_MAX, 1, INT_MAX, "Most members of one group.")
    offset_metadata_max_bytes: int = whole(4_096, 0, INT_MAX, "Longest metadata of a commit.")
    offsets_retention_minutes: int = whole(
        10_080, 1, INT_MAX, "How long the offsets of a group without members are kept."
    )
    offsets_retention_check_interval_ms: int = whole(
        600_000, 1, INT_MAX, "How often the broker looks for expired offsets."
    )
    offsets_topic_num_partitions: int = whole(
        50, 1, INT_MAX, "Partitions of __consumer_offsets; fixed once the topic exists."
    )
    offsets_topic_segment_bytes: int = whole(
        104_857_600, 1, INT_MAX, "Segment size of __consumer_offsets."
    )

    offsets_topic_replication_factor: int = whole(
        3, 1, 32_767, "Replicas of __consumer_offsets; at most the number of nodes."
    )

    num_partitions: int = whole(
        1, 1, INT_MAX, "Partitions of a topic that is created automatically."
    )
    default_replication_factor: int = whole(
        1, 1, 32_767, "Replicas of a topic, if its creator names no number."
    )
    auto_create_topics_enable: bool = flag(True, "A Metadata request creates missing topics.")
    delete_topic_enable: bool = flag(True, "DeleteTopics is allowed.")

    message_max_bytes: int = whole(1_048_588, 0, INT_MAX, "Largest record batch.")
    log_segment_bytes: int = whole(1_073_741_824, 14, INT_MAX, "Size at which a segment rolls.")
    log_roll_hours: int = whole(168, 1, INT_MAX, "Age at which a segment rolls.")
    log_roll_ms: int | None = whole(None, 1, LONG_MAX, "The same in ms; wins over hours.")
    log_index_interval_bytes: int = whole(4_096, 0, INT_MAX, "Bytes of log for each index entry.")
    log_retention_bytes: int = whole(-1, -1, LONG_MAX, "Bytes kept of a partition; -1: all.")
    log_retention_hours: int = whole(168, -1, INT_MAX, "How long records are kept.")
    log_retention_minutes: int | None = whole(None, -1, INT_MAX, "The same; wins over hours.")
    log_retention_ms: int | None = whole(None, -1, LONG_MAX, "The same; wins over minutes.")
    log_retention_check_interval_ms: int = whole(
        300_000, 1, LONG_MAX, "How often the broker looks for old segments."
    )
    log_flush_interval_messages: int = whole(
        LONG_MAX, 1, LONG_MAX, "Records after which a partition is synced before it answers."
    )
    log_flush_interval_ms: int | None = whole(
        None, 0, LONG_MAX, "Longest time that a record may wait for a sync."
    )
    log_cleanup_policy: str = word(
        "delete",
        ("delete", "compact", "delete,compact", "compact,delete"),
        "Old segments are deleted, or keep the newest record of each key, or both.",
    )
    log_cleaner_enable: bool = flag(True, "Topics with cleanup.policy=compact are compacted.")
    log_cleaner_backoff_ms: int = whole(
        15_000, 1, LONG_MAX, "How often the broker looks for logs to compact."
    )
    log_cleaner_delete_retention_ms: int = whole(
        86_400_000, 0, LONG_MAX, "How long compaction keeps tombstones."
    )
    log_cleaner_min_cleanable_ratio: float = ratio(
        0.5, "Share of new data in a log at which compaction starts."
    )
    log_message_timestamp_type: str = word(
        "CreateTime",
        ("CreateTime", "LogAppendTime"),
        "Source of a record's timestamp: the producer or the broker.",
    )
    log_message_timestamp_before_max_ms: int = whole(
        LONG_MAX, 0, LONG_MAX, "How far a record's timestamp may lie behind the broker's clock."
    )
    log_message_timestamp_after_max_ms: int = whole(
        3_600_000, 0, LONG_MAX, "How far a record's timestamp may lie ahead of the broker's clock."
    )
    producer_id_expiration_ms: int = whole(
        86_400_000, 1, INT_MAX, "How long an idle producer's sequences are remembered."
    )

    socket_request_max_bytes: int = whole(
        104_857_600, 1, MAX_REQUEST_BYTES, "Largest request; a group's SyncGroup must fit."
    )
    max_connections: int = whole(INT_MAX, 0, INT_MAX, "Most connections at a time.")
    max_connections_per_ip: int = whole(INT_MAX, 0, INT_MAX, "Most connections from one address.")
    connections_max_idle_ms: int = whole(
        600_000, 1, LONG_MAX, "A connection without requests is closed after that time."
    )
    kohort_max_groups: int = of_group("max_groups", "Most groups.")
    kohort_max_pending_members: int = of_group(
        "max_pending_members", "Most member ids of one group that were handed out and not used."
    )
    kohort_max_metadata_bytes: int = of_group(
        "max_metadata_bytes", "Most bytes of one member's offer, over all its protocols."
    )
    kohort_max_group_bytes: int = of_group(
        "max_group_bytes", "Most bytes that members may bring into their group's record."
    )
    kohort_assignment_budget_bytes: int = of_group(
        "assignment_budget_bytes", "Part of that which is kept free for each member's assignment."
    )
    kohort_max_rebalance_timeout_ms: int = of_group(
        "max_rebalance_timeout_ms", "Longest time that a rebalance waits for a member."
    )
    kohort_frame_timeout_ms: int = whole(
        10_000,
        1,
        LONG_MAX,
        "Longest time for receiving one request, plus 1 s for each 16 KiB.",
    )
    fetch_max_bytes: int = whole(57_671_680, 1_024, INT_MAX, "Most bytes of one fetch answer.")

    def __post_init__(self) -> None:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms is {self.group_min_session_timeout_ms}, expected at "
                f"most group.max.session.timeout.ms, which is {self.group_max_session_timeout_ms}"
            )

    @property
    def retention_ms(self) -> int:
        """How long records are kept, in ms; -1: for ever. The setting with the finest unit wins."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return _scaled(self.log_retention_minutes, 60_000)
        return _scaled(self.log_retention_hours, 3_600_000)

    @property
    def roll_ms(self) -> int:
        """Age at which a segment rolls, in ms."""
        return self.log_roll_ms if self.log_roll_ms is not None else self.log_roll_hours * 3_600_000


def _scaled(value: int, factor: int) -> int:
    return -1 if value < 0 else value * factor


def dotted(attribute_name: str) -> str:
    """The name of a field's setting: ``num_partitions`` is ``num.partitions``."""
    return attribute_name.replace("_", ".")


def attribute(name: str) -> str:
    """The name of a setting's field, from the dotted name or the name with underscores."""
    return name.strip().replace(".", "_")


def rules(cls: type) -> dict[str, Rule]:
    """The rules of a settings class by dotted name, in the order of its fields."""
    return {dotted(f.name): rule for f in dataclasses.fields(cls) if (rule := f.metadata["rule"])}


def parse_settings(
    cls: type[S], pairs: Mapping[str, object], more: Mapping[str, Any] | None = None
) -> S:
    """Build a settings object from names and values.

    Args:
        cls: a settings class such as ``BrokerSettings``.
        pairs: values by dotted name (underscores also work); text is parsed.
        more: values of fields without a rule, by the names of the fields.

    Raises:
        ConfigError: a name is unknown (the message names similar ones) or repeated, or its
            value is not allowed.
    """
    known = rules(cls)
    values: dict[str, Any] = {}
    for given, value in pairs.items():
        name = dotted(attribute(given))
        rule = known.get(name)
        if rule is None:
            raise ConfigError(_unknown(name, known))
        if attribute(name) in values:
            raise ConfigError(f"{name} is given twice")
        values[attribute(name)] = rule.parse(name, value)
    return cls(**values, **(more or {}))


def _unknown(name: str, known: Iterable[str]) -> str:
    if name in GIVEN_OTHERWISE:
        return f"{name} is not a setting here: use {GIVEN_OTHERWISE[name]}"
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "docs/reference/settings.md has all"
    return f"unknown setting {name}; {hint}"


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Turn ``name=value`` texts of a command line into a mapping; the last of a name wins.

    Raises:
        ConfigError: a text has no equals sign or no name.
    """
    pairs: dict[str, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{text!r} is not a setting, expected name=value")
        pairs[dotted(attribute(name))] = value.strip()
    return pairs


_NAME: Final = "name a file with a line NAME=VALUE for each setting"


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file: ``name=value`` lines, blank lines, ``#`` and ``!`` comments.

    Raises:
        ConfigError: the file cannot be read, or a line is none of these; the message names it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read settings from {path}: {error.strerror}; {_NAME}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"cannot read settings from {path}: it is no UTF-8 text; {_NAME}"
        ) from error
    pairs: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        try:
            pairs.update(parse_assignments([stripped]))
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
    return pairs
