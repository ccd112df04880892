"""The figures of a deployment: settings, times and sizes, each with how it is known.

In: the lives of one group's members, its rebalances. Out: `Figure` values by name; times are in
milliseconds. Must not know: events to replay, the lab.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.findings import span_text
from kohort.explain.lives import Lives
from kohort.explain.rebalances import Rebalance

KOHORTS_LOOK_MS: Final = 50
"""The time between two looks of a waiting poll of kohort's consumer at the group."""
_OF_HISTORIES: Final = ("poll", "flush", "restore", "restore again")
"""Samples that only histories have."""
_KAFKA_3: Final = 3.0
"""Since this version the default of ``session.timeout.ms`` is 45 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A setting or a number of the deployment."""

    value: float | str
    known: Known
    source: str
    """Where the value comes from, in words."""


def settings_of(
    rebalances: Iterable[Rebalance], lives: Lives, versions: tuple[float, float] | None
) -> dict[str, Figure]:
    """All figures that do not depend on events, by name.

    Args:
        rebalances: the rebalances of the group.
        lives: the lives of its members.
        versions: the versions of Kafka, as in `Story`.
    """
    rows = list(rebalances)
    old = versions is not None and versions[1] < _KAFKA_3
    session = _most_frequent(lives.sessions, 10.0 if old else 45.0, "of Kafka's clients")
    static = sum(bool(life.instance) for life in lives.lives.values())
    return {
        "partition.assignment.strategy": _strategy(lives),
        "group.instance.id": _measured("each", f"{static} members with an instance id")
        if static
        else _measured("none", "no member has one"),
        "session.timeout.ms": session,
        "heartbeat.interval.ms": _median_figure(
            lives, "heartbeat", 5_000 if lives.server_side else 3_000, "heartbeats"
        ),
        "max.poll.interval.ms": _most_frequent(
            lives.rebalances or _poll_waits(rows), 300.0, "of Kafka's clients"
        ),
        "group.initial.rebalance.delay.ms": _initial_delay(rows),
        "auto.commit.interval.ms": _median_figure(lives, "commit", 5_000, "commits"),
        "scheduled.rebalance.max.delay.ms": assumed_figure(0, "no sign of a wait for lost members"),
        "batch.ms": _batch(lives),
        "records.per.second": _rate(lives),
        **_flush(lives),
        **_restore(lives),
        **_look_interval(lives),
    }


def assumed_figure(value: float | str, source: str) -> Figure:
    """A figure that no source tells; ``source`` says where the value comes from."""
    return Figure(value=value, known=Known.ASSUMED, source=source)


def _measured(value: float | str, source: str) -> Figure:
    return Figure(value=value, known=Known.MEASURED, source=source)


def _most_frequent(seconds: Counter[float], default_s: float, owner: str) -> Figure:
    """The most frequent value, in milliseconds."""
    if not seconds:
        return assumed_figure(round(default_s * 1_000), f"the default {owner}")
    value, count = seconds.most_common(1)[0]
    others = f"; others have {', '.join(f'{s:g} s' for s in sorted(seconds) if s != value)[:60]}"
    return _measured(round(value * 1_000), f"told {count} times" + others * (len(seconds) > 1))


def _poll_waits(rebalances: Iterable[Rebalance]) -> Counter[float]:
    """Waits for members that lasted as long as a usual ``max.poll.interval.ms``."""
    waits = (r.join_s for r in rebalances if r.join_s is not None)
    return Counter(limit for wait in waits for limit in (300.0, 60.0) if 0 <= wait - limit <= 2)


def _strategy(lives: Lives) -> Figure:
    if lives.server_side:
        return _measured("kip-848", "the group uses the new protocol")
    if lives.last_protocol:
        return _measured(lives.last_protocol, "the group's own records")
    if lives.protocols:
        value = lives.protocols.most_common(1)[0][0]
        return Figure(
            value=value, known=Known.BOUNDED, source="members join again after a revocation"
        )
    return assumed_figure("range", "the default of Kafka's clients")


def _median_figure(lives: Lives, name: str, default_ms: int, what: str) -> Figure:
    """The median of samples, in milliseconds."""
    seconds = [each for each, _ in lives.samples.get(name, ())]
    if len(seconds) < 3:
        return assumed_figure(default_ms, "Kafka's default")
    millis = max(1, round(median(seconds) * 1_000))
    return _measured(millis, f"median between {len(seconds)} {what}")


def _batch(lives: Lives) -> Figure:
    """The time between two polls. A live consumer records a poll at most once a second."""
    polls = [seconds for seconds, records in lives.samples.get("poll", ()) if records]
    if len(polls) < 3:
        return assumed_figure(200, "no source tells the time between two polls")
    usual = median(polls)
    if usual < 1:
        return _measured(max(1, round(fmean(polls) * 1_000)), f"mean between {len(polls)} polls")
    return Figure(
        value=max(1, round((usual - 1) * 1_000)),
        known=Known.BOUNDED,
        source="from the polls that are recorded once a second",
    )


def _rate(lives: Lives) -> Figure:
    rates = [rate for rate, _ in lives.samples.get("rate", ())]
    if len(rates) < 3:
        return assumed_figure(1.0, "no source tells how fast offsets grow")
    source = f"median over {len(rates)} commits, for each partition"
    return _measured(round(median(rates), 3), source)


def _flush(lives: Lives) -> dict[str, Figure]:
    """The time of a revocation callback: once, and for each partition, by least squares."""
    samples = [(count, seconds) for seconds, count in lives.samples.get("flush", ()) if count]
    if not samples:
        none = assumed_figure(0, "no source tells the time of revocation callbacks")
        return {"flush.ms": none, "flush.each.ms": none}
    counts = [count for count, _ in samples]
    mean_count, mean_s = fmean(counts), fmean(seconds for _, seconds in samples)
    spread = sum((count - mean_count) ** 2 for count in counts)
    each = (
        sum((c - mean_count) * (s - mean_s) for c, s in samples) / spread
        if spread
        else mean_s / mean_count
    )
    each = min(max(0.0, each), mean_s / mean_count)
    source = f"{len(samples)} revocation callbacks"
    return {
        name: _measured(round(1_000 * value), source)
        for name, value in (("flush.ms", mean_s - each * mean_count), ("flush.each.ms", each))
    }


def _restore(lives: Lives) -> dict[str, Figure]:
    """The time from the assignment's callback until a partition is read: first, and again."""
    first = [seconds for seconds, _ in lives.samples.get("restore", ())]
    again = [seconds for seconds, _ in lives.samples.get("restore again", ())]
    if not first and not again:
        none = assumed_figure(0, "no source tells the time from an assignment to the first read")
        return {"restore.ms": none, "restore.again.ms": none}
    return {
        name: _measured(round(1_000 * fmean(samples)), f"mean of {len(samples)} partitions")
        for name, samples in (("restore.ms", first or again), ("restore.again.ms", again or first))
    }


def _look_interval(lives: Lives) -> dict[str, Figure]:
    """The time between two looks of a waiting poll at the group, if kohort's consumers have one."""
    if not any(lives.samples.get(name) for name in _OF_HISTORIES):
        return {}
    source = "the evidence has histories of kohort's consumers"
    return {"look.ms": _measured(KOHORTS_LOOK_MS, source)}


def _initial_delay(rebalances: Iterable[Rebalance]) -> Figure:
    first = [
        r.join_s
        for r in rebalances
        if r.join_s is not None and (r.before == 0 or r.generation == 1)
    ]
    if first:
        return Figure(
            value=round(min(first), 1) * 1_000,
            known=Known.BOUNDED,
            source=f"the first generation came after {span_text(min(first))}",
        )
    return assumed_figure(3_000, "Kafka's default")


def partitions_of_group(lives: Lives, rebalances: Iterable[Rebalance], members: int) -> Figure:
    """The number of partitions; one for each member if no source tells it."""
    if lives.topics:
        source = f"of {len(lives.topics)} topics" if len(lives.topics) > 1 else "of one topic"
        return _measured(sum(lives.topics.values()), source)
    if told := max((r.partitions or 0 for r in rebalances), default=0):
        return _measured(told, "with an owner")
    return assumed_figure(members, "logs of brokers name no partitions: one for each member")
