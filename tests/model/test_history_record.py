"""The kinds of facts and their names."""

from kohort.model import client_facts, facts, member_facts, wire_facts, world_facts
from kohort.model.history_record import FACT_TYPES


def test_fact_types_have_each_kind_of_fact_by_its_name() -> None:
    kinds = [
        kind
        for module in (facts, client_facts, member_facts, wire_facts, world_facts)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and "Fact" in str(kind.__mro__)
    ]
    bases = {base for kind in kinds for base in kind.__mro__[1:]}
    leaves = [kind for kind in kinds if kind not in bases]
    assert sorted(FACT_TYPES) == sorted(kind.__name__ for kind in leaves)
    assert len(FACT_TYPES) == 75


def test_a_base_of_facts_is_no_kind_of_fact() -> None:
    assert not FACT_TYPES.keys() & {"Fact", "GenerationFact", "GroupWireFact", "WorldFact"}
