"""Lines that look like failures and are normal: a first join, the initial delay, an empty group.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause, is_benign
from kohort.explain.events import Kind
from kohort.explain.findings import Finding, events_of, places_of, span_text, tells_late_poll
from kohort.explain.stories import Story

_INITIAL_DELAY_S: Final = 3.0
_DEPARTURES: Final = (Cause.LEFT, Cause.GONE, Cause.POLL_EXPIRED)


def normal_life(story: Story) -> Iterator[Finding]:
    """A first join, the initial delay, an empty group."""
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
            evidence=places_of(benign),
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
    if events := events_of(story, Kind.STATIC_REPLACED, Kind.STATIC_KEPT):
        yield Finding(
            name="static member returned",
            says="A process with a known group.instance.id came back and took its old place: in a "
            f"stable group this costs no rebalance.{_meanwhile(story)}",
            evidence=places_of(events),
        )
    elif story.returns:
        yield Finding(
            name="stopped without a rebalance",
            says="A member came back into its generation, as a static member does."
            f"{_meanwhile(story)}",
            known=max(story.returns, key=lambda stop: stop.seconds).known,
            evidence=places_of(events_of(story, Kind.SYNCED, Kind.ADDED)),
        )
    if events := events_of(story, Kind.EMPTY):
        yield Finding(
            name="empty",
            says="The last member went; the group was empty.",
            evidence=places_of(events),
        )


def departure(story: Story) -> Iterator[Finding]:
    """Members left, and the log shows no rebalance that begins with a departure."""
    if any(story.causes[cause] for cause in _DEPARTURES) or story.counts[Kind.POLL_EXPIRED]:
        return
    events = [
        event
        for event in events_of(story, Kind.LEFT, Kind.LEAVING)
        if not (tells_late_poll(event.text) or tells_late_poll(event.reason))
    ]
    if not events:
        return
    names = list(dict.fromkeys(e.instance or e.member or e.client for e in events))
    first = names[0] or "A member"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    reason = f" ({events[0].reason.rstrip('.')})" if events[0].reason else ""
    yield Finding(
        name="member left",
        says=f"{first}{more} left the group on its own request{reason}. The log does not show the "
        "rebalance behind that.",
        evidence=places_of(events),
    )


def _meanwhile(story: Story) -> str:
    """A sentence about the times in which partitions waited for members that came back."""
    if not story.returns:
        return ""
    longest = max(story.returns, key=lambda stop: stop.seconds)
    count = len({stop.partition for stop in story.returns})
    return (
        f" Meanwhile {count} partition{'s' * (count > 1)} stood still, for "
        f"{span_text(longest.seconds)} at most ({longest.known.value})."
    )
