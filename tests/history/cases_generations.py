"""Histories for the checks 1 to 8: generations, leaders, protocols, assignments, states."""

from __future__ import annotations

from dataclasses import replace

from tests.history.cases import broken, kept
from tests.history.tale import API, G, Tale, assignment, m

from kohort.model import facts as f
from kohort.model import wire_facts as w
from kohort.model.group_state import GroupState
from kohort.model.ids import GenerationId, GroupInstanceId, ProtocolName
from kohort.model.instants import Instant, Millis
from kohort.model.member_facts import GenerationJoined

PREPARING = GroupState.PREPARING_REBALANCE
I = GroupInstanceId("i")  # noqa: E741 - an instance id


@kept(1, 2, 3, 4, 5, 6, 8, 11, 16, 17, 18, 19, 20, 21, 45, 49, 51)
def a_group_that_lives_well() -> Tale:
    tale = Tale(group_max_size=5).stable(a=(0, 1), b=(2, 3)).beat_all(30)
    tale.again(a=(0, 1), b=(2,), c=()).again(a=(0, 1), b=(2,), c=(3,))
    tale.beat_all(30).leave("c")
    tokens = {n: tale.come_back(n, tale.members[n]) for n in ("a", "b")}
    tale.start(cause=f.RebalanceCause.MEMBERS_LEFT, members=("c",))
    return tale.wait(50).open(tokens).sync({"a": (0, 1), "b": (2, 3)}).beat_all(20)


# -- 1: generations rise by one ----------------------------------------------------------------


@broken(1, "generation 3 follows 1")
def a_generation_is_skipped() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3))}
    return tale.start().open(tokens, generation=3)


@broken(1, "generation 1 follows 1")
def a_generation_comes_twice() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3))}
    return tale.start().open(tokens, generation=1)


# -- 2: a told generation is never reused ------------------------------------------------------


def _crash_between_join_and_sync() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3)), "b": tale.arrive("b")}
    tale.start().wait(10).open(tokens).crash().boot()
    number = GenerationId(1)
    tale.add(f.GroupLoaded(group_id=G, generation_id=number, member_count=1))
    tale.generation, tale.members = 1, {"a": (0, 1, 2, 3)}
    return tale


@broken(2, "generation 2 was told to 2 members and is used again with 2, of which 1 are others")
def a_crash_lets_a_told_number_name_others() -> Tale:
    tale = _crash_between_join_and_sync()
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3)), "c": tale.arrive("c")}
    return tale.start().open(tokens)


@kept(2)
def a_crash_and_the_same_members_again() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3))}
    tale.start().wait(10).open(tokens).crash().boot()
    tale.add(f.GroupLoaded(group_id=G, generation_id=GenerationId(1), member_count=1))
    tale.generation, tale.members = 1, {"a": (0, 1, 2, 3)}
    return tale.again(a=(0, 1, 2, 3))


# -- 3, 4: one leader, one protocol ------------------------------------------------------------


def _join_told(
    leader: str, *, member: str, listed: tuple[str, ...] = (), protocol: str = ""
) -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a"), "b": tale.arrive("b")}
    tale.start(GroupState.EMPTY).wait(100).open(tokens, answers=False)
    said = {"a": "a", "b": "a", member: leader}
    for name, token in tokens.items():
        members = ("a", "b") if name == "a" else ()
        body = w.JoinTold(
            leader_id=m(said[name]),
            protocol_name=ProtocolName((name == member and protocol) or tale.protocol),
            members=tuple((m(n), b"") for n in (listed if name == member and listed else members)),
        )
        tale.answer(token, API.JOIN_GROUP, name, 1, body=body)
    return tale


@kept(3)
def a_member_that_was_removed_meanwhile_is_not_in_the_leaders_list() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a"), "b": tale.arrive("b")}
    tale.start(GroupState.EMPTY).wait(100).open(tokens, answers=False)
    body = w.JoinTold(leader_id=m("a"), protocol_name=ProtocolName(tale.protocol))
    tale.answer(tokens["b"], API.JOIN_GROUP, "b", 1, body=body).leave("b")
    body = replace(body, members=((m("a"), b""),))
    return tale.answer(tokens["a"], API.JOIN_GROUP, "a", 1, body=body)


@broken(3, "generation 1 has several leaders")
def two_members_are_told_of_two_leaders() -> Tale:
    return _join_told("b", member="b")


@broken(3, "b got the member list but does not lead")
def a_follower_gets_the_member_list() -> Tale:
    return _join_told("a", member="b", listed=("a", "b"))


@broken(3, "generation 1 has several leaders", "leader z is no member of the generation")
def the_leader_is_no_member() -> Tale:
    return _join_told("z", member="b")


@broken(3, "the leader's list is not the generation's members")
def the_leaders_list_has_a_gap() -> Tale:
    return _join_told("a", member="a", listed=("a",))


@broken(4, "generation 1 was told as [\"('a', 'cooperative-sticky')\", \"('a', 'range')\"]")
def two_members_are_told_of_two_protocols() -> Tale:
    return _join_told("a", member="b", protocol="range")


def _joined(name: str, protocol: str, *, leader: bool = False) -> GenerationJoined:
    return GenerationJoined(
        at=Instant(0),
        group_id=G,
        member_id=m(name),
        generation_id=GenerationId(7),
        protocol_name=ProtocolName(protocol),
        is_leader=leader,
        assignment_bytes=10,
        took_ms=Millis(3),
    )


@broken(4, "generation 7 was told as [\"('', 'range')\", \"('', 'roundrobin')\"]")
def two_clients_joined_under_two_protocols() -> Tale:
    tale = Tale(booted=False).add(_joined("a", "range", leader=True), "a")
    return tale.add(_joined("b", "roundrobin"), "b")


@kept(4)
def two_clients_joined_under_one_protocol() -> Tale:
    tale = Tale(booted=False).add(_joined("a", "range", leader=True), "a")
    return tale.add(_joined("b", "range"), "b")


# -- 5: the protocol is supported by all -------------------------------------------------------


@broken(5, "cooperative-sticky was chosen, but b offers ['range']")
def a_protocol_is_chosen_that_one_member_does_not_offer() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a")}
    tokens["b"] = tale.arrive("b", protocols=((ProtocolName("range"), b""),))
    return tale.start(GroupState.EMPTY).wait(10).open(tokens)


# -- 6, 7: one payload, the leader's -----------------------------------------------------------


@broken(6, "generation 1 has an assignment its leader never sent")
def the_group_stores_what_its_leader_never_sent() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a")}
    tale.start(GroupState.EMPTY).wait(10).open(tokens)
    return tale.sync({"a": (0, 1, 2, 3)}, sent={"a": (0, 1)})


@broken(6, "b was given 25 bytes that are not its assignment in generation 1")
def a_member_gets_bytes_that_are_not_its_own() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    told = w.SyncTold(assignment=assignment(0, 1))
    return tale.call(API.SYNC_GROUP, "b", body=w.SyncAsked(), told=told)


def _follower_assigns(*, wins: bool) -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a"), "b": tale.arrive("b")}
    tale.start(GroupState.EMPTY).wait(10).open(tokens)
    everything = ((m("a"), assignment()), (m("b"), assignment(0, 1, 2, 3)))
    token = tale.ask(API.SYNC_GROUP, "b", 1, body=w.SyncAsked(assignments=everything))
    if wins:
        tale.sync({"a": (), "b": (0, 1, 2, 3)}, sent={"a": (0, 1), "b": (2, 3)})
        return tale
    tale.sync({"a": (0, 1), "b": (2, 3)})
    told = w.SyncTold(assignment=assignment(2, 3))
    return tale.answer(token, API.SYNC_GROUP, "b", 1, body=told)


@broken(7, "generation 1 is assigned as a follower sent it")
def a_followers_assignment_counts() -> Tale:
    return _follower_assigns(wins=True)


@kept(7)
def a_followers_assignment_is_ignored() -> Tale:
    return _follower_assigns(wins=False)


# -- 8: legal transitions ----------------------------------------------------------------------


@broken(8, "the group goes from Stable to Stable")
def stable_without_a_join_phase() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    return tale.sync({"a": (0, 1, 2, 3)})


@broken(8, "the group goes from PreparingRebalance to PreparingRebalance")
def preparing_out_of_preparing() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).start().start(PREPARING)


@broken(8, "the group goes from Stable to CompletingRebalance")
def a_generation_out_of_nowhere() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    return tale.open({"a": tale.ask(API.JOIN_GROUP, "a")})
