"""Adds the deaths of clients that no process could record.

In: a history. Out: the same history with a ``ProcessKilled`` where a client's facts end without a
``ProcessStopped`` and those of other sources continue. A live consumer records its polls at least
once a second, and a close; a killed one records nothing. Must not know: files, checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from kohort.model.client_facts import ClientFact, ProcessKilled, ProcessStarted, ProcessStopped
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId
from kohort.model.instants import MICROS_PER_SECOND, Instant
from kohort.model.member_facts import MemberFact

SILENCE_MICROS: Final = 10 * MICROS_PER_SECOND

_OF_CLIENTS: Final = (ClientFact, MemberFact)
_Life: TypeAlias = tuple[str, int]
"""A source and its incarnation."""


def with_endings(history: Iterable[Recorded]) -> Iterator[Recorded]:
    """The history with added deaths; its facts are numbered again if there are any.

    The function iterates twice, so the history must be a list, a file or the like.
    """
    deaths = _deaths(history)
    if not deaths:
        yield from history
        return
    seen: Counter[_Life] = Counter()
    number = 0
    for recorded in history:
        number += 1
        yield replace(recorded, sequence=number)
        life = (recorded.source, recorded.incarnation)
        if life in deaths and isinstance(recorded.fact, _OF_CLIENTS):
            seen[life] += 1
            facts, group_id = deaths[life]
            if seen[life] == facts:
                number += 1
                killed = ProcessKilled(group_id=group_id, unwitnessed=True)
                yield replace(recorded, sequence=number, fact=killed)


def _deaths(history: Iterable[Recorded]) -> dict[_Life, tuple[int, GroupId]]:
    """The lives that ended without a close: the number of their facts, and their group."""
    end = Instant(0)
    last: dict[_Life, Recorded] = {}
    groups: dict[_Life, GroupId] = {}
    facts: Counter[_Life] = Counter()
    for recorded in history:
        end = recorded.at
        fact = recorded.fact
        if not isinstance(fact, _OF_CLIENTS):
            continue
        life = (recorded.source, recorded.incarnation)
        facts[life] += 1
        if isinstance(fact, ProcessStarted):
            groups[life] = fact.group_id
        if life in groups:
            last[life] = recorded
    return {
        life: (facts[life], groups[life])
        for life, final in last.items()
        if not isinstance(final.fact, ProcessStopped | ProcessKilled)
        and (end - final.at > SILENCE_MICROS or (life[0], life[1] + 1) in last)
    }
