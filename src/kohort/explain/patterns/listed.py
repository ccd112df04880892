"""Patterns of a group at one moment, as ``kafka-consumer-groups`` or a group's record shows it.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.explain.events import Kind
from kohort.explain.findings import Finding, events_of, places_of
from kohort.explain.stories import Story

_UNDER_WAY: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def listed(story: Story) -> Iterator[Finding]:
    """The state of the group, and partitions that nobody consumes."""
    listing = story.listing
    rows = events_of(story, Kind.LISTED_GROUP, Kind.LISTED_PARTITION, Kind.LISTED_MEMBER)
    if not rows:
        return
    for state in listing.states:
        if state in _UNDER_WAY:
            yield Finding(
                name="rebalance under way",
                says=f"The group was in the state {state} when it was listed: the coordinator "
                "waited for members.",
                advice="List it again. If the state stays, a member does not join: find it in the "
                "log of the coordinator.",
                evidence=places_of(rows),
            )
    if listing.members and listing.alone:
        yield Finding(
            name="partitions without a consumer",
            says=f"{len(listing.alone)} of {len(listing.partitions)} partitions had no consumer "
            f"({', '.join(sorted(listing.alone)[:3])}) although the group has "
            f"{len(listing.members)} members.",
            advice="Compare the subscriptions of all members, and list the group again: during a "
            "rebalance this is normal.",
            evidence=places_of(rows),
        )
    elif (listing.partitions and not listing.members) or listing.states == ["Empty"]:
        yield Finding(
            name="no active members",
            says="The group has no members: nobody consumes its partitions"
            f"{_lag(sum(listing.lag.values()))}.",
            advice="Start consumers, or look why they do not join: their logs tell.",
            evidence=places_of(rows),
        )
    parts = [
        (max(listing.counted, len(listing.members)), "members"),
        (len(listing.partitions), "partitions"),
        (sum(listing.lag.values()), "records of lag"),
    ]
    parts = parts if listing.partitions else parts[:1]
    state = f" in the state {listing.states[-1]}" if listing.states else ""
    yield Finding(
        name="listed",
        says=f"The group was listed{state} with "
        f"{', '.join(f'{count:,} {what}' for count, what in parts)}.",
        advice="One moment shows no rebalance. For causes and times, add the log of the broker, "
        "or --bootstrap-server.",
        evidence=places_of(rows),
    )


def idle_members(story: Story) -> Iterator[Finding]:
    """More members than partitions."""
    idle = len(story.listing.idle)
    if idle:
        evidence = places_of(events_of(story, Kind.LISTED_MEMBER))
    else:
        last = next((r for r in reversed(story.rebalances) if r.partitions and r.members), None)
        if last is None or (last.members or 0) <= (last.partitions or 0):
            return
        idle, evidence = (last.members or 0) - (last.partitions or 0), (last.place,)
    yield Finding(
        name="more members than partitions",
        says=f"{idle} member{'s' if idle > 1 else ''} of the group had no partition.",
        advice="Each partition goes to one member. Start fewer members, or add partitions.",
        evidence=evidence,
    )


def mixed_topics(story: Story) -> Iterator[Finding]:
    """Members of one group want different topics."""
    mixed = [r for r in story.rebalances if r.topics_differ]
    if mixed:
        yield Finding(
            name="mixed subscriptions",
            says="Members of this group want different topics.",
            advice="A change of one topic then stops the members of all. Give each set of topics a "
            "group of its own.",
            evidence=(mixed[-1].place,),
        )


def _lag(records: int) -> str:
    return f"; {records:,} records wait" if records else ""
