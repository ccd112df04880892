"""Patterns of things that a group lost: commits, partitions, members that did not join.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

from collections.abc import Iterator

from kohort.explain.events import Kind
from kohort.explain.findings import Finding, events_of, places_of, repeated
from kohort.explain.stories import Story
from kohort.explain.waits import names_in


def refused_commits(story: Story) -> Iterator[Finding]:
    """A commit of offsets failed."""
    if events := events_of(story, Kind.COMMIT_FAILED):
        yield Finding(
            name="commit refused",
            says=f"A commit of offsets failed{repeated(story.counts[Kind.COMMIT_FAILED])}: its "
            "records are processed again, by this member or by the next owner of the partition.",
            advice="If the group had rebalanced, the member was too slow: commit before "
            "max.poll.interval.ms ends, and in the rebalance callback. Otherwise look at the "
            "coordinator.",
            evidence=places_of(events),
        )


def lost_partitions(story: Story) -> Iterator[Finding]:
    """A client lost its partitions without giving them up."""
    if events := events_of(story, Kind.LOST):
        yield Finding(
            name="partitions lost",
            says="A client lost its partitions without giving them up"
            f"{repeated(story.counts[Kind.LOST])}: it was no member any more, and another member "
            "may have consumed them already.",
            advice="Do not commit in onPartitionsLost. Look for the reason why the member was "
            "removed: its session, its poll interval, or a second process with its instance id.",
            evidence=places_of(events),
        )


def did_not_join(story: Story) -> Iterator[Finding]:
    """Members that did not join while the coordinator waited for them."""
    nobody = events_of(story, Kind.NOBODY_JOINED)
    late = events_of(story, Kind.REMOVED_LATE)
    pending = events_of(story, Kind.PENDING_EXPIRED)
    if nobody:
        yield Finding(
            name="nobody joined",
            says="No member joined again until the rebalance timeout, and the group waits on.",
            advice="All members are static and stopped, or all are busy between two polls.",
            evidence=places_of(nobody),
        )
    if late:
        listed = ", ".join(names_in(late[0].details.get("list", "")))[:120]
        yield Finding(
            name="members removed",
            says="Members did not join again until the rebalance timeout and were removed: "
            f"{listed}.",
            advice="They were busy between two polls for that long: poll more often, or raise "
            "max.poll.interval.ms, which is also the rebalance timeout.",
            evidence=places_of(late),
        )
    if pending:
        yield Finding(
            name="new member never joined",
            says=f"A client asked for a member id and never used it"
            f"{repeated(story.counts[Kind.PENDING_EXPIRED])}.",
            advice="The client ended, or lost its connection, between the two requests of a first "
            "join (KIP-394). Many of them come from clients that start in a loop.",
            evidence=places_of(pending),
        )


def empty_assignments(story: Story) -> Iterator[Finding]:
    """The leader's assignment left members out."""
    if events := events_of(story, Kind.EMPTY_ASSIGNMENT):
        yield Finding(
            name="empty assignment",
            says="The leader's assignment had nothing for a member.",
            advice="There are more members than partitions, or the leader's assignor does not know "
            "the topics of that member.",
            evidence=places_of(events),
        )
