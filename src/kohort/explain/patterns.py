"""Patterns of failures in a group's story, with the lines that prove them.

In: a finished `Story`. Out: `Finding` values, the most serious first. Must not know: files,
terminals. Each finding says how its numbers are known: measured between two lines, bounded by the
lines that are there, or assumed from the defaults of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import Final

from kohort.explain.causes import Cause
from kohort.explain.events import Event, Kind, Place
from kohort.explain.reading import is_benign
from kohort.explain.stories import Rebalance, Story

STORM_S: Final = 15.0
"""A rebalance that begins so soon after the one before did not come from a deployment."""
HIGH_GENERATION: Final = 1_000
SLOW_S: Final = 8.0
_TIMEOUTS_S: Final = {
    300.0: "max.poll.interval.ms, 5 min by default in Java and librdkafka",
    60.0: "the rebalance timeout of Kafka Connect by default",
    45.0: "session.timeout.ms, 45 s by default since Kafka 3.0",
    30.0: "session.timeout.ms, 30 s by default in old clients",
    10.0: "session.timeout.ms, 10 s by default before Kafka 3.0",
    6.0: "session.timeout.ms, 6 s by default in librdkafka before 1.5",
}
_INITIAL_DELAY_S: Final = 3.0
_POLL_WORDS: Final = ("poll timeout", "poll.interval")
"""Parts of the reasons with which Java's and kohort's members leave."""


class Known(StrEnum):
    """How a number is known."""

    MEASURED = "measured"
    BOUNDED = "bounded"
    ASSUMED = "assumed"
    """A wait was measured, and a default of Kafka or of a client explains the wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One pattern."""

    name: str
    says: str
    """One sentence or two."""
    advice: str = ""
    known: Known = Known.MEASURED
    evidence: tuple[Place, ...] = ()


def findings(story: Story) -> list[Finding]:
    """All patterns in a story, the most serious first."""
    return [found for rule in _RULES for found in rule(story)]


def timeout_near(seconds: float) -> str:
    """The timeout that lasts as long as this wait by default; empty if there is none."""
    for timeout, name in _TIMEOUTS_S.items():
        if timeout - 0.05 <= seconds <= timeout * 1.02 + 0.5:
            return name
    return ""


def span_text(seconds: float) -> str:
    """Seconds for people: ``2 ms``, ``9.8 s``, ``12 min``."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"


# -- rules ----------------------------------------------------------------------------------------


def _static_conflict(story: Story) -> Iterator[Finding]:
    events = _events(story, Kind.FENCED, Kind.CLIENT_FENCED)
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
        evidence=_places(events),
    )


def _storm(story: Story) -> Iterator[Finding]:
    chained = [
        (first, second)
        for first, second in pairwise(story.rebalances)
        if (gap := _gap(first, second)) is not None and gap <= STORM_S
        if second.cause is not Cause.SECOND_ROUND
    ]
    high = (story.generations or (0, 0))[1]
    failed = [e for e in story.examples.get(Kind.JOIN_FAILED, []) if not is_benign(e)]
    restless = high >= HIGH_GENERATION and bool(failed)
    if len(chained) < 2 and not (chained and high >= HIGH_GENERATION) and not restless:
        return
    times = [r.began for r in story.rebalances if r.began is not None]
    steps = [later - earlier for earlier, later in pairwise(times) if later >= earlier]
    every = f", one every {span_text(median(steps))}" if steps else ""
    causes = story.causes.most_common(1)
    mostly = f" Most often {causes[0][0].value}." if causes[0][0] is not Cause.UNTOLD else ""
    yield Finding(
        name="storm",
        says=f"Rebalances follow each other without rest{every}; the generation is {high:,}."
        f"{mostly}",
        advice=_storm_advice(story),
        evidence=tuple(r.place for pair in chained[:2] for r in pair)[:3] or _places(failed),
    )


def _storm_advice(story: Story) -> str:
    joined = story.joined_clients
    if story.causes[Cause.NEW_MEMBER] >= max(1, story.causes[Cause.LEADER_REJOINED]):
        who = f" ({', '.join(repr(c) for c, _ in joined.most_common(2))})" if joined else ""
        return (
            f"The same clients join again and again{who}. Look whether a process makes more than "
            "one consumer of the group, or ends and starts in a loop; a client joins with a "
            "new id each time if its JoinGroup times out."
        )
    if story.causes[Cause.LEADER_REJOINED]:
        return (
            "The leader joins again after each rebalance: its assignment is not what it wants, or "
            "its metadata changes. Compare the assignors and the topics of all members."
        )
    return "Find the member that begins most rebalances, and look at its log of the same time."


def _slow_join(story: Story) -> Iterator[Finding]:
    slow = [r for r in story.rebalances if (r.join_s or 0) >= SLOW_S]
    if not slow:
        return
    longest = max(slow, key=lambda r: r.join_s or 0)
    seconds = longest.join_s or 0
    timeout = timeout_near(seconds)
    waited = f", as long as {timeout}" if timeout else ""
    gone = [e for e in _events(story, Kind.REMOVED_LATE, Kind.LEFT) if _at(e, longest.joined)]
    left = f" {gone[0].member or 'A member'} left in the same moment." if gone else ""
    yield Finding(
        name="slow joiner",
        says=f"The coordinator waited {span_text(seconds)} for members to join generation "
        f"{longest.generation}{waited}.{left}",
        advice="A member was busy and did not poll: an eager group stands still for that time. "
        "Poll more often (smaller max.poll.records), or move slow work off the polling thread; a "
        "shorter max.poll.interval.ms bounds the wait.",
        evidence=(longest.place, *_places(gone)),
    )


def _poll_interval(story: Story) -> Iterator[Finding]:
    events = _events(story, Kind.POLL_EXPIRED)
    told = [r for r in story.rebalances if any(w in r.client_reason for w in _POLL_WORDS)]
    if not events and not told:
        return
    limit = next((e.details["limit"] for e in events if "limit" in e.details), "")
    bound = f" of {span_text(int(limit) / 1_000)}" if limit.isdecimal() else ""
    count = max(story.counts[Kind.POLL_EXPIRED], len(told))
    yield Finding(
        name="poll interval",
        says=f"A consumer did not poll within max.poll.interval.ms{bound} and left the group"
        f"{f', {count} times' if count > 1 else ''}.",
        advice="Processing between two polls takes too long. Take fewer records a poll "
        "(max.poll.records), make processing quicker, or raise max.poll.interval.ms above the "
        "longest processing time.",
        evidence=_places(events) or tuple(r.place for r in told[:3]),
    )


def _expiry(story: Story) -> Iterator[Finding]:
    events = _events(story, Kind.EXPIRED, Kind.SESSION_EXPIRED, Kind.UNKNOWN_MEMBER)
    if not events:
        return
    count = sum(story.counts[e] for e in (Kind.EXPIRED, Kind.SESSION_EXPIRED))
    count = max(count, story.counts[Kind.UNKNOWN_MEMBER])
    expired = story.examples.get(Kind.EXPIRED, [])
    after = _after_join(story, expired[0]) if expired else None
    timeout = timeout_near(after) if after is not None else ""
    silent = after is not None and bool(timeout)
    yield Finding(
        name="session expired",
        says=(
            f"The coordinator heard nothing of a member for its session timeout"
            f"{f', {count} times' if count > 1 else ''}."
            + (
                f" The first time {span_text(after or 0)} after the member had joined: it sent no "
                f"heartbeat at all ({timeout})."
                if silent
                else ""
            )
        ),
        advice="The process hung, was killed, or its pauses are longer than session.timeout.ms. "
        "Look for long garbage collections, stopped containers and missing CPU at these times; 45 "
        "s is today's default."
        + (
            " A client that expires right after each join never got its assignment: look at its "
            "own log."
            if silent
            else ""
        ),
        known=Known.ASSUMED if silent else Known.MEASURED,
        evidence=_places(events),
    )


def _restarts(story: Story) -> Iterator[Finding]:
    """Members leave and come back without an instance id: a deployment."""
    left = story.counts[Kind.LEFT] + story.counts[Kind.EXPIRED]
    again = list(story.returned)
    static = any((r.static or 0) > 0 or r.instance for r in story.rebalances)
    if left < 2 or not again or static:
        return
    yield Finding(
        name="deploy without static ids",
        says=f"{left} members left, and members with the same client ids joined "
        f"({', '.join(sorted(again)[:3])}); none has a group.instance.id. Each restart costs two "
        "rebalances.",
        advice="Give each process a stable group.instance.id, and a session timeout longer than a "
        "restart: then a restart costs no rebalance. Or wait for members: "
        "scheduled.rebalance.max.delay.ms of kohort.",
        known=Known.BOUNDED,
        evidence=_places(_events(story, Kind.LEFT, Kind.EXPIRED)),
    )


def _crash_loop(story: Story) -> Iterator[Finding]:
    for client, joins in story.joined_clients.most_common(1):
        if joins < 3 or story.left_clients[client] > joins // 2:
            return
        events = [r for r in story.rebalances if client in {r.client, r.member}]
        yield Finding(
            name="crash loop",
            says=f"Clients named {client!r} joined {joins} times with new member ids and left "
            f"{story.left_clients[client]} times.",
            advice="A process dies and starts again, or makes a new consumer for each attempt and "
            "does not close the old one. Close consumers, and look why the process ends.",
            known=Known.BOUNDED,
            evidence=tuple(r.place for r in events[:3]),
        )


def _coordinator(story: Story) -> Iterator[Finding]:
    moved = _events(story, Kind.LOADED, Kind.UNLOADED, Kind.COORDINATOR_MOVED)
    lost = _events(story, Kind.COORDINATOR_LOST)
    if moved:
        yield Finding(
            name="coordinator moved",
            says="The group was loaded or unloaded by a broker: its coordinator moved or was "
            "restarted. Members find the new one by themselves.",
            advice="This is normal when brokers restart. A member is removed if its session ends "
            "meanwhile.",
            evidence=_places(moved),
        )
    if lost:
        count = story.counts[Kind.COORDINATOR_LOST]
        found = story.counts[Kind.COORDINATOR_FOUND]
        loop = f" and found it {found} times" if found else ""
        yield Finding(
            name="coordinator lost",
            says=f"The client lost its coordinator{f' {count} times' if count > 1 else ''}{loop}.",
            advice="Look at the broker of that id: whether it was restarted, overloaded, or "
            "unreachable from this client (advertised.listeners).",
            evidence=_places(lost),
        )


def _failed_joins(story: Story) -> Iterator[Finding]:
    failed = [e for e in story.examples.get(Kind.JOIN_FAILED, []) if not is_benign(e)]
    late = [e for e in failed if "imed" in e.text or "imeout" in e.text or e.maker == "brod"]
    if late:
        yield Finding(
            name="join timed out",
            says="JoinGroup had no answer in time: the coordinator still waited for another "
            "member of the group.",
            advice="Let the client wait longer for JoinGroup than the longest "
            "max.poll.interval.ms (rebalance timeout) of all members; find the member that is "
            "busy.",
            evidence=_places(late),
        )
    elif failed:
        yield Finding(
            name="join failed",
            says="A join failed because the group began another rebalance meanwhile.",
            advice="This happens once in a while. In a loop, look for the member that begins the "
            "rebalances.",
            evidence=_places(failed),
        )


def _leader(story: Story) -> Iterator[Finding]:
    waiting = [
        r
        for r, after in pairwise(story.rebalances)
        if r.joined is not None and r.assigned is None and after.cause is Cause.SYNC_EXPIRED
    ]
    if waiting:
        yield Finding(
            name="leader cannot sync",
            says=f"{len(waiting)} times all members had joined, and the leader sent no assignment "
            "until the wait ended.",
            advice="The leader is stuck in its assignor, or its SyncGroup is refused: look at the "
            "log of the member that the coordinator named as leader before.",
            evidence=tuple(r.place for r in waiting[:3]),
        )
    if story.causes[Cause.STORE_FAILED]:
        failed = [r for r in story.rebalances if r.cause is Cause.STORE_FAILED]
        yield Finding(
            name="group record too large",
            says="The broker could not store the assignment of the group.",
            advice="Usually the record is larger than the broker's message.max.bytes: use fewer "
            "members or topics in one group, or raise the limit of __consumer_offsets. Otherwise "
            "too few replicas are in sync.",
            evidence=tuple(r.place for r in failed[:3]),
        )


def _lone_member(story: Story) -> Iterator[Finding]:
    last = story.rebalances[-1] if story.rebalances else None
    high = (story.generations or (0, 0))[1]
    if last is not None and last.members == 1 and high >= HIGH_GENERATION:
        yield Finding(
            name="lone member",
            says=f"Generation {high:,} has one member. Other consumers that still run are not "
            "members any more; their records are processed twice.",
            advice="Compare the number of running processes with the members of the group "
            "(kohort groups describe --members). A consumer that is no member must stop: look for "
            "clients that ignore UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION.",
            known=Known.BOUNDED,
            evidence=(last.place,),
        )


def _wrong_use(story: Story) -> Iterator[Finding]:
    if events := _events(story, Kind.WRONG_CALL):
        yield Finding(
            name="wrong call",
            says="The application calls assign() in a cooperative group, which takes "
            "incremental_assign() and incremental_unassign() only.",
            advice="Call incremental_assign() and incremental_unassign() in the rebalance "
            "callback, or leave the callback out.",
            evidence=_places(events),
        )
    if events := _events(story, Kind.UNSUPPORTED):
        yield Finding(
            name="protocol not supported",
            says="The broker does not support the new group protocol (KIP-848) that the client "
            "asks for.",
            advice="Set group.protocol=classic, or update the brokers to 4.0 and enable "
            "group.version 1.",
            evidence=_places(events),
        )


def _others(story: Story) -> Iterator[Finding]:
    """A client learned that another member began a rebalance."""
    begun = [r for r in story.rebalances if r.cause is Cause.OTHERS]
    events = _events(story, Kind.HEARTBEAT_REBALANCING)
    if not begun and not events:
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
        evidence=_places(events) or tuple(r.place for r in begun[:3]),
    )


def _protocols(story: Story) -> Iterator[Finding]:
    new = _events(story, Kind.EPOCH, Kind.TARGET, Kind.RECONCILED, Kind.CONVERTED)
    if new:
        yield Finding(
            name="new group protocol",
            says="The coordinator itself assigns (KIP-848): epochs take the place of generations, "
            f"up to {(story.generations or (0, 0))[1]:,} here, and only the members of moving "
            "partitions stop.",
            evidence=_places(new),
        )
    joined = story.examples.get(Kind.JOINED, [])
    cooperative = [e for e in joined if "cooperative" in e.details.get("protocol", "")]
    if cooperative:
        yield Finding(
            name="cooperative",
            says="The group moves partitions in two rounds; partitions that stay are read all the "
            "time.",
            evidence=_places(cooperative),
        )


def _rest(story: Story) -> Iterator[Finding]:
    benign = [
        e
        for kind in (Kind.REQUESTED, Kind.JOIN_FAILED)
        for e in story.examples.get(kind, [])
        if is_benign(e)
    ]
    if benign:
        yield Finding(
            name="normal first join",
            says="MEMBER_ID_REQUIRED is no failure: each new member gets its id this way (KIP-394) "
            "and joins again at once.",
            evidence=_places(benign),
        )
    first = next((r for r in story.rebalances if r.before == 0 and r.join_s is not None), None)
    if first is not None and _INITIAL_DELAY_S - 0.05 <= (first.join_s or 0) <= 4:
        yield Finding(
            name="initial delay",
            says=f"The first rebalance waited {span_text(first.join_s or 0)} for more members: "
            "group.initial.rebalance.delay.ms, 3 s by default.",
            known=Known.ASSUMED,
            evidence=(first.place,),
        )
    if events := _events(story, Kind.EMPTY):
        yield Finding(
            name="empty",
            says="The last member went; the group was empty.",
            evidence=_places(events),
        )


_RULES: Final[tuple[Callable[[Story], Iterator[Finding]], ...]] = (
    _static_conflict,
    _storm,
    _slow_join,
    _poll_interval,
    _expiry,
    _crash_loop,
    _restarts,
    _leader,
    _failed_joins,
    _lone_member,
    _coordinator,
    _wrong_use,
    _others,
    _protocols,
    _rest,
)


# -- parts ----------------------------------------------------------------------------------------


def _events(story: Story, *kinds: Kind) -> list[Event]:
    return [event for kind in kinds for event in story.examples.get(kind, [])]


def _places(events: list[Event]) -> tuple[Place, ...]:
    return tuple(event.place for event in events[:3])


def _gap(first: Rebalance, second: Rebalance) -> float | None:
    """Seconds of rest between two rebalances; None if unknown."""
    if first.ended is None or second.began is None or second.began < first.ended:
        return None
    return second.began - first.ended


def _at(event: Event, at: float | None) -> bool:
    return event.at is not None and at is not None and abs(event.at - at) < 1


def _after_join(story: Story, expired: Event) -> float | None:
    """Seconds between the last completed join before an expiry and that expiry."""
    joined = [
        r.joined
        for r in story.rebalances
        if r.joined is not None and expired.at is not None and r.joined <= expired.at
    ]
    return expired.at - max(joined) if joined and expired.at is not None else None
