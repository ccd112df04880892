"""Histories on how much moves (30)."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.tale import API, G, Tale, m, subscription

from kohort.model import facts as f
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.ids import GenerationId, ProtocolName


@broken(30, "2 of 4 partitions moved needlessly (2 stayed)")
def partitions_change_places_for_nothing() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).again(a=(0,), b=(2,))
    return tale.again(a=(0, 3), b=(2, 1))


@broken(30, "4 of 4 partitions moved needlessly (0 stayed)")
def a_sticky_policy_forgets_what_members_had() -> Tale:
    tale = Tale()
    tale.protocol = "sticky"
    return tale.stable(a=(0, 1), b=(2, 3)).again(a=(2, 3), b=(0, 1))


@kept(30)
def one_partition_moves_to_the_newcomer_and_no_more() -> Tale:
    tale = Tale()
    tale.protocol = "sticky"
    return tale.stable(a=(0, 1), b=(2, 3)).again(a=(0,), b=(2, 3), c=(1,))


@broken(30, "2 of 4 partitions moved needlessly (2 stayed)")
def a_claim_is_not_heard_since_its_member_missed_a_generation() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).again(a=(0, 1), b=(2, 3))
    tokens = {"a": tale.come_back("a", (0, 1)), "b": tale.come_back("b", (2, 3), claim=1)}
    tale.start().wait(100).open(tokens).sync({"a": (0,), "b": (2,)})
    return tale.again(a=(0, 2), b=(1, 3))


@broken(
    30,
    "2 of 4 partitions moved needlessly (2 stayed)",
    "2 of 4 partitions moved needlessly (1 stayed)",
)
def claims_without_a_generation_void_each_other() -> Tale:
    tale = Tale()
    tale.protocol = "sticky"
    tale.stable(a=(0, 1), b=(2, 3)).again(a=(0, 2), b=(1, 3), claim=1)
    tokens = {
        "a": tale.come_back("a", (0, 2), claim=-1),
        "b": tale.come_back("b", (2, 3), claim=-1),
    }
    return tale.start().wait(100).open(tokens).sync({"a": (0, 3), "b": (1, 2)})


def _more_is_wanted_by_one(**assigned: tuple[int, ...]) -> Tale:
    """Both want t, and b wants something else that does not exist."""
    tale = Tale(partitions=5)
    wishes = {"a": ("t",), "b": ("t", "x")}
    tokens = {}
    for name, topics in wishes.items():
        protocols = ((ProtocolName(tale.protocol), subscription(topics=topics)),)
        tokens[name] = tale.arrive(name, protocols=protocols)
    tale.start(GroupState.EMPTY).wait(10).open(tokens).sync({"a": (0, 1, 2), "b": (3, 4)})
    for name, topics in wishes.items():
        offer = subscription(tale.members[name], 1, topics)
        body = tale.join_body(protocols=((ProtocolName(tale.protocol), offer),))
        tokens[name] = tale.ask(API.JOIN_GROUP, name, body=body)
        tale.add(f.MemberRejoined(group_id=G, member_id=m(name), generation_id=GenerationId(1)))
    return tale.start().wait(100).open(tokens).sync(assigned)


@broken(30, "2 of 5 partitions moved needlessly (3 stayed)")
def unequal_members_change_places_for_nothing() -> Tale:
    return _more_is_wanted_by_one(a=(1, 2, 3), b=(0, 4))


@kept(30)
def unequal_members_keep_what_they_have() -> Tale:
    return _more_is_wanted_by_one(a=(0, 1, 2), b=(3, 4))


@kept(30)
def one_that_lost_its_place_amid_the_moves_has_let_go_of_what_it_held() -> Tale:
    """The partitions are free when the member returns; members with too few get them."""
    tale = Tale().stable(a=(0, 1), b=(2, 3)).again(a=(0,), b=(2, 3), c=())
    tale.beat("b", 1, ErrorCode.ILLEGAL_GENERATION)
    tokens = {
        "a": tale.come_back("a", (0,)),
        "b": tale.come_back("b", (), claim=-1),
        "c": tale.come_back("c", ()),
    }
    return tale.start().wait(100).open(tokens).sync({"a": (0,), "b": (2,), "c": (1, 3)})
