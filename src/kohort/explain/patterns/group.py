"""Patterns of a whole group: storms, deployments, crash loops, long waits, a lone member.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause, is_benign
from kohort.explain.events import Event, Kind, Side
from kohort.explain.findings import (
    Finding,
    events_of,
    places_of,
    rest_between,
    span_text,
    tells_late_poll,
    timeout_near,
)
from kohort.explain.rebalances import Ending, Rebalance
from kohort.explain.stories import Story

STORM_S: Final = 15.0
"""Rebalances that follow each other within this time have no rest between them."""
_CHAINED: Final = 2
"""This many pairs of rebalances without rest are a storm."""
_RESTART_S: Final = 2.0
"""No process restarts in less time."""
_ALONE_S: Final = 0.05
"""Another member's heartbeat, which tells the member to join, rarely comes within this time."""
_MOST_UNCOUNTED: Final = 6
"""Up to this many rebalances without rest may be a start of the group, if the log does not count
members (Kafka 2.7 and before)."""
_NEW_IDS: Final = 3
"""A client with more member ids, one after the other, is in a crash loop."""
HIGH_GENERATION: Final = 1_000
_CALM_S: Final = 60.0
"""A log with fewer rebalances than one in this time shows a group at rest."""
SLOW_S: Final = 8.0
_STATIC_IDS: Final = (
    "Give each process a stable group.instance.id, and a session timeout longer than a restart: "
    "then a restart costs no rebalance. Or wait for members: scheduled.rebalance.max.delay.ms of "
    "kohort."
)


def storm(story: Story) -> Iterator[Finding]:
    """Rebalances follow each other without rest, and no start or restart of members explains them.

    Several joins or leaves within `STORM_S` are a storm only if the log shows that members do not
    stay: the number of members does not add up, or no other member joins. In a short log a high
    generation needs less evidence, because many rebalances came before. In a log with long rests
    the number proves nothing: the group may have lived for years.
    """
    runs = list(_without_rest(story))
    chained = [pair for run in runs for pair in _chained(run)]
    sure = len(chained) >= _CHAINED
    high = (story.generations or (0, 0))[1]
    failed = [e for e in story.examples.get(Kind.JOIN_FAILED, []) if not is_benign(e)]
    if high >= HIGH_GENERATION and not sure and not _calm(story):
        chained = chained or [p for run in runs if not _adds_up(run) for p in _pairs(run)]
    elif not sure:
        return
    if not chained and not failed:
        return
    begun = (r.began if r.began is not None else r.ended for r in story.rebalances)
    times = [at for at in begun if at is not None]
    steps = [later - earlier for earlier, later in pairwise(times) if later >= earlier]
    every = f", one every {span_text(median(steps))}" if steps else ""
    causes = story.causes.most_common(1)
    told = causes[0][0] if causes else Cause.UNTOLD
    mostly = f" Most often {told.value}." if told is not Cause.UNTOLD else ""
    yield Finding(
        name="storm",
        says=f"Rebalances follow each other without rest{every}"
        f"{f'; the generation is {high:,}' if high else ''}.{mostly}",
        advice=_storm_advice(story),
        known=Known.MEASURED if sure else Known.ASSUMED,
        evidence=places_of(r for pair in chained for r in pair) or places_of(failed),
    )


def _calm(story: Story) -> bool:
    """Whether the log has long rests between rebalances."""
    if story.first is None or story.last is None:
        return False
    return story.last - story.first > _CALM_S * max(1, story.total)


def storms(story: Story) -> Iterator[list[Rebalance]]:
    """The rebalances of each storm: without rest, and no start or restart explains them."""
    yield from (run for run in _without_rest(story) if len(_chained(run)) >= _CHAINED)


def _chained(run: list[Rebalance]) -> list[tuple[Rebalance, Rebalance]]:
    """The pairs of neighbours in which the second is not part of a start or a restart."""
    joins = Counter(each.member for each in run if each.cause is Cause.NEW_MEMBER and each.member)
    added = _adds_up(run)
    orderly = added if added is not None else len(run) <= _MOST_UNCOUNTED
    return [
        pair
        for pair in _pairs(run)
        if not orderly or joins[pair[1].member] > 1 or not _is_start_or_deploy(*pair)
    ]


def _without_rest(story: Story) -> Iterator[list[Rebalance]]:
    """Runs of rebalances; in a run, each begins within `STORM_S` after the one before."""
    run: list[Rebalance] = []
    for each in story.rebalances:
        gap = rest_between(run[-1], each) if run else None
        if gap is None or gap > STORM_S:
            yield run
            run = []
        run.append(each)
    yield run


def _pairs(run: list[Rebalance]) -> Iterator[tuple[Rebalance, Rebalance]]:
    """Pairs of neighbours, without the second rounds of cooperative rebalances and restarts."""
    for first, second in pairwise(run):
        if second.cause is not Cause.SECOND_ROUND and not _is_restart(first, second):
            yield first, second


def _is_start_or_deploy(first: Rebalance, second: Rebalance) -> bool:
    """Whether the second rebalance is a join or an orderly leave, as in a start or a deployment."""
    joined = second.cause is Cause.NEW_MEMBER
    others = second.cause is Cause.OTHERS  # as a client tells any of these
    if not joined and not others and not _left_in_order(second):
        return False
    return not (joined and (_joined_alone(first) or _joined_alone(second)))


def _adds_up(run: list[Rebalance]) -> bool | None:
    """Whether members that joined stayed until they left; None if the log tells no numbers.

    A rebalance names one member only. Up to half of the joins may hide the leave of another member.
    """
    counted = [n for n, each in enumerate(run) if each.members is not None]
    if len(counted) < 2:
        return None
    first, last = counted[0], counted[-1]
    later = Counter(each.cause for each in run[first + 1 : last + 1])
    joins = later[Cause.NEW_MEMBER]
    gone = later[Cause.LEFT] + later[Cause.EXPIRED] + later[Cause.GONE]
    expected = (run[first].members or 0) + joins - gone
    return expected - (run[last].members or 0) <= max(1, joins // 2)


def _joined_alone(each: Rebalance) -> bool:
    """Whether the new member joined alone: other members join only after their next heartbeat."""
    return (
        each.cause is Cause.NEW_MEMBER
        and bool(each.before)
        and each.join_s is not None
        and each.join_s < _ALONE_S
        and (each.members or 1) == 1
    )


def _left_in_order(each: Rebalance) -> bool:
    """Whether the member left in order, or the source does not tell how the member went."""
    if each.cause is Cause.GONE:
        return True
    return each.cause is Cause.LEFT and not tells_late_poll(each.client_reason)


def _is_restart(left: Rebalance, joined: Rebalance) -> bool:
    """Whether a process ended in order and came back: a deployment, no storm."""
    gap = rest_between(left, joined) or 0.0
    return _left_in_order(left) and joined.cause is Cause.NEW_MEMBER and gap >= _RESTART_S


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


def restarts(story: Story) -> Iterator[Finding]:
    """Members leave and come back without an instance id: a deployment."""
    left = story.counts[Kind.LEFT] + story.counts[Kind.EXPIRED] or story.left_clients.total()
    again = list(story.returned)
    static = any((r.static or 0) > 0 or r.instance for r in story.rebalances)
    if static:
        return
    if left < 2 or story.returned.total() < 2:
        yield from _restarted_clients(story)
        return
    yield Finding(
        name="deploy without static ids",
        says=f"{left} members left or expired, and members with the same client ids joined "
        f"({', '.join(sorted(again)[:3])}); none has a group.instance.id. Each restart costs two "
        "rebalances.",
        advice=_STATIC_IDS,
        known=Known.BOUNDED,
        evidence=places_of(events_of(story, Kind.LEFT, Kind.EXPIRED))
        or places_of(r for r in story.rebalances if r.cause is Cause.GONE),
    )


def _restarted_clients(story: Story) -> Iterator[Finding]:
    """Clients left, and joined again with new member ids: their own logs tell both."""
    left = {
        event.client: event
        for event in story.examples.get(Kind.LEAVING, [])
        if event.client and not tells_late_poll(event.text)
    }
    again = {
        row.client: row
        for row in story.rebalances
        if row.side is Side.CLIENT
        and row.member
        and (leave := left.get(row.client)) is not None
        and row.member != leave.member
        and (row.began or 0) > (leave.at or 0)
    }
    if len(again) < 2:
        return
    yield Finding(
        name="deploy without static ids",
        says=f"{len(again)} clients left and joined again with new member ids "
        f"({', '.join(sorted(again)[:3])}); none has a group.instance.id. Each restart costs two "
        "rebalances.",
        advice=_STATIC_IDS,
        known=Known.BOUNDED,
        evidence=places_of([*left.values(), *again.values()]),
    )


def crash_loop(story: Story) -> Iterator[Finding]:
    """Clients of one name join again and again with new member ids."""
    yield from _new_ids(story)
    for client, joins in story.joined_clients.most_common(1):
        left = story.left_clients[client]
        if joins < 3 or left > joins // 2 or _adds_up(list(story.rebalances)):
            return
        events = [r for r in story.rebalances if client in {r.client, r.member}]
        yield Finding(
            name="crash loop",
            says=f"Clients named {client!r} joined {joins} times with new member ids"
            + (f" and left {left} times." if _tells_leaves(story) else "."),
            advice="A process dies and starts again, or makes a new consumer for each attempt and "
            "does not close the old one. Close consumers, and look why the process ends.",
            known=Known.BOUNDED,
            evidence=places_of(events),
        )


def _new_ids(story: Story) -> Iterator[Finding]:
    """The log of one client has a new member id again and again, and never an old one."""
    ids: dict[str, dict[str, Rebalance]] = {}
    for each in story.rebalances:
        if each.side is Side.CLIENT and each.client and each.member:
            known = ids.setdefault(each.client, {})
            if each.member in known and each.member != next(reversed(known)):
                return  # several processes have this client id
            known.setdefault(each.member, each)
    for client, rows in ids.items():
        if len(rows) > _NEW_IDS:
            yield Finding(
                name="crash loop",
                says=f"Client {client!r} joined with {len(rows)} member ids, one after the other.",
                advice="Its process dies and starts again, or makes a new consumer for each "
                "attempt. Close consumers, and look why the process ends.",
                known=Known.BOUNDED,
                evidence=places_of(rows.values()),
            )
            return


def _tells_leaves(story: Story) -> bool:
    """Whether the sources tell each leave. The offsets topic tells one change a generation."""
    return story.causes[Cause.GONE] == 0 and any(r.side is Side.BROKER for r in story.rebalances)


def lone_member(story: Story) -> Iterator[Finding]:
    """One member is left of a group with many generations."""
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


_ADVICE_BUSY: Final = (
    "A member was busy and did not poll: an eager group stands still for that time. Poll more "
    "often (smaller max.poll.records), or move slow work off the polling thread; a shorter "
    "max.poll.interval.ms bounds the wait."
)
_ADVICE_DEAD: Final = (
    "That member sent no heartbeat at last: its process had ended or hung, and an eager group "
    "stands still until the member's session ends. Close consumers when a process ends, so that "
    "they leave at once; a shorter session.timeout.ms bounds the wait."
)


def slow_join(story: Story) -> Iterator[Finding]:
    """The coordinator waited long for members."""
    slow = [r for r in story.rebalances if (r.join_s or 0) >= SLOW_S]
    if not slow:
        return
    longest = max(slow, key=lambda r: r.join_s or 0)
    seconds = longest.join_s or 0
    timeout = timeout_near(seconds)
    waited = f", as long as {timeout}" if timeout else ""
    gone = [e for e in events_of(story, Kind.REMOVED_LATE, Kind.LEFT) if _at(e, longest.joined)]
    left = f" {gone[0].member or 'A member'} left in the same moment." if gone else ""
    if longest.waited:
        who = " and ".join(waited.member for waited in longest.waited)
        left = f" The wait was for {who}, which {longest.waited[0].ending}."
    died = bool(longest.waited) and longest.waited[0].ending is Ending.EXPIRED
    yield Finding(
        name="slow joiner",
        says=f"The coordinator waited {span_text(seconds)} for members to join generation "
        f"{longest.generation}{waited}.{left}",
        advice=_ADVICE_DEAD if died else _ADVICE_BUSY,
        trial="members do not leave" if died else "",
        evidence=(longest.place, *places_of(gone)),
    )


def unended(story: Story) -> Iterator[Finding]:
    """The coordinator still waited for members when its log ended."""
    begun, end = story.under_way, story.logs_end
    if begun is None or end is None or end - begun < SLOW_S or not story.rebalances:
        return
    last = story.rebalances[-1]
    of = "" if last.before is None else f" of generation {last.before}"
    yield Finding(
        name="rebalance under way",
        says=f"The last rebalance had not ended {span_text(end - begun)} after its start, when the "
        f"logs end: the coordinator waits for members{of} to join again.",
        advice="Look for the member that does not poll. In an eager group all partitions stand "
        "still until that member joins, leaves, or its max.poll.interval.ms ends.",
        known=Known.BOUNDED,
        evidence=(last.place,),
    )


def _at(event: Event, at: float | None) -> bool:
    return event.at is not None and at is not None and abs(event.at - at) < 1
