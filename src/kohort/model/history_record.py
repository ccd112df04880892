"""The envelope of every fact: its time, its source and the life of the source.

In: facts of coordinators, members, applications and the world. Out: the values of all histories,
from the lab, a broker or a consumer. Must not know: files, checks.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from kohort.model import client_facts, facts, member_facts, wire_facts, world_facts
from kohort.model.client_facts import ClientFact
from kohort.model.facts import Fact
from kohort.model.instants import Instant
from kohort.model.member_facts import MemberFact
from kohort.model.values import kinds_of, value
from kohort.model.wire_facts import WireFact
from kohort.model.world_facts import WorldFact

SCHEMA_VERSION: Final = 1
"""Version of all facts together; raised when an older reader would misunderstand a file."""

AnyFact: TypeAlias = Fact | MemberFact | ClientFact | WireFact | WorldFact

COORDINATOR_FACTS: Final = kinds_of(vars(facts), Fact)

FACT_TYPES: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        *COORDINATOR_FACTS,
        *kinds_of(vars(member_facts), MemberFact),
        *kinds_of(vars(client_facts), ClientFact),
        *kinds_of(vars(wire_facts), WireFact),
        *kinds_of(vars(world_facts), WorldFact),
    )
}
"""Every kind of fact by its name, which is unique."""


@value(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One fact of a history.

    ``sequence`` orders the facts of one recorder; a history of several files is numbered again.
    ``at`` is the recorder's monotonic clock. ``source`` names a process and stays the same across
    restarts ("broker-1", "orders-0"); ``incarnation`` counts its lives, from 1 on.
    """

    sequence: int
    at: Instant
    incarnation: int
    source: str
    fact: AnyFact
