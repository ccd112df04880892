"""Patterns of coordinators and leaders: moved, lost, an assignment that does not come.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause
from kohort.explain.events import Event, Kind, Side
from kohort.explain.findings import Finding, events_of, often, places_of, repeated, span_text
from kohort.explain.offsets_topic.leader_epochs import SINCE
from kohort.explain.rebalances import seconds_between
from kohort.explain.stories import Story

_TOO_LARGE: Final = (
    *("RecordTooLarge", "MESSAGE_TOO_LARGE", "larger than", "RecordBatchTooLarge"),
    "UNKNOWN_SERVER_ERROR when storing",  # the coordinator has this error for a large record only
)
_NOT_COORDINATOR: Final = "NOT_COORDINATOR"
_UNKNOWN_ERROR: Final = ("nknown broker error", "UNKNOWN_SERVER", "UnknownServer", "UnknownError")
_ADVICE_TOO_LARGE: Final = (
    "The record of a group holds the subscriptions and the assignments of all members. Use fewer "
    "members or topics, or raise max.message.bytes of __consumer_offsets (message.max.bytes of the "
    "brokers)."
)
_STARTED_OVER: Final = frozenset({Cause.OTHERS, Cause.JOIN_FAILED})
_SESSION_S: Final = 60.0
"""The longest usual session. A coordinator that loads a group begins a new session for each
member."""
_STUCK_S: Final = 5.0
"""Seconds without an assignment; no assignor needs that long."""
_NODE: Final = re.compile(
    r"\(id: (\d+) rack|\bid (\d+)$|nodeId='?(?:coordinator-)?(\d+)|/(\d+)$|^(?:coordinator-)?(\d+)$"
)
"""The id of a broker, as clients write a broker."""
_FEW_REPLICAS: Final = (
    "NotEnoughReplicas",
    "NOT_ENOUGH_REPLICAS",
    "COORDINATOR_NOT_AVAILABLE",
    "coordinator is not available",
)


def coordinator(story: Story) -> Iterator[Finding]:
    """The coordinator moved, or a client lost it."""
    moved = events_of(story, Kind.LOADED, Kind.UNLOADED, Kind.COORDINATOR_MOVED)
    lost = events_of(story, Kind.COORDINATOR_LOST)
    if moved and all(SINCE in event.details for event in moved):
        yield _by_epochs(story, moved)
    elif moved and _lost_in_move(story) is None:
        yield Finding(
            name="coordinator moved",
            says="The group was loaded or unloaded by a broker: its coordinator moved or was "
            "restarted. Members find the new one by themselves.",
            advice="This is normal when brokers restart. A member is removed if its session ends "
            "meanwhile.",
            evidence=places_of(moved),
        )
    elif (ways := _found_elsewhere(story)) is not None:
        before, after = ways
        yield Finding(
            name="coordinator moved",
            says=f"A client found its coordinator at {before.details['node']}, and later at "
            f"{after.details['node']}.",
            advice="This is normal when brokers restart. A member is removed if its session ends "
            "meanwhile.",
            evidence=places_of(ways),
        )
    if lost:
        count = story.counts[Kind.COORDINATOR_LOST]
        found = story.counts[Kind.COORDINATOR_FOUND]
        loop = f" and found it {often(found)}" if found else ""
        yield Finding(
            name="coordinator lost",
            says=f"The client lost its coordinator {often(count)}{loop}.",
            advice="Look at the broker of that id: whether it was restarted, overloaded, or "
            "unreachable from this client (advertised.listeners).",
            evidence=places_of(lost),
        )


def lost_in_move(story: Story) -> Iterator[Finding]:
    """Members expired soon after another broker had loaded the group."""
    if (ways := _lost_in_move(story)) is not None:
        loaded, expired = ways
        after = span_text((expired.at or 0.0) - (loaded.at or 0.0))
        yield Finding(
            name="coordinator moved",
            says=f"A broker loaded the group, and {after} later members expired: they had not "
            "found the new coordinator within their session, or had ended meanwhile.",
            advice="Look why the coordinator moved or was restarted, and whether the clients "
            "could reach the broker that loaded the group. The members were not too slow.",
            known=Known.BOUNDED,
            evidence=places_of(ways),
        )


def _lost_in_move(story: Story) -> tuple[Event, Event] | None:
    """The load of the group and the first expiry after the load, if it came soon."""
    for expired in events_of(story, Kind.EXPIRED)[:1]:
        for loaded in reversed(story.examples.get(Kind.LOADED, [])):
            after = seconds_between(loaded.at, expired.at)
            if after is not None and after <= _SESSION_S:
                return loaded, expired
    return None


def _by_epochs(story: Story, moved: list[Event]) -> Finding:
    """The coordinator moved, as the leader epochs of the group's partition show."""
    first, count = moved[0], story.counts[Kind.COORDINATOR_MOVED]
    before, epoch, since = (first.details[name] for name in ("before", "epoch", SINCE))
    bound = f" The change came within {span_text((first.at or 0.0) - float(since))}."
    more = f" In all, the epoch rose {often(count)}." if count > 1 else ""
    return Finding(
        name="coordinator moved",
        says=f"The leader epoch of the group's partition of the offsets topic rose from {before} "
        f"to {epoch} between two records: the coordinator moved or was restarted.{bound}{more}",
        advice="This is normal when brokers restart. A member is removed if its session ends "
        "meanwhile.",
        known=Known.BOUNDED,
        evidence=places_of(moved),
    )


def _found_elsewhere(story: Story) -> tuple[Event, Event] | None:
    """Two lines of one client that name different coordinators; None if there are none."""
    before: dict[tuple[str, bool], Event] = {}
    for event in story.examples.get(Kind.COORDINATOR_FOUND, []):
        if old := event.details.get("old"):
            return event._replace(details={"node": old}), event
        if node := _node(event):
            # A client may write one broker in two ways: with its id, and without.
            key = event.source or event.client, node.isdecimal()
            first = before.setdefault(key, event)
            if _node(first) != node:
                return first, event
    return None


def _node(event: Event) -> str:
    """The id of the broker that an event names; the whole text if it has no id."""
    node = event.details.get("id") or event.details.get("node", "")
    found = _NODE.search(node)
    return node if found is None else found[found.lastindex or 0]


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
            evidence=places_of(waiting),
        )
    else:
        yield from _without_assignment(story)
    late = events_of(story, Kind.LEADER_REPLACED)
    if late:
        yield Finding(
            name="leader too late",
            says=f"The leader{f' {late[0].member}' if late[0].member else ''} did not join again "
            f"in time{repeated(story.counts[Kind.LEADER_REPLACED])}, so another member assigns, or "
            "the group waits once more.",
            advice="The leader was busy between two polls, or its process stopped: look at its "
            "own log of that time.",
            evidence=places_of(late),
        )


def _without_assignment(story: Story) -> Iterator[Finding]:
    """Clients had joined, and got no assignment until the group started over."""
    waits = [
        (after.began - each.joined, each)
        for each, after in pairwise(r for r in story.rebalances if r.side is Side.CLIENT)
        if each.joined is not None
        and each.assigned is None
        and after.began is not None
        and after.cause in _STARTED_OVER
        and after.began - each.joined >= _STUCK_S
    ]
    if waits:
        longest = max(seconds for seconds, _ in waits)
        yield Finding(
            name="leader cannot sync",
            says=f"A client had joined and got no assignment for {span_text(longest)}, until "
            f"the group started over{repeated(len(waits))}.",
            advice="The leader is stuck in its assignor, stopped, or its SyncGroup is refused: "
            "look at the log of the leader; the coordinator's log names the leader.",
            known=Known.BOUNDED,
            evidence=places_of(each for _, each in waits),
        )


def storing(story: Story) -> Iterator[Finding]:
    """The broker could not store the record of the group."""
    begun = [r for r in story.rebalances if r.cause is Cause.STORE_FAILED]
    told = events_of(story, Kind.STORE_FAILED)
    if not begun and not told:
        yield from _refused_as_unknown(story)
        return
    words = " ".join([*(e.text for e in told), *(r.reason for r in begun)])
    if _NOT_COORDINATOR in words:
        yield Finding(
            name="coordinator moved",
            says="The broker was not the coordinator of the group any more when it had to store "
            f"the assignment{repeated(max(len(begun), story.counts[Kind.STORE_FAILED]))}: the "
            "group had moved to another broker.",
            advice="This is normal when brokers restart. Members find the new coordinator by "
            "themselves.",
            evidence=places_of(told) or places_of(begun),
        )
        return
    large = any(word in words for word in _TOO_LARGE)
    replicas = any(word in words for word in _FEW_REPLICAS)
    replicas |= not large and story.counts[Kind.REPLICAS_CHANGED] > 0
    why = (
        " The record is larger than the broker takes."
        if large
        else " Too few replicas of __consumer_offsets are in sync."
        if replicas
        else " The line does not tell the reason: too few replicas, or too large a record."
    )
    yield Finding(
        name="group record too large" if large else "group not stored",
        says="The broker could not store the assignment of the group"
        f"{repeated(max(len(begun), story.counts[Kind.STORE_FAILED]))}.{why}",
        advice="Bring back the brokers that hold replicas of __consumer_offsets "
        "(min.insync.replicas)."
        if not large
        else _ADVICE_TOO_LARGE,
        known=Known.MEASURED if large or replicas else Known.ASSUMED,
        evidence=places_of(told) or places_of(begun),
    )


def _refused_as_unknown(story: Story) -> Iterator[Finding]:
    """A client's SyncGroup got the error that a coordinator returns for a record that is too large.

    For too few replicas the coordinator returns another error.
    """
    refused = [
        event
        for event in story.examples.get(Kind.JOIN_FAILED, [])
        if "ync" in event.text and any(word in event.text for word in _UNKNOWN_ERROR)
    ]
    if refused:
        yield Finding(
            name="group record too large",
            says="SyncGroup was answered with UNKNOWN_SERVER_ERROR. The coordinator answers so if "
            "the record of the group is larger than the broker takes.",
            advice="Look for RecordTooLargeException in the log of the coordinator. "
            f"{_ADVICE_TOO_LARGE}",
            known=Known.ASSUMED,
            evidence=places_of(refused),
        )


def replicas_changed(story: Story) -> Iterator[Finding]:
    """The offsets topic lost replicas, or got them back."""
    if events := events_of(story, Kind.REPLICAS_CHANGED):
        yield Finding(
            name="offsets topic short of replicas",
            says="The set of in-sync replicas of __consumer_offsets changed: a broker was slow, "
            "stopped, or came back. Commits and assignments wait or fail meanwhile.",
            advice="Look at the brokers of that partition. The members are not at fault.",
            evidence=places_of(events),
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
