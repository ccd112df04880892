"""The names of facts."""

from kohort.model.history_record import (
    CLIENT_FACTS,
    COORDINATOR_FACTS,
    FACT_TYPES,
    MEMBER_FACTS,
    WIRE_FACTS,
    WORLD_FACTS,
)


def test_no_two_kinds_of_facts_share_a_name() -> None:
    kinds = COORDINATOR_FACTS + MEMBER_FACTS + CLIENT_FACTS + WIRE_FACTS + WORLD_FACTS
    assert len(FACT_TYPES) == len(kinds)
