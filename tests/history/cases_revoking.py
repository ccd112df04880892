"""Histories on needless revocations (28)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.history.cases import broken, kept
from tests.history.cases_ownership import joined, two_processes
from tests.history.tale import API, G, Tale, m, tps

from kohort.embedded.consumer import Subscription, encode_subscription
from kohort.embedded.deferral import Echo, encode_echo
from kohort.model.errors import ErrorCode
from kohort.model.facts import MemberRejoined
from kohort.model.ids import GenerationId, ProtocolName
from kohort.model.instants import Instant
from kohort.model.member_facts import MemberStateChanged, RequestRefused


@broken(28, "a had to give up t-1, which generation 1 assigns to it")
def revoked_although_it_is_to_stay() -> Tale:
    return two_processes().told("a", "revoked", 1).told("a", "assigned", 1)


@kept(28)
def revoked_because_the_target_says_so() -> Tale:
    tale = two_processes().careless().again(a=(0,), b=(2, 3))
    return tale.told("a", "revoked", 1).told("b", "assigned").again(a=(0,), b=(1, 2, 3))


def _overtaken(*left: int) -> Tale:
    """It begins to give up in generation 1; its listener is told in 2, which leaves it these."""
    tale = two_processes().careless().again(a=left, b=(2, 3))
    tale.add(joined("a", 2), "a", life=1)
    return tale.told("a", "revoked", 1, generation=1).told("a", "assigned", 1)


@kept(28)
def revoked_because_a_static_member_leaves_without_a_request() -> Tale:
    tale = two_processes().told("a", "revoked", 1)
    left = MemberStateChanged(
        at=Instant(tale.now),
        group_id=G,
        member_id=m("a"),
        generation_id=GenerationId(1),
        before="stable",
        after="leaving",
        reason="the application unsubscribed",
    )
    return tale.add(left, "a", life=1).told("a", "assigned", 1)


@kept(28)
def two_revocations_of_one_close() -> Tale:
    tale = two_processes().told("a", "revoked", 1).told("a", "revoked", 0)
    tale.request("a", API.LEAVE_GROUP)
    return tale.told("a", "assigned", 1)


@broken(
    28,
    "a had to give up t-1, which generation 1 assigns to it",
    "a had to give up t-0, which generation 1 assigns to it",
)
def two_revocations_although_both_are_to_stay() -> Tale:
    return two_processes().told("a", "revoked", 1).told("a", "revoked", 0).told("a", "assigned", 1)


@kept(28)
def revoked_since_a_generation_that_came_meanwhile_withholds_it() -> Tale:
    return _overtaken(0)


@broken(28, "a had to give up t-1, which generation 1 assigns to it")
def revoked_although_the_generation_that_came_meanwhile_leaves_it_too() -> Tale:
    return _overtaken(0, 1)


def _missed_sync(after: str) -> Tale:
    tale = two_processes()
    who: dict[str, Any] = {"at": Instant(tale.now), "group_id": G, "member_id": m("a")}
    number = GenerationId(2)
    error = ErrorCode.REBALANCE_IN_PROGRESS
    refused = RequestRefused(**who, generation_id=number, request="SyncGroup", error=error)
    moved = MemberStateChanged(
        **who, generation_id=number, before="syncing", after=after, reason="too late"
    )
    return tale.add(refused, "a").add(moved, "a")


@broken(28, "1 members that claim their share or less, alone, must give up 1 partitions; first a")
def a_policy_takes_from_a_member_what_balance_leaves_to_it() -> Tale:
    return Tale(partitions=6).stable(a=(0, 1, 2), b=(3, 4, 5)).again(a=(0, 1), b=(3, 4, 5))


def rejoined(tale: Tale, echoes: Mapping[str, Echo]) -> Tale:
    """All members join again, each with an echo, and the join phase ends."""
    tokens = {}
    for name, echo in echoes.items():
        offer = encode_subscription(
            Subscription(
                topics=frozenset({"t"}),
                owned=frozenset(tps(*tale.members[name])),
                generation_id=GenerationId(1),
                user_data=encode_echo(GenerationId(1), echo),
            )
        )
        body = tale.join_body(protocols=((ProtocolName(tale.protocol), offer),))
        tokens[name] = tale.ask(API.JOIN_GROUP, name, body=body)
        tale.add(MemberRejoined(group_id=G, member_id=m(name), generation_id=GenerationId(1)))
    return tale.start().wait(100).open(tokens)


def _a_drains(*left: int) -> Tale:
    tale = Tale(partitions=6).stable(a=(0, 1, 2), b=(3, 4, 5))
    rejoined(tale, {"a": Echo(draining=True), "b": Echo()})
    return tale.sync({"a": left, "b": (3, 4, 5)})


@kept(28)
def a_draining_member_gives_up_its_share() -> Tale:
    return _a_drains()


@broken(28, "1 members that claim their share or less, alone, must give up 1 partitions; first a")
def a_leader_that_ignores_a_drain_takes_a_part_of_the_share() -> Tale:
    return _a_drains(0, 1)


@kept(28)
def who_has_more_than_its_share_gives_up_the_rest() -> Tale:
    tale = Tale(partitions=6).stable(a=(0, 1, 2), b=(3, 4, 5))
    return tale.again(a=(0, 1), b=(3, 4), c=()).again(a=(0, 1), b=(3, 4), c=(2, 5))


@broken(28, "a missed a generation and gave up 2 partitions needlessly")
def everything_is_lost_since_a_sync_came_too_late() -> Tale:
    return _missed_sync("unjoined")


@kept(28)
def nothing_is_lost_when_a_sync_comes_too_late() -> Tale:
    return _missed_sync("joining")
