"""Settings of the clients: Kafka's dotted names, or with underscores, validated once.

In: names and values of a user (a mapping, keyword arguments, or both). Out: one frozen
``ClientSettings``, with a part for each room: the consumer's core, the member, librdkafka. A
setting that would have no effect is refused, and the error names the nearest one that has. If a
default differs from the Java client's, the field says why. Must not know: sockets, threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import UUID

from kohort.client.connections.security import SecuritySettings, check_security, token_source
from kohort.client.foreign_settings import OTHER_NAMES, advice
from kohort.client.setting_values import moves_limit, one_spelling, parse_bootstrap
from kohort.fetch.requests import FetchOptions
from kohort.host.settings import INT_MAX, attribute, dotted, flag, parse_settings, whole, word
from kohort.model.consumer_config import ConsumerConfig, OffsetReset
from kohort.model.errors import ConfigError
from kohort.model.instants import Millis
from kohort.policies.consumer_groups import DESIGN_ONE
from kohort.policies.deferred import Resolution
from kohort.policies.record_size import BROKERS_RECORD_LIMIT
from kohort.policies.rent_or_buy import most_wait_ms
from kohort.policies.sticky import COOPERATIVE
from kohort.schema.runtime import MAX_STRING_BYTES

Deserializer = Callable[[bytes], Any]
"""Turns the bytes of a key or value into an object; never called for null."""

AUTO: Final = "auto"
MOST_WAIT_MS: Final = 86_400_000
COOPERATIVE_STICKY: Final = COOPERATIVE.name

CANONICAL_NAMES: Final = "resolve_canonical_bootstrap_servers_only"
"""The other value of ``client.dns.lookup``."""

LONGEST_ID_BYTES: Final = MAX_STRING_BYTES - len(f"-{UUID(int=0)}")
"""Of an id: a broker makes a member id of the client's or the instance's id and a UUID."""

LIBRDKAFKA_RECEIVE_MAX: Final = 100_000_000
"""librdkafka's default of ``receive.message.max.bytes``; it must exceed a fetch answer."""


_FUNCTIONS: Final[Mapping[str, str]] = {
    "key.deserializer": "a function of bytes, for example bytes.decode or json.loads",
    "value.deserializer": "a function of bytes, for example bytes.decode or json.loads",
    "oauth.cb": "a function that returns a token and the end of its life, in seconds since 1970",
}
"""Settings that are functions."""


_AS_LIBRDKAFKA: Final = (
    *("bootstrap.servers", "client.id", "client.dns.lookup", "isolation.level", "check.crcs"),
    *("fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes", "fetch.queue.backoff.ms"),
    *("queued.min.messages", "queued.max.messages.kbytes"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
    *("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"),
)
"""Settings with the same name and the same values in librdkafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(SecuritySettings):
    """Every setting of Consumer, GroupMembership, RecordFetcher and Admin.

    Sources: Kafka's consumer configs, version 4.3, and librdkafka's for the fetching ones.
    """

    bootstrap_servers: str = word("", (), "host:port, comma separated.")
    client_dns_lookup: str = word(
        "use_all_dns_ips",
        ("use_all_dns_ips", CANONICAL_NAMES),
        "Try each address of a name; or use the canonical name of each bootstrap address.",
    )
    client_id: str = word("kohort", (), "Name of this client in the broker's logs.")
    client_rack: str = word(
        "",
        (),
        "Rack of this client: fetch from a replica there (KIP-392), get partitions with one.",
    )
    group_id: str | None = word(None, (), "The group to join.")
    group_instance_id: str | None = word(None, (), "Identity of a static member (KIP-345).")
    group_protocol: str = word("classic", ("classic",), "The group protocol that is spoken.")
    partition_assignment_strategy: str = word(
        "cooperative-sticky", (), "Assignors by wire name, preferred first, comma separated."
    )

    scheduled_rebalance_max_delay_ms: str = word(
        "0",
        (),
        "How long the leader keeps partitions of a lost member for its return; or `auto`.",
    )
    kohort_move_cost_ms: int = whole(
        0,
        0,
        MOST_WAIT_MS,
        "Time in which a new owner restores the state of a partition; `auto` needs it.",
    )
    kohort_member_identity: str = word(
        "",
        (),
        "Name that stays when this member's process restarts: a text, `file:PATH`, or `host`.",
    )
    kohort_max_moves_per_round: str = word(
        "",
        (),
        "Most partitions that one rebalance moves only for balance: 5, or 10%; empty: no limit.",
    )
    kohort_moves_interval_ms: int = whole(
        0, 0, INT_MAX, "Least time between two rebalances that move partitions only for balance."
    )
    kohort_stateful_topics: str = word(
        "",
        (),
        "Topics with local state, comma separated: the new owner prepares, then partitions move.",
    )
    # As Kafka Streams' probing.rebalance.interval.ms, the time a warm-up may take there.
    kohort_handover_timeout_ms: int = whole(
        600_000, 1, MOST_WAIT_MS, "Longest preparation; then the partition moves nevertheless."
    )
    # Kafka Streams' num.standby.replicas.
    kohort_standby_replicas: int = whole(
        0, 0, 100, "Copies of each stateful partition that other members keep warm."
    )
    kohort_max_group_record_bytes: int = whole(
        BROKERS_RECORD_LIMIT,
        0,
        INT_MAX,
        "The broker's limit for the record of a group; a leader with more data fails. 0: no check.",
    )

    session_timeout_ms: int = whole(
        45_000, 1, INT_MAX, "Time without a heartbeat until the coordinator removes the member."
    )
    heartbeat_interval_ms: int = whole(3_000, 1, INT_MAX, "Time between heartbeats.")
    max_poll_interval_ms: int = whole(
        300_000, 1, INT_MAX, "Longest time between polls; also the rebalance timeout."
    )
    max_poll_records: int = whole(
        500, 1, INT_MAX, "Most records that poll and iteration take at once."
    )

    enable_auto_commit: bool = flag(True, "Commit positions automatically, inside polls.")
    auto_commit_interval_ms: int = whole(5_000, 1, INT_MAX, "Time between two automatic commits.")
    auto_offset_reset: str = word(
        "latest", ("earliest", "latest", "none"), "Where to start without a usable offset."
    )
    # As librdkafka, not as Java (true): a misspelt topic must not become a new one.
    allow_auto_create_topics: bool = flag(False, "Subscribing may create the topic.")
    isolation_level: str = word(
        "read_uncommitted",
        ("read_uncommitted", "read_committed"),
        "Which records are visible.",
    )

    metadata_max_age_ms: int = whole(
        300_000, 1, INT_MAX, "Longest time until topics and their leaders are asked for again."
    )
    metadata_recovery_strategy: str = word(
        "rebootstrap",
        ("rebootstrap", "none"),
        "Use the bootstrap servers again if no known node answers (KIP-899), or only at the start.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = whole(
        300_000, 0, INT_MAX, "Time without metadata until the bootstrap servers are used again."
    )
    request_timeout_ms: int = whole(30_000, 1, INT_MAX, "Longest wait for one answer.")
    default_api_timeout_ms: int = whole(60_000, 1, INT_MAX, "Longest wait of one call.")
    retry_backoff_ms: int = whole(100, 1, INT_MAX, "First wait before a retry.")
    retry_backoff_max_ms: int = whole(1_000, 1, INT_MAX, "Longest wait before a retry.")
    reconnect_backoff_ms: int = whole(50, 0, 3_600_000, "First wait before a new connection.")
    reconnect_backoff_max_ms: int = whole(
        1_000, 0, 3_600_000, "Longest wait before a new connection."
    )
    socket_connection_setup_timeout_ms: int = whole(
        10_000, 1, INT_MAX, "Longest wait for a connection."
    )

    fetch_min_bytes: int = whole(1, 1, 100_000_000, "Bytes a broker waits for before it answers.")
    # Java: 500. A partition that is added waits for the fetch under way to come back.
    fetch_max_wait_ms: int = whole(200, 0, 300_000, "Longest wait of a broker for these bytes.")
    fetch_max_bytes: int = whole(52_428_800, 1_000, 2_147_483_135, "Most bytes of a fetch answer.")
    max_partition_fetch_bytes: int = whole(
        1_048_576, 1, 1_000_000_000, "Most bytes of one partition in a fetch answer."
    )
    check_crcs: bool = flag(True, "Verify the checksum of every batch.")
    # librdkafka: 1000, which holds a consumer that is as fast as its queue to a fifth of its speed.
    fetch_queue_backoff_ms: int = whole(5, 0, 300_000, "Pause of fetches while queues are full.")
    # librdkafka: 100000.
    queued_min_messages: int = whole(
        200_000, 1, 10_000_000, "Records kept ready for each partition."
    )
    queued_max_messages_kbytes: int = whole(
        65_536, 1, 2_097_151, "KiB of records kept ready in all."
    )
    debug: str = word("", (), "librdkafka's debug contexts, logged as kohort.client.fetching.")

    kohort_history_file: str = word(
        "", (), "File in which this consumer records its facts, for `kohort check`."
    )

    # No rule: functions are not parsed from text.
    key_deserializer: Deserializer | None = field(default=None, metadata={"rule": None})
    value_deserializer: Deserializer | None = field(default=None, metadata={"rule": None})

    def __post_init__(self) -> None:
        check_security(self)
        object.__setattr__(self, "tokens", token_source(self))
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms is {self.heartbeat_interval_ms}, expected less than "
                f"session.timeout.ms, which is {self.session_timeout_ms}; a third of it is usual"
            )
        for kind in ("retry", "reconnect"):
            first = getattr(self, f"{kind}_backoff_ms")
            longest = getattr(self, f"{kind}_backoff_max_ms")
            if first > longest:
                raise ConfigError(
                    f"{kind}.backoff.ms is {first}, expected at most {kind}.backoff.max.ms, which "
                    f"is {longest}"
                )
        group_id = self.group_id
        if group_id is not None and (not group_id.strip() or "\0" in group_id):
            raise ConfigError(
                f"group.id is {group_id!r}, expected a name: no empty or blank text, and no "
                "character NUL. Leave group.id out to consume without a group"
            )
        for name in ("group.id", "client.id", "group.instance.id"):
            size = len((getattr(self, attribute(name)) or "").encode())
            if size > LONGEST_ID_BYTES:
                raise ConfigError(f"{name} has {size} bytes, expected at most {LONGEST_ID_BYTES}")
        if self.resolution != DESIGN_ONE and COOPERATIVE_STICKY not in self.assignors:
            raise ConfigError(
                "scheduled.rebalance.max.delay.ms, kohort.max.moves.per.round and "
                f"kohort.stateful.topics need {COOPERATIVE_STICKY} in "
                "partition.assignment.strategy, which is "
                f"{self.partition_assignment_strategy}: under an eager assignor every rebalance "
                "takes all partitions"
            )

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The bootstrap servers as (host, port).

        Raises:
            ConfigError: none is given, or one is not ``host:port``.
        """
        return parse_bootstrap(self.bootstrap_servers)

    @property
    def rebootstrap_ms(self) -> Millis | None:
        """Time without metadata after which the bootstrap servers are used again; None if never."""
        never = self.metadata_recovery_strategy == "none"
        return None if never else Millis(self.metadata_recovery_rebootstrap_trigger_ms)

    @property
    def assignors(self) -> tuple[str, ...]:
        """Assignors by wire name, preferred first."""
        return tuple(name for name in self.partition_assignment_strategy.split(",") if name)

    @property
    def resolution(self) -> Resolution:
        """The leader's waits and limits; raises ConfigError for a malformed limit of moves."""
        cost = Millis(self.kohort_move_cost_ms)
        auto = self.scheduled_rebalance_max_delay_ms == AUTO
        if auto != bool(cost):
            raise ConfigError(
                f"scheduled.rebalance.max.delay.ms is {self.scheduled_rebalance_max_delay_ms} and "
                f"kohort.move.cost.ms is {cost}, expected both {AUTO} and a cost, or neither: only "
                "the automatic wait weighs a wait against a move"
            )
        most_moves, interval = (
            moves_limit(self.kohort_max_moves_per_round),
            self.kohort_moves_interval_ms,
        )
        if interval and most_moves is None:
            raise ConfigError(
                f"kohort.moves.interval.ms is {interval}, but kohort.max.moves.per.round is empty: "
                "without a limit one rebalance makes all moves"
            )
        return Resolution(
            most_wait_ms=most_wait_ms(cost) if auto else self._fixed_wait_ms,
            move_cost_ms=cost if auto else None,
            most_moves=most_moves,
            moves_interval_ms=Millis(interval),
        ).with_state(
            self.stateful_topics,
            Millis(self.kohort_handover_timeout_ms),
            self.kohort_standby_replicas,
        )

    @property
    def stateful_topics(self) -> frozenset[str]:
        """The topics with local state."""
        names = (name.strip() for name in self.kohort_stateful_topics.split(","))
        return frozenset(name for name in names if name)

    @property
    def _fixed_wait_ms(self) -> Millis:
        text = self.scheduled_rebalance_max_delay_ms
        if not text.isdecimal() or int(text) > MOST_WAIT_MS:
            raise ConfigError(
                f"scheduled.rebalance.max.delay.ms is {text}, expected milliseconds from 0 to "
                f"{MOST_WAIT_MS}, or {AUTO}"
            )
        return Millis(int(text))

    @property
    def consumer(self) -> ConsumerConfig:
        """The settings of the consumer's core."""
        return ConsumerConfig(
            enable_auto_commit=self.enable_auto_commit,
            auto_commit_interval_ms=Millis(self.auto_commit_interval_ms),
            auto_offset_reset=OffsetReset(self.auto_offset_reset),
            retry_backoff_ms=Millis(self.retry_backoff_ms),
            retry_backoff_max_ms=Millis(self.retry_backoff_max_ms),
        )

    @property
    def fetching(self) -> FetchOptions:
        """The settings of kohort's own range reader."""
        return FetchOptions(
            max_wait_ms=self.fetch_max_wait_ms,
            min_bytes=self.fetch_min_bytes,
            max_bytes=self.fetch_max_bytes,
            partition_max_bytes=min(self.max_partition_fetch_bytes, self.fetch_max_bytes),
            read_committed=self.isolation_level == "read_committed",
            rack_id=self.client_rack,
            check_crcs=self.check_crcs,
        )

    def librdkafka(self) -> dict[str, Any]:
        """The settings of librdkafka, by its names.

        librdkafka only fetches records: it never joins a group, and never commits or resets an
        offset. It gets the group's id only because its consumer does not start without one.
        """
        settings: dict[str, Any] = {
            **self.security_of_librdkafka(),
            **{name: getattr(self, attribute(name)) for name in _AS_LIBRDKAFKA},
            "client.rack": self.client_rack,
            "group.id": self.group_id or self.client_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": self.fetch_max_wait_ms,
            "message.max.bytes": min(1_000_000, self.fetch_max_bytes),
            "receive.message.max.bytes": max(LIBRDKAFKA_RECEIVE_MAX, self.fetch_max_bytes + 512),
            "socket.connection.setup.timeout.ms": max(
                1_000, self.socket_connection_setup_timeout_ms
            ),
            "topic.metadata.refresh.interval.ms": min(3_600_000, self.metadata_max_age_ms),
            "max.poll.interval.ms": 86_400_000,
        }
        if not self.client_rack:
            del settings["client.rack"]
        if self.debug:
            settings["debug"] = self.debug
        return settings


Settings: TypeAlias = ClientSettings | Mapping[str, object] | None
"""Settings as applications give them: parsed ones, or names and values."""


def parse_client_settings(settings: Settings = None, /, **more: object) -> ClientSettings:
    """Build the settings from a mapping, keyword arguments, or both.

    Args:
        settings: values by dotted name (``group.id``) or with underscores (``group_id``).
        more: the same as keyword arguments.

    Raises:
        ConfigError: a name is unknown (the nearest are told) or given twice, or a value is not
            allowed.
    """
    if isinstance(settings, ClientSettings):
        return settings
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings is of type {type(settings).__name__}, expected a mapping of names and "
            "values; subscribe() takes topics"
        )
    pairs: dict[str, object] = {}
    callables: dict[str, Any] = {}
    for given, value in [*(settings or {}).items(), *more.items()]:
        name = dotted(attribute(given))
        name = OTHER_NAMES.get(name, name)
        if name in pairs or name in callables:
            raise ConfigError(f"{name} is given twice")
        if value is None:
            continue
        if (instead := advice(name)) is not None:
            raise ConfigError(f"{name} is not a setting here: {instead}")
        if name in _FUNCTIONS:
            callables[name] = _function(name, value)
        else:
            pairs[name] = one_spelling(name, value)
    # Functions first: other settings are checked together with them.
    functions = {attribute(name): call for name, call in callables.items()}
    return parse_settings(ClientSettings, pairs, functions)


def _function(name: str, value: object) -> Callable[..., Any]:
    if callable(value):
        return value
    raise ConfigError(f"{name} is {value!r}, expected {_FUNCTIONS[name]}")
