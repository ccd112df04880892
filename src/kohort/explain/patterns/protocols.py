"""Patterns of protocols and programs that do not fit together in one group.

Eager beside cooperative assignors, commits in the rebalances of old versions of librdkafka, several
Spark queries with one group id.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause
from kohort.explain.events import Event, Kind
from kohort.explain.findings import Finding, events_of, places_of
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story

_EAGER: Final = frozenset({"range", "roundrobin", "sticky"})
_COOPERATIVE: Final = "cooperative-sticky"
_NAME: Final = re.compile(r"(?<![\w-])[a-z][a-z-]*")
_BACK_AND_FORTH: Final = 2
"""An upgrade changes the assignor once."""
_INCREMENTAL: Final = ("(COOPERATIVE)", "incremental", "-incr-")
"""Parts of librdkafka's lines in cooperative groups."""


def mixed_assignors(story: Story) -> Iterator[Finding]:
    """Some members are eager, others cooperative."""
    lists = {told: frozenset(_NAME.findall(told)) for told in story.supported}
    only = [e for told, e in story.supported.items() if _is_cooperative_only(lists[told])]
    eager = [e for told, e in story.supported.items() if lists[told] & _EAGER]
    rows = [r for r in story.rebalances if r.assignor in _EAGER or r.assignor == _COOPERATIVE]
    changes = [
        later for earlier, later in pairwise(rows) if _is_eager(earlier) is not _is_eager(later)
    ]
    evidence: list[Event | Rebalance]
    if only and eager:
        says = (
            f"Member {only[0].member} has {_COOPERATIVE} alone, and member {eager[0].member} has "
            f"{', '.join(sorted(lists[eager[0].details['protocols']]))}: members with an eager "
            "assignor in their list give all their partitions up in each rebalance, the others "
            "keep theirs."
        )
        evidence = [*only[:1], *eager[:1]]
    elif len(changes) >= _BACK_AND_FORTH:
        names = sorted({r.assignor for r in rows})
        says = (
            f"The assignor of the group changed {len(changes)} times between eager and cooperative "
            f"({', '.join(names)}): members of both kinds come and go."
        )
        evidence = list(changes)
    else:
        return
    yield Finding(
        name="eager and cooperative mixed",
        says=says,
        advice="Finish the change of assignors in two rolling bounces: first all members get "
        f"{_COOPERATIVE} in front of the old assignor, then all lose the old one (KIP-429). Until "
        "then the group has the pauses of the eager protocol.",
        evidence=places_of(evidence),
    )


def _is_cooperative_only(names: frozenset[str]) -> bool:
    return _COOPERATIVE in names and not names & _EAGER


def _is_eager(row: Rebalance) -> bool:
    return row.assignor in _EAGER


def commits_while_moving(story: Story) -> Iterator[Finding]:
    """Librdkafka before 2.10 loses its partitions when a commit meets a cooperative rebalance."""
    refused = [
        e
        for e in story.examples.get(Kind.COMMIT_FAILED, [])
        if e.maker == "librdkafka" and "generation id is not valid" in e.text
    ]
    if not refused:
        return
    told = [e for kept in story.examples.values() for e in kept if e.maker == "librdkafka"]
    cooperative = [e for e in told if any(word in e.text for word in _INCREMENTAL)]
    if not cooperative and not any(r.assignor == _COOPERATIVE for r in story.rebalances):
        return
    lost = [e for e in story.examples.get(Kind.LOST, []) if e.maker == "librdkafka"]
    yield Finding(
        name="commits in cooperative rebalances",
        says="A commit met a cooperative rebalance and was refused for its generation. librdkafka "
        "before 2.10 then gives all partitions up as lost and joins again, which begins the next "
        f"rebalance{': it did so here' if lost else ''}.",
        advice="Update librdkafka to 2.10 or newer. Until then, commit in the rebalance callback "
        "and between two rebalances only, or use an eager assignor.",
        known=Known.MEASURED if lost else Known.BOUNDED,
        evidence=places_of([*refused, *lost]),
    )


def spark_queries(story: Story) -> Iterator[Finding]:
    """Several queries of Spark have one group id."""
    chosen = events_of(story, Kind.GROUP_CHOSEN)
    lost = events_of(story, Kind.STREAM_LOST)
    queries = story.counts[Kind.GROUP_CHOSEN]
    others = {Cause.NEW_MEMBER, Cause.OTHERS, Cause.GONE} & story.causes.keys()
    if not lost and queries < 2 and not (chosen and others):
        return
    taken = lost[0].details.get("partitions", "") if lost else ""
    yield Finding(
        name="one group id on several Spark queries",
        says=(
            f"A stream of Spark lost {taken[:120]} to another stream with its group id."
            if lost
            else f"{queries} queries of Spark set kafka.group.id to this group: each takes "
            "partitions of the others."
            if queries > 1
            else "A query of Spark sets kafka.group.id to this group, and the group has other "
            "members: they take partitions of the query."
        ),
        advice="Leave kafka.group.id out, so that Spark makes one for each query, or give each "
        "query its own. Spark assigns partitions itself and needs no group. To share a topic "
        'between applications, read it with format("kohort"): each application is one member.',
        known=Known.MEASURED if lost else Known.BOUNDED,
        evidence=places_of([*lost, *chosen]),
    )
