"""Everything a coordinator can ask for, in the order in which it must be carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kohort.coordinator.answers import Answer
from kohort.coordinator.records import Record
from kohort.model.facts import Fact
from kohort.model.ids import GroupId, Ticket, Token
from kohort.model.values import value


# Not frozen: one is made for every request, and freezing trebles what that costs.
@dataclass(slots=True)
class Respond:
    """Answer the request of ``token``. Its connection may be gone: then nothing is to be done."""

    token: Token
    answer: Answer


@value(frozen=True, slots=True, kw_only=False)
class Append:
    """Make ``records`` durable, all or none, behind everything asked for earlier.

    The outcome comes back as ``Appended`` or ``AppendFailed`` with the same ticket.
    """

    ticket: Ticket
    group_id: GroupId
    records: tuple[Record, ...]


@value(frozen=True, slots=True, kw_only=False)
class Observe:
    """Tell whoever listens what happened."""

    fact: Fact


Effect: TypeAlias = Respond | Append | Observe
