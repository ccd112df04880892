"""Patterns of coordinators and leaders: moved, lost, an assignment that does not come.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kohort.explain.causes import Cause
from kohort.explain.events import Kind
from kohort.explain.findings import Finding, events_of, places_of
from kohort.explain.stories import Story


def coordinator(story: Story) -> Iterator[Finding]:
    """The coordinator moved, or a client lost it."""
    moved = events_of(story, Kind.LOADED, Kind.UNLOADED, Kind.COORDINATOR_MOVED)
    lost = events_of(story, Kind.COORDINATOR_LOST)
    if moved:
        yield Finding(
            name="coordinator moved",
            says="The group was loaded or unloaded by a broker: its coordinator moved or was "
            "restarted. Members find the new one by themselves.",
            advice="This is normal when brokers restart. A member is removed if its session ends "
            "meanwhile.",
            evidence=places_of(moved),
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
            evidence=places_of(lost),
        )


def leader(story: Story) -> Iterator[Finding]:
    """The leader's assignment did not come, or could not be stored."""
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


def protocols(story: Story) -> Iterator[Finding]:
    """The group uses the new protocol or a cooperative assignor."""
    new = events_of(story, Kind.EPOCH, Kind.TARGET, Kind.RECONCILED, Kind.CONVERTED)
    if new:
        yield Finding(
            name="new group protocol",
            says="The coordinator itself assigns (KIP-848): epochs take the place of generations, "
            f"up to {(story.generations or (0, 0))[1]:,} here, and only the members of moving "
            "partitions stop.",
            evidence=places_of(new),
        )
    joined = story.examples.get(Kind.JOINED, [])
    cooperative = [e for e in joined if "cooperative" in e.details.get("protocol", "")]
    if cooperative:
        yield Finding(
            name="cooperative",
            says="The group moves partitions in two rounds; partitions that stay are read all the "
            "time.",
            evidence=places_of(cooperative),
        )
