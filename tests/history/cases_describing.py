"""Histories on the answers to ListGroups and DescribeGroups (55)."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.tale import G, Tale, assignment, m

from kohort.model.facts import GroupLoaded
from kohort.model.ids import GenerationId, ProtocolName
from kohort.model.world_facts import GroupDescribed


def _described(
    state: str | None = "Stable",
    listed: str | None = "Stable",
    protocol: str = "cooperative-sticky",
    **assigned: tuple[int, ...],
) -> Tale:
    """Members a and b share four partitions, and somebody asks for the group."""
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    return _told(tale, state, listed, protocol, **assigned)


def _told(
    tale: Tale, state: str | None, listed: str | None, protocol: str, **assigned: tuple[int, ...]
) -> Tale:
    return tale.add(
        GroupDescribed(
            group_id=G,
            listed_state=listed,
            state=state,
            protocol_name=ProtocolName(protocol),
            assignments=tuple((m(name), assignment(*parts)) for name, parts in assigned.items()),
        )
    )


@kept(55)
def a_stable_group_is_described() -> Tale:
    return _described(a=(0, 1), b=(2, 3))


@kept(55)
def an_assignment_whose_write_failed_is_in_the_log_after_a_crash() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    tokens = {"a": tale.come_back("a", (0, 1)), "b": tale.come_back("b", (2, 3))}
    tale.start().open(tokens).persist_group(ok=False).crash().boot()
    members = ((m("a"), None), (m("b"), None))
    tale.add(
        GroupLoaded(group_id=G, generation_id=GenerationId(2), member_count=2, members=members)
    )
    return _told(tale, "Stable", "Stable", "cooperative-sticky", a=(0, 1), b=(2, 3))


@broken(55, "listed as Stable, is Empty", "described as Empty, but the group is Stable")
def another_state_is_told() -> Tale:
    return _described("Empty", a=(0, 1), b=(2, 3))


@broken(55, "listed as None, is Stable")
def the_group_is_not_listed() -> Tale:
    return _described(listed=None, a=(0, 1), b=(2, 3))


@broken(55, "described with ['a'], but the members are ['a', 'b']")
def a_member_is_missing() -> Tale:
    return _described(a=(0, 1))


@broken(55, "described with another assignment of a, b")
def assignments_are_exchanged() -> Tale:
    return _described(a=(2, 3), b=(0, 1))


@broken(55, "described with range, but the protocol is cooperative-sticky")
def another_protocol_is_told() -> Tale:
    return _described(protocol="range", a=(0, 1), b=(2, 3))


@broken(55, "the group does not exist, but has 2 members")
def a_group_with_members_is_said_not_to_exist() -> Tale:
    return _described(None, None)
