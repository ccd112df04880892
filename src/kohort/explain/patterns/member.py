"""Patterns of single members: expired, fenced, too slow between two polls, wrong calls.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause, is_benign
from kohort.explain.events import Event, Kind, Side
from kohort.explain.findings import (
    Finding,
    events_of,
    places_of,
    repeated,
    span_text,
    tells_late_poll,
    timeout_near,
)
from kohort.explain.patterns.settings import is_outside
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story, gave_nothing_up

_FAILURES: Final = (
    (
        ("orrect coordinator", "NotCoordinator", "NOT_COORDINATOR", "ot coordinator"),
        "the broker was not the coordinator of the group any more.",
        "This is normal when brokers restart: the client looks for the coordinator and joins "
        "again. In a loop, look why the group's partition of __consumer_offsets moves.",
    ),
    (
        ("loading the group", "oordinatorLoad", "COORDINATOR_LOAD", "oordinator load"),
        "the coordinator was still loading the group.",
        "This is normal after a broker has started. If it lasts, the group's partition of "
        "__consumer_offsets is large: look whether its compaction runs.",
    ),
    (
        ("oordinator not available", "oordinator is not available", "COORDINATOR_NOT_AVAIL"),
        "the group had no coordinator that could answer.",
        "Look at the brokers that hold the group's partition of __consumer_offsets.",
    ),
    (
        ("not aware of this member", "nknown member", "UNKNOWN_MEMBER", "UnknownMember"),
        "the coordinator did not know the member any more.",
        "The member was removed before: look for the end of its session or of its poll interval.",
    ),
    (
        ("ebalanc", "REBALANCE", "eneration"),
        "the group began another rebalance meanwhile.",
        "This happens once in a while. In a loop, look for the member that begins the rebalances.",
    ),
)
"""For each failure of a join: the words of its lines, the reason, the advice."""
_BACK_S: Final = 5.0
"""A process that was restarted needs more than this time to join."""


def static_conflict(story: Story) -> Iterator[Finding]:
    """Two processes use one instance id."""
    events = events_of(story, Kind.FENCED, Kind.CLIENT_FENCED)
    if not events:
        return
    instance = next((e.instance for e in events if e.instance), "")
    named = f" {instance!r}" if instance else ""
    yield Finding(
        name="duplicate instance id",
        says=f"A member with group.instance.id{named} was refused: the coordinator knows that "
        "instance under another member id.",
        advice="Give each process its own group.instance.id. If there is one process only, it was "
        "restarted while the coordinator still had its old member id, for example after the "
        "coordinator moved to another broker: update brokers before 2.4.",
        evidence=places_of(events),
    )


def poll_interval(story: Story) -> Iterator[Finding]:
    """A consumer did not poll in time."""
    leaving = story.examples.get(Kind.LEAVING, [])
    events = events_of(story, Kind.POLL_EXPIRED) or [e for e in leaving if tells_late_poll(e.text)]
    told = [r for r in story.rebalances if tells_late_poll(r.client_reason)]
    if not events and not told:
        return
    limit = next((e.details["limit"] for e in events if "limit" in e.details), "")
    bound = f" of {span_text(int(limit) / 1_000)}" if limit.isdecimal() else ""
    count = max(story.counts[Kind.POLL_EXPIRED], len(told))
    yield Finding(
        name="poll interval",
        says=f"{_capitalized(_names_text(events, told))} did not poll within max.poll.interval.ms"
        f"{bound} and left the group{f', {count} times' if count > 1 else ''}.",
        advice="Processing between two polls takes too long. Take fewer records a poll "
        "(max.poll.records), make processing quicker, or raise max.poll.interval.ms above the "
        "longest processing time.",
        evidence=places_of(events) or places_of(told),
    )


def expiry(story: Story) -> Iterator[Finding]:
    """A member sent no sign of life for its session timeout."""
    events = events_of(story, Kind.EXPIRED, Kind.SESSION_EXPIRED, Kind.UNKNOWN_MEMBER)
    events = [event for event in events if not gave_nothing_up(event)]
    if not events:
        return
    count = sum(story.counts[e] for e in (Kind.EXPIRED, Kind.SESSION_EXPIRED)) - story.too_slow
    count = max(count, story.counts[Kind.UNKNOWN_MEMBER])
    expired = [event for event in events if event.kind is Kind.EXPIRED]
    after = _after_join(story, expired[0]) if expired else None
    timeout = timeout_near(after) if after is not None else ""
    silent = after is not None and bool(timeout)
    by_client = not expired and any(e.kind is Kind.SESSION_EXPIRED for e in events)
    yield Finding(
        name="session expired",
        says=(
            _session_text(story, expired, count, by_client=by_client)
            + (
                f" The first time {span_text(after or 0)} after the member had joined: it sent no "
                f"heartbeat at all ({timeout})."
                if silent
                else ""
            )
        ),
        advice=(
            "The process hung, its pauses are longer than session.timeout.ms, or the coordinator "
            "was stopped or out of reach. Look for long garbage collections, stopped containers, "
            "missing CPU and restarts of brokers at these times."
            if by_client
            else "The process hung, was killed, or its pauses are longer than session.timeout.ms. "
            "Look for long garbage collections, stopped containers and missing CPU at these times; "
            "45 s is today's default."
        )
        + (
            " A client that expires right after each join never got its assignment: look at its "
            "own log."
            if silent
            else ""
        ),
        known=Known.ASSUMED if silent or not (expired or by_client) else Known.MEASURED,
        evidence=places_of(events),
    )


def _names_text(events: Iterable[Event], rows: Iterable[Rebalance] = ()) -> str:
    """The clients or members of events and rows, as a part of a sentence."""
    told: list[Event | Rebalance] = [*events, *rows]
    named = dict.fromkeys(each.instance or each.member or each.client for each in told)
    # One line may name the client id, the next one the member.
    twice = {each.client for each in told if each.instance or each.member} & named.keys()
    names = [name for name in named if name and name not in twice]
    if not names:
        return "a consumer"
    others = len(names) - 1
    return f"consumer {names[0]}" + f" and {others} other{'s' * (others > 1)}" * (others > 0)


def _capitalized(name: str) -> str:
    """The name with a capital letter, for the beginning of a sentence."""
    return name[0].upper() + name[1:]


def _session_text(story: Story, expired: list[Event], count: int, *, by_client: bool) -> str:
    """The sentence about sessions that ended, as the coordinator or as a client reports them."""
    times = repeated(count)
    if not expired and not by_client:
        unknown = story.examples.get(Kind.UNKNOWN_MEMBER, [])
        return (
            f"The coordinator did not know {_names_text(unknown)} any more"
            f"{times}: it had removed the member, most likely for its session timeout."
        )
    if not by_client:
        name = next((e.instance or e.member for e in expired if e.instance or e.member), "a member")
        return f"The coordinator heard nothing of {name} for its session timeout{times}."
    events = story.examples.get(Kind.SESSION_EXPIRED, [])
    waits = [int(ms) / 1_000 for e in events if (ms := e.details.get("ms", "")).isdecimal()]
    after = f" for {span_text(max(waits))}" if waits else " for its session timeout"
    return f"{_capitalized(_names_text(events))} had no answer from the coordinator{after}{times}."


def too_slow(story: Story) -> Iterator[Finding]:
    """A member of KIP-848 kept partitions that it had to give up."""
    events = [e for e in story.examples.get(Kind.EXPIRED, []) if gave_nothing_up(e)]
    if not events:
        return
    limit = span_text(int(events[0].details["ms"]) / 1_000)
    count = repeated(story.too_slow)
    yield Finding(
        name="partitions not given up in time",
        says=f"Member {events[0].member} did not give its partitions up within {limit}, its "
        f"rebalance timeout, and was fenced{count}. Its session had not expired: its heartbeats "
        "came.",
        advice="The application polled too late, or its revocation callback took too long. The "
        "rebalance timeout is max.poll.interval.ms: take fewer records a poll (max.poll.records), "
        "make processing quicker, or raise the timeout.",
        evidence=places_of(events),
    )


def short_session(story: Story) -> Iterator[Finding]:
    """Members expired and came back soon: their processes lived, but paused for too long."""
    static = {r.instance for r in story.rebalances if r.cause is Cause.NEW_MEMBER}
    back = {
        client: after
        for client, after in story.came_back.items()
        if after <= _BACK_S and client not in static
    }
    unknown = events_of(story, Kind.UNKNOWN_MEMBER)
    alive = {e.client for e in unknown} & back.keys()
    if not back:
        yield from _lived(story)
        return
    client, after = min(back.items(), key=lambda item: item[1])
    yield Finding(
        name="session shorter than pauses",
        says=f"Client {client!r} expired and joined again {span_text(after)} later: its process "
        "was not dead, it paused for longer than session.timeout.ms.",
        advice="Raise session.timeout.ms above the longest pause (45 s is today's default), and "
        "look for the pauses: garbage collection, missing CPU, a stopped container.",
        known=Known.MEASURED if alive else Known.BOUNDED,
        evidence=places_of([*events_of(story, Kind.EXPIRED), *unknown]),
    )


def _lived(story: Story) -> Iterator[Finding]:
    """A client was no member any more and joined again: its log shows that its process lived."""
    events = events_of(story, Kind.SESSION_EXPIRED, Kind.UNKNOWN_MEMBER)
    told = [event for event in events if event.at is not None]
    other = (Kind.POLL_EXPIRED, Kind.LEAVING, Kind.LEFT, Kind.EXPIRED, Kind.CLIENT_FENCED)
    if not told or any(story.counts[kind] for kind in other):
        return
    lost = min(event.at for event in told if event.at is not None)
    again = [r for r in story.rebalances if r.joined is not None and r.joined > lost]
    if again:
        after = (again[0].joined or lost) - lost
        yield Finding(
            name="session shorter than pauses",
            says=f"{_capitalized(_names_text(told))} was no member any more, and joined again "
            f"{span_text(after)} later: its process was not dead. It paused for longer than "
            "session.timeout.ms, or its heartbeats did not arrive.",
            advice="Raise session.timeout.ms above the longest pause (45 s is today's default), "
            "and look for the pauses: garbage collection, missing CPU, a stopped container, a "
            "slow network.",
            known=Known.ASSUMED,
            evidence=places_of([*told, again[0]]),
        )


def failed_joins(story: Story) -> Iterator[Finding]:
    """A join had no answer in time, or failed."""
    failed = [e for e in story.examples.get(Kind.JOIN_FAILED, []) if not is_benign(e)]
    failed = [e for e in failed if not is_outside(e)]
    unfit = [e for e in failed if "nconsistent" in e.text]
    if unfit:
        yield Finding(
            name="assignors do not fit",
            says="A join was refused: the member and the group have no assignor in common, or one "
            "of them is no consumer.",
            advice="All members of a group need one common entry in "
            "partition.assignment.strategy. Change assignors in two rolling bounces: first add the "
            "new one, then remove the old one.",
            evidence=places_of(unfit),
        )
        return
    again = story.examples.get(Kind.REQUESTED, [])
    waited = any("imeout" in e.text for e in again)  # brod tells the reason on a line of its own
    late = [
        e
        for e in failed
        if "imed" in e.text or "imeout" in e.text or (e.maker == "brod" and waited)
    ]
    if late:
        yield Finding(
            name="join timed out",
            says="JoinGroup had no answer in time: the coordinator still waited for another "
            "member of the group.",
            advice="Let the client wait longer for JoinGroup than the longest "
            "max.poll.interval.ms (rebalance timeout) of all members; find the member that is "
            "busy.",
            evidence=places_of(late),
        )
    elif failed:
        says, advice = _why_failed(failed)
        yield Finding(name="join failed", says=says, advice=advice, evidence=places_of(failed))


def _why_failed(failed: list[Event]) -> tuple[str, str]:
    """Why a join failed, in a sentence, and the advice; the words of the lines decide."""
    told = [event.reason or event.text for event in failed]
    for words, says, advice in _FAILURES:
        if any(word in text for text in told for word in words):
            return f"A join failed: {says}", advice
    reason = next((event.reason for event in failed if event.reason), "")
    return (
        f"A join failed: {reason[:160].rstrip('.')}."
        if reason
        else "A join failed; the lines do not tell why.",
        "Look at the log of the coordinator of the same time.",
    )


def wrong_use(story: Story) -> Iterator[Finding]:
    """The application calls the client in a wrong way, or asks for too new a protocol."""
    if events := events_of(story, Kind.WRONG_CALL):
        yield Finding(
            name="wrong call",
            says="The application calls assign() in a cooperative group, which takes "
            "incremental_assign() and incremental_unassign() only.",
            advice="Call incremental_assign() and incremental_unassign() in the rebalance "
            "callback, or leave the callback out.",
            evidence=places_of(events),
        )
    if events := events_of(story, Kind.UNSUPPORTED):
        yield Finding(
            name="protocol not supported",
            says="The broker does not support the new group protocol (KIP-848) that the client "
            "asks for.",
            advice="Set group.protocol=classic, or update the brokers to 4.0 and enable "
            "group.version 1.",
            evidence=places_of(events),
        )


def others(story: Story) -> Iterator[Finding]:
    """A client learned that another member began a rebalance."""
    begun = [r for r in story.rebalances if r.cause is Cause.OTHERS]
    events = events_of(story, Kind.HEARTBEAT_REBALANCING)
    found = any(not r.certain and r.side is Side.CLIENT for r in story.rebalances)
    if not begun and (not events or found):
        return
    count = max(len(begun), story.counts[Kind.HEARTBEAT_REBALANCING])
    done = story.counts[Kind.JOINED] + story.counts[Kind.SYNCED]
    end = "" if done else " It had not joined by the end of the log."
    yield Finding(
        name="rebalance of others",
        says=f"The client heard {f'{count} times ' if count > 1 else ''}that another member began "
        f"a rebalance; a client's log does not tell which.{end}",
        advice="Give the log of the broker, or those of the other members, of the same time, too."
        + (
            ""
            if done
            else " A group that stays in a rebalance waits for a member that does not join: one "
            "that is busy between two polls."
        ),
        known=Known.BOUNDED,
        evidence=places_of(events) or places_of(begun),
    )


def _after_join(story: Story, expired: Event) -> float | None:
    """Seconds between the last completed join before an expiry and that expiry."""
    joined = [
        r.joined
        for r in story.rebalances
        if r.joined is not None and expired.at is not None and r.joined <= expired.at
    ]
    return expired.at - max(joined) if joined and expired.at is not None else None
