"""Numbers about a consumer: counters, gauges and small histograms, with Kafka's names.

In: facts of the driver, records and looks of the poll loop. Out: a mapping of names and numbers.
Must not know: readers of the numbers, the form in which readers want them.

``MemberMeter`` is written on the driver's thread, ``PollMeter`` in the polling thread; any thread
may read both. A reader may see a count before the sum that belongs to the same event.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Final, Protocol

from kohort.client.config import ClientSettings
from kohort.client.errors import WrongUse
from kohort.member.states import REBALANCING, MemberState
from kohort.model.client_facts import (
    ClientFact,
    CommitConcluded,
    CommitSent,
    Outcome,
    RequestSent,
    ResponseReceived,
)
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND, Instant
from kohort.model.member_facts import GenerationJoined, MemberFact, MemberStateChanged
from kohort.model.positions import Position
from kohort.model.wire_facts import GroupApi


class Measured(Protocol):
    """A consumer or another member with metrics."""

    @property
    def settings(self) -> ClientSettings:
        """Its settings."""
        ...

    def metrics(self) -> dict[str, float]:
        """Its numbers by name."""
        ...


def by_client(consumers: Iterable[Measured]) -> dict[tuple[str, str], Measured]:
    """Consumers by group and ``client.id``, which tell their metrics apart.

    Raises:
        WrongUse: two consumers have the same.
    """
    found: dict[tuple[str, str], Measured] = {}
    for consumer in consumers:
        key = consumer.settings.group_id or "", consumer.settings.client_id
        if key in found:
            raise WrongUse(
                f"two members of group {key[0]} have the client.id {key[1]}: give each its own, "
                "so that their metrics can be told apart"
            )
        found[key] = consumer
    return found


class Kind(Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    """One number that only grows."""
    GAUGE = "gauge"
    """One number; its name is missing while there is none."""
    TIMING = "timing"
    """Milliseconds, as six numbers and more, see ``Timing.numbers``."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a consumer: its name, kind and meaning."""

    name: str
    kind: Kind
    doc: str


METRICS: Final = (
    Metric("records-consumed-total", Kind.COUNTER, "Records that were handed out."),
    Metric(
        "bytes-consumed-total",
        Kind.COUNTER,
        "Bytes of the values; if more than 64 records come at once, estimated from every 64th.",
    ),
    Metric("records-per-request-avg", Kind.GAUGE, "Records taken from the fetcher at once."),
    Metric(
        "records-lag-max",
        Kind.GAUGE,
        "Largest lag of one partition in records, by the last fetches; at most 1 s old, or 5 ms "
        "for each partition if there are more than 200.",
    ),
    Metric("poll-total", Kind.COUNTER, "Polls; those from the buffer within 10 ms count once."),
    Metric("time-between-poll", Kind.TIMING, "From the end of a poll to the next poll."),
    Metric("last-poll-seconds-ago", Kind.GAUGE, "Seconds since the last poll."),
    Metric(
        "assigned-partitions",
        Kind.GAUGE,
        "Assigned partitions, by the callbacks so far; of members without partitions, their "
        "resources.",
    ),
    Metric("rebalance-total", Kind.COUNTER, "Rebalances that ended with an assignment."),
    Metric("failed-rebalance-total", Kind.COUNTER, "Attempts that ended without an assignment."),
    Metric("rebalance-latency", Kind.TIMING, "From the decision to join to the assignment."),
    Metric("last-rebalance-seconds-ago", Kind.GAUGE, "Seconds since the last assignment."),
    Metric("join-total", Kind.COUNTER, "JoinGroup requests."),
    Metric("join-time", Kind.TIMING, "Until the answer, with the wait for the other members."),
    Metric("sync-total", Kind.COUNTER, "SyncGroup requests."),
    Metric("sync-time", Kind.TIMING, "Until the answer, with the wait for the leader."),
    Metric("heartbeat-total", Kind.COUNTER, "Heartbeats."),
    Metric("heartbeat-response-time", Kind.TIMING, "Until the answer."),
    Metric("last-heartbeat-seconds-ago", Kind.GAUGE, "Seconds since the last heartbeat."),
    Metric("commit-total", Kind.COUNTER, "Commits, automatic ones included."),
    Metric("failed-commit-total", Kind.COUNTER, "Commits that failed, as a whole or in part."),
    Metric("commit-latency", Kind.TIMING, "Until the end of a commit, failed ones included."),
)
"""All metrics. Names are those of Kafka's Java consumer where it has such a metric."""

LIMITS_MS: Final = (1, 10, 100, 1_000, 10_000, 100_000)
"""Upper bounds of the buckets of a timing, in milliseconds; the last bucket has none."""

_WINDOW_MICROS: Final = 30 * MICROS_PER_SECOND
_LIMITS: Final = tuple(limit * MICROS_PER_MILLI for limit in LIMITS_MS)
_EACH: Final = 64


class Timing:
    """A histogram of times. One thread writes."""

    __slots__ = ("_before", "_counts", "_most", "_total", "_until")

    def __init__(self) -> None:
        self._counts = [0] * (len(_LIMITS) + 1)
        self._total = 0
        self._most = self._before = 0
        """Longest times of the present window of 30 s, and of the window before."""
        self._until = 0

    def add(self, micros: int, now: Instant) -> None:
        """A time of this many microseconds ended now."""
        self._counts[bisect_left(_LIMITS, micros)] += 1
        self._total += micros
        if now >= self._until:
            self._before = self._most if now < self._until + _WINDOW_MICROS else 0
            self._until = now + _WINDOW_MICROS
            self._most = micros
        elif micros > self._most:
            self._most = micros

    def numbers(self, name: str, now: Instant) -> dict[str, float]:
        """The numbers, in milliseconds.

        ``NAME-count``; ``NAME-total``: the sum; ``NAME-le-LIMIT``: how many took at most so long.
        With a first time also ``NAME-avg`` and ``NAME-max``: the longest one of the last 30 to 60
        seconds, or 0.
        """
        *sums, count = accumulate(self._counts)
        total = self._total / MICROS_PER_MILLI
        found: dict[str, float] = {f"{name}-count": count, f"{name}-total": total}
        if count:
            most = max(self._most, self._before) if now < self._until else self._most
            old = now >= self._until + _WINDOW_MICROS
            found[f"{name}-avg"] = total / count
            found[f"{name}-max"] = 0 if old else most / MICROS_PER_MILLI
        for limit, below in zip(LIMITS_MS, sums, strict=True):
            found[f"{name}-le-{limit}"] = below
        return found


_FORWARD: Final = {
    MemberState.PREPARING: MemberState.JOINING,
    MemberState.JOINING: MemberState.SYNCING,
    MemberState.SYNCING: MemberState.STABLE,
}

_REQUESTS: Final = {
    GroupApi.JOIN_GROUP: ("join-total", "join-time"),
    GroupApi.SYNC_GROUP: ("sync-total", "sync-time"),
    GroupApi.HEARTBEAT: ("heartbeat-total", "heartbeat-response-time"),
}


class MemberMeter:
    """Counts facts of a member: rebalances, requests to the coordinator, commits."""

    def __init__(self) -> None:
        self._totals = dict.fromkeys(
            (
                *(total for total, _ in _REQUESTS.values()),
                *("rebalance-total", "failed-rebalance-total"),
                *("commit-total", "failed-commit-total"),
            ),
            0,
        )
        names = (*(time for _, time in _REQUESTS.values()), "rebalance-latency", "commit-latency")
        self._timings = {name: Timing() for name in names}
        self._sent: dict[tuple[str, int], Instant] = {}
        """Instants of the requests and commits without an answer yet."""
        self._joined_at: Instant | None = None
        self._beat_at: Instant | None = None

    def observe(self, fact: ClientFact | MemberFact, now: Instant) -> None:
        """Take note of a fact that happened now."""
        match fact:
            case MemberStateChanged():
                before, after = MemberState(fact.before), MemberState(fact.after)
                goes_on = after in (_FORWARD.get(before), MemberState.LEAVING)
                if before in REBALANCING and not goes_on:
                    self._totals["failed-rebalance-total"] += 1
            case GenerationJoined():
                self._joined_at = now
                self._totals["rebalance-total"] += 1
                self._timings["rebalance-latency"].add(fact.took_ms * MICROS_PER_MILLI, now)
            case RequestSent() | ResponseReceived() if fact.api in _REQUESTS:
                self._request(fact, now)
            case CommitSent():
                self._totals["commit-total"] += 1
                self._sent["", fact.request] = now
            case CommitConcluded():
                sent = self._sent.pop(("", fact.request), now)
                self._timings["commit-latency"].add(now - sent, now)
                if fact.outcome is not Outcome.OK or fact.refused:
                    self._totals["failed-commit-total"] += 1
            case _:
                pass

    def _request(self, fact: RequestSent | ResponseReceived, now: Instant) -> None:
        total, time = _REQUESTS[fact.api]
        if isinstance(fact, RequestSent):
            self._totals[total] += 1
            self._sent[fact.api, fact.request] = now
            if fact.api is GroupApi.HEARTBEAT:
                self._beat_at = now
            return
        sent = self._sent.pop((fact.api, fact.request), now)
        if fact.outcome is not Outcome.UNKNOWN:
            self._timings[time].add(now - sent, now)

    def numbers(self, now: Instant) -> dict[str, float]:
        """The numbers so far."""
        found: dict[str, float] = dict(self._totals)
        for name, timing in self._timings.items():
            found |= timing.numbers(name, now)
        return (
            found | _ago("rebalance", self._joined_at, now) | _ago("heartbeat", self._beat_at, now)
        )


_LAG_MICROS: Final = 5_000
"""Least time between two tellings of all lags, for each partition. The polling thread of an idle
consumer with a thousand partitions spent most of its work on lags that nobody read."""


class PollMeter:
    """Counts polls and records. Nothing here runs for each record."""

    __slots__ = (
        "_between",
        "_bytes",
        "_ends",
        "_lag_due",
        "_looked_at",
        "_polls",
        "_taken",
        "_takes",
        "dropped",
        "goes_on",
        "lag",
    )

    def __init__(self) -> None:
        self._between = Timing()
        self._looked_at: Instant | None = None
        self._polls = self._takes = self._taken = self._bytes = 0
        self.goes_on = False
        """Whether the next look belongs to the same poll as the last one."""
        self.dropped = 0
        """Records that left the buffer without being handed out."""
        self._ends: dict[TopicPartition, int] = {}
        self.lag: Mapping[TopicPartition, int] = {}
        """Records behind the end of each log that is read and has a known end."""
        self._lag_due = 0

    def looked(self, now: Instant) -> bool:
        """A poll looks after the group.

        Returns:
            Whether the lags are to be told: once in a second, of many partitions less often.
        """
        if not self.goes_on:
            self._polls += 1
            if self._looked_at is not None:
                self._between.add(now - self._looked_at, now)
        self.goes_on = False
        self._looked_at = now
        if now < self._lag_due:
            return False
        self._lag_due = now + max(MICROS_PER_SECOND, _LAG_MICROS * len(self.lag))
        return True

    def took(self, records: Sequence[Sized]) -> None:
        """Records were taken from librdkafka; the length of a record is that of its value."""
        count = len(records)
        self._takes += 1
        self._taken += count
        # All lengths of a large list would cost 5 % of an iteration.
        some = records if count <= _EACH else records[self._takes % _EACH :: _EACH]
        self._bytes += sum(map(len, some)) * count // len(some)

    def took_columns(self, rows: int, size: int) -> None:
        """Columns were handed out: this many rows, with this many bytes of values."""
        self._takes += 1
        self._taken += rows
        self._bytes += size

    def lags(
        self,
        positions: Mapping[TopicPartition, Position],
        bounds: Callable[[TopicPartition], tuple[int, int] | None],
    ) -> None:
        """Positions of the partitions that are read; ``bounds`` tells begin and end of their logs.

        A seek makes librdkafka forget the end, and a paused partition is not fetched again. So an
        end that was known before stays known.
        """
        told = {tp: found[1] for tp in positions if (found := bounds(tp)) is not None}
        self._ends = {tp: end for tp, end in (self._ends | told).items() if tp in positions}
        self.lag = {tp: max(0, end - positions[tp].offset) for tp, end in self._ends.items()}

    def numbers(self, buffered: int, now: Instant) -> dict[str, float]:
        """The numbers so far.

        Args:
            buffered: records that were taken and not handed out yet.
            now: the present instant.
        """
        found: dict[str, float] = {
            "records-consumed-total": self._taken - self.dropped - buffered,
            "bytes-consumed-total": self._bytes,
            "poll-total": self._polls,
        }
        if self._takes:
            found["records-per-request-avg"] = self._taken / self._takes
        if lag := self.lag:
            found["records-lag-max"] = max(lag.values())
        found |= self._between.numbers("time-between-poll", now)
        return found | _ago("poll", self._looked_at, now)


def _ago(name: str, at: Instant | None, now: Instant) -> dict[str, float]:
    return {} if at is None else {f"last-{name}-seconds-ago": (now - at) / MICROS_PER_SECOND}
