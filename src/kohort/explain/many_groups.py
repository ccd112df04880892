"""Patterns that show only when several groups are compared.

In: all stories. Out: findings by group. Must not know: the rules for one group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.explain.amounts import Known
from kohort.explain.events import Kind
from kohort.explain.findings import Finding, events_of, places_of
from kohort.explain.stories import Story

_LEAST_GROUPS: Final = 3


def expired_together(stories: Iterable[Story]) -> dict[str, list[Finding]]:
    """Members of many groups expired within a second: likely a fault of the coordinator."""
    seconds: dict[int, dict[str, Story]] = {}
    for story in stories:
        for at in story.expired_at:
            seconds.setdefault(int(at), {})[story.group] = story
    found: dict[str, list[Finding]] = {}
    for groups in seconds.values():
        if len(groups) < _LEAST_GROUPS:
            continue
        for name, story in groups.items():
            found[name] = [
                Finding(
                    name="many groups expired at once",
                    says=f"Members of {len(groups)} groups expired within the same second.",
                    advice="The clients are hardly at fault: look at the broker that coordinates "
                    "these groups (a stopped process, a slow disk, lost replicas of "
                    "__consumer_offsets), and at the network in front of it.",
                    known=Known.BOUNDED,
                    evidence=places_of(events_of(story, Kind.EXPIRED)),
                )
            ]
    return found
