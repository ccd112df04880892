"""Histories on records that are delivered while their partition is not assigned (53)."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.cases_ownership import two_processes
from tests.history.tale import Tale

NOT_ASSIGNED = "which was not assigned to the application"


def _revoked(kind: str = "revoked") -> Tale:
    """Process a has read partition 1 and is told that it is revoked or lost."""
    tale = two_processes().careless().position("a", 1, 0).deliver("a", 1, 0, 4)
    return tale.again(a=(0,), b=(2, 3)).told("a", kind, 1)


@broken(53, f"a delivered t-1 from 5 to 9, {NOT_ASSIGNED}")
def records_are_delivered_after_the_revocation() -> Tale:
    return _revoked().deliver("a", 1, 5, 9)


@broken(53, f"a delivered t-1 from 5 to 9, {NOT_ASSIGNED}")
def records_are_delivered_after_the_partition_was_lost() -> Tale:
    return _revoked("lost").deliver("a", 1, 5, 9)


@broken(53, f"a delivered t-2 from 0 to 3, {NOT_ASSIGNED}")
def records_of_a_partition_that_was_never_assigned_are_delivered() -> Tale:
    return two_processes().deliver("a", 2, 0, 3)


@broken(53, f"a delivered t-0 from 0 to 3, {NOT_ASSIGNED}")
def records_are_delivered_in_the_next_life_before_an_assignment() -> Tale:
    return two_processes().killed("a").process("a", life=2).deliver("a", 0, 0, 3)


@kept(53)
def records_are_delivered_until_the_revocation_callback_ends() -> Tale:
    tale = two_processes().careless().again(a=(0,), b=(2, 3))
    tale.told("a", "revoked", 1, ended=False).deliver("a", 1, 0, 3)
    return tale.told("a", "revoked", 1)


@kept(53)
def records_are_delivered_again_after_another_assignment() -> Tale:
    tale = _revoked().again(a=(0, 1), b=(2, 3)).told("a", "assigned", 1)
    return tale.position("a", 1, 0).deliver("a", 1, 0, 3)
