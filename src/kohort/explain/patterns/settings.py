"""Patterns of settings that do not fit each other or the deployment.

In: a finished `Story`. Out: `Finding` values. Must not know: other rules, files, terminals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause
from kohort.explain.events import Event, Kind
from kohort.explain.findings import Finding, events_of, places_of, span_text, tells_late_poll
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story

_POD: Final = re.compile(
    r"(?:^|-)[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$"
)
"""The end of the name of a Deployment's pod: a hash of the template, and five random letters."""
_OUTSIDE: Final = ("InvalidSessionTimeout", "session timeout is not within")
_SHARE: Final = 3
"""At least this many heartbeat intervals should fit into a session."""
_NEAR: Final = 0.8
_AT_ONCE_S: Final = 0.5
_STARTING_S: Final = 60.0
_SHORT_S: Final = 120.0
_OFTEN: Final = 3
_RESTART_S: Final = 900.0
"""A process that comes back later was not restarted, but started anew."""
_DEATHS: Final = frozenset({Cause.EXPIRED, Cause.GONE})


def pod_names(story: Story) -> Iterator[Finding]:
    """Instance ids that change with each restart."""
    named = [r for r in story.rebalances if _POD.search(r.instance)]
    events = [e for kept in story.examples.values() for e in kept if _POD.search(e.instance)]
    instances = [*(r.instance for r in named), *(e.instance for e in events)]
    if instances:
        yield Finding(
            name="instance id of a Deployment's pod",
            says=f"group.instance.id {instances[0]!r} looks like the name of a Deployment's pod: "
            "the next pod has another name, so that its restart is a death and a new member.",
            advice="Use a StatefulSet, or another name that the next process has again. Otherwise "
            "leave group.instance.id out: then a member that stops can leave the group.",
            known=Known.BOUNDED,
            evidence=places_of(named) or places_of(events),
        )


def short_for_restart(story: Story) -> Iterator[Finding]:
    """A static member expired before its next process came: a restart outlasts the session."""
    gone: dict[str, Rebalance] = {}
    back: list[tuple[float, Rebalance, Rebalance]] = []
    for each in story.rebalances:
        at = each.began if each.began is not None else each.ended
        if each.cause in _DEATHS and at is not None:
            gone[each.instance or each.client] = each
        elif each.cause is Cause.NEW_MEMBER and at is not None and each.instance:
            before = gone.pop(each.instance, None)
            since = None if before is None else before.began or before.ended
            if before is not None and since is not None and 0 <= at - since <= _RESTART_S:
                back.append((at - since, before, each))
    if not back:
        return
    after, before, joined = max(back, key=lambda found: found[0])
    session = next((s for s in (before.session_s, joined.session_s) if s is not None), None)
    limit = "" if session is None else f" of {span_text(session)}"
    yield Finding(
        name="session shorter than a restart",
        says=f"Member {joined.instance!r} has a group.instance.id, yet its session{limit} ended "
        f"before its next process came, {span_text(after)} later"
        f"{f'; {len(back)} restarts went so' if len(back) > 1 else ''}: the instance id saved "
        "nothing, and each restart cost two rebalances.",
        advice="Raise session.timeout.ms above the longest restart, by "
        f"{span_text(after)} at least (group.max.session.timeout.ms of the brokers is 30 min by "
        "default). A process that dies for good then leaves its partitions idle for as long.",
        known=Known.MEASURED if before.certain and joined.certain else Known.BOUNDED,
        evidence=places_of([before, joined]),
    )


def only_expire(story: Story) -> Iterator[Finding]:
    """Processes end without LeaveGroup."""
    expired, left = story.counts[Kind.EXPIRED], story.counts[Kind.LEFT]
    if expired < 2 or left or not story.returned:
        return
    yield Finding(
        name="members do not leave",
        says=f"{expired} members expired and none left, and clients with their names came back: "
        "their processes end without LeaveGroup, and their partitions stand still for a session.",
        advice="Close the consumer when the process gets SIGTERM, and give it the time for that "
        "(terminationGracePeriodSeconds). A shorter session.timeout.ms bounds the wait.",
        known=Known.BOUNDED,
        evidence=places_of(events_of(story, Kind.EXPIRED)),
    )


def short_delay(story: Story) -> Iterator[Finding]:
    """The first generation did not wait for processes that start at the same time."""
    rows = list(story.rebalances)
    for place, first in enumerate(rows):
        at = first.began
        if first.before != 0 or at is None or first.join_s is None or first.join_s > _AT_ONCE_S:
            continue
        later = [
            r
            for r in rows[place + 1 :]
            if r.cause is Cause.NEW_MEMBER and r.began is not None and r.began - at <= _STARTING_S
        ]
        if len(later) >= _OFTEN:
            yield Finding(
                name="initial delay too short",
                says=f"The first generation came after {span_text(first.join_s)}, and "
                f"{len(later)} more members joined within {span_text(_STARTING_S)}: each of them "
                "began a rebalance.",
                advice="Raise group.initial.rebalance.delay.ms of the brokers (3 s by default) to "
                "the time in which all processes start. That saves rebalances; the first records "
                "come later.",
                evidence=places_of([first, *later]),
            )
            return


def short_lives(story: Story) -> Iterator[Finding]:
    """Members come and go in order, again and again: an autoscaler."""
    came: dict[str, Rebalance] = {}
    short: list[tuple[Rebalance, float]] = []
    for each in story.rebalances:
        if each.cause is Cause.NEW_MEMBER:
            came[each.member] = each
        elif each.cause is Cause.LEFT and (begun := came.pop(each.member, None)) is not None:
            polls = tells_late_poll(each.client_reason)
            if each.began is not None and begun.began is not None and not polls:
                short.append((each, each.began - begun.began))
    short = [(each, lived) for each, lived in short if 0 <= lived <= _SHORT_S]
    if len(short) < _OFTEN:
        return
    longest = max(lived for _, lived in short)
    yield Finding(
        name="members come and go",
        says=f"{len(short)} members joined and left in order within {span_text(longest)}. Each "
        "costs two rebalances.",
        advice="If an autoscaler starts them, let it wait longer before it scales down "
        "(stabilizationWindowSeconds, cooldownPeriod) than a rebalance and the catching up take.",
        evidence=places_of(each for each, _ in short),
    )


def rare_heartbeats(story: Story) -> Iterator[Finding]:
    """Too few heartbeats fit into a session."""
    beat, session = story.times.get("heartbeat"), story.times.get("session")
    if beat is None or session is None or beat.mean * _SHARE <= session.least * 1.05:
        return
    yield Finding(
        name="heartbeats too rare",
        says=f"Heartbeats came every {span_text(beat.mean)}, and the session lasts "
        f"{span_text(session.least)}: one late heartbeat ends the session.",
        advice="Set heartbeat.interval.ms to at most a third of session.timeout.ms.",
    )


def late_polls(story: Story) -> Iterator[Finding]:
    """Polls came near to the limit."""
    poll, limit = story.times.get("poll"), story.times.get("rebalance timeout")
    if poll is None or limit is None or not _NEAR * limit.least <= poll.most < limit.least:
        return
    yield Finding(
        name="polls near the limit",
        says=f"The longest time between two polls was {span_text(poll.most)}, and "
        f"max.poll.interval.ms is {span_text(limit.least)}.",
        advice="Take fewer records a poll (max.poll.records), or raise max.poll.interval.ms to "
        "twice the longest time.",
    )


def is_outside(event: Event) -> bool:
    """Whether a join failed because the broker does not take the session timeout."""
    return any(word in event.text for word in _OUTSIDE)


def session_refused(story: Story) -> Iterator[Finding]:
    """The broker does not take the session timeout."""
    failed = story.examples.get(Kind.JOIN_FAILED, [])
    if events := [event for event in failed if is_outside(event)]:
        yield Finding(
            name="session outside of the broker's range",
            says="A join was refused: session.timeout.ms is not within "
            "group.min.session.timeout.ms and group.max.session.timeout.ms of the broker.",
            advice="Set session.timeout.ms between them: 6 s and 30 min by default.",
            evidence=places_of(events),
        )
