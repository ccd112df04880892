"""Deaths that nobody could record: a client that falls silent for good was killed.

In: a history. Out: the same with a ``ProcessKilled`` where a client's facts end without a word
while those of others go on. A consumer that lives tells of its polls at least once a second, one
that closes says so; who was killed says nothing. Must not know: files, checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kohort.model.client_facts import ProcessKilled, ProcessStarted, ProcessStopped
from kohort.model.history_record import CLIENT_FACTS, MEMBER_FACTS, Recorded
from kohort.model.ids import GroupId
from kohort.model.instants import MICROS_PER_SECOND

SILENCE_MICROS: Final = 10 * MICROS_PER_SECOND


def with_endings(history: Sequence[Recorded]) -> list[Recorded]:
    """The history with the deaths that follow from it, numbered anew."""
    if not history:
        return []
    end = history[-1].at
    last: dict[tuple[str, int], Recorded] = {}
    groups: dict[tuple[str, int], GroupId] = {}
    for recorded in history:
        life = (recorded.source, recorded.incarnation)
        if isinstance(recorded.fact, ProcessStarted):
            groups[life] = recorded.fact.group_id
        if life in groups and isinstance(recorded.fact, (*CLIENT_FACTS, *MEMBER_FACTS)):
            last[life] = recorded
    killed = {
        final.sequence: replace(final, fact=ProcessKilled(group_id=groups[life], unwitnessed=True))
        for life, final in last.items()
        if not isinstance(final.fact, ProcessStopped | ProcessKilled)
        and (end - final.at > SILENCE_MICROS or (life[0], life[1] + 1) in last)
    }
    if not killed:
        return list(history)
    found: list[Recorded] = []
    for recorded in history:
        found.append(recorded)
        if recorded.sequence in killed:
            found.append(killed[recorded.sequence])
    return [replace(recorded, sequence=n) for n, recorded in enumerate(found, start=1)]
