"""Histories on membership and generations (1 to 21, and 51, 52)."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.tale import API, G, Tale, assignment, m

from kohort.model import client_facts as c
from kohort.model import facts as f
from kohort.model import wire_facts as w
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.ids import ConnectionId, GenerationId, GroupInstanceId, MemberId, ProtocolName
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


@broken(1)
def a_generation_is_skipped() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3))}
    return tale.start().open(tokens, generation=3)


@broken(1)
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


@broken(2)
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


@broken(3)
def two_members_are_told_of_two_leaders() -> Tale:
    return _join_told("b", member="b")


@broken(3)
def a_follower_gets_the_member_list() -> Tale:
    return _join_told("a", member="b", listed=("a", "b"))


@broken(3)
def the_leader_is_no_member() -> Tale:
    return _join_told("z", member="b")


@broken(3)
def the_leaders_list_has_a_gap() -> Tale:
    return _join_told("a", member="a", listed=("a",))


@broken(4)
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


@broken(4)
def two_clients_joined_under_two_protocols() -> Tale:
    tale = Tale(booted=False).add(_joined("a", "range", leader=True), "a")
    return tale.add(_joined("b", "roundrobin"), "b")


@kept(4)
def two_clients_joined_under_one_protocol() -> Tale:
    tale = Tale(booted=False).add(_joined("a", "range", leader=True), "a")
    return tale.add(_joined("b", "range"), "b")


# -- 5: the protocol is supported by all -------------------------------------------------------


@broken(5)
def a_protocol_is_chosen_that_one_member_does_not_offer() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a")}
    tokens["b"] = tale.arrive("b", protocols=((ProtocolName("range"), b""),))
    return tale.start(GroupState.EMPTY).wait(10).open(tokens)


# -- 6, 7: one payload, the leader's -----------------------------------------------------------


@broken(6)
def the_group_stores_what_its_leader_never_sent() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a")}
    tale.start(GroupState.EMPTY).wait(10).open(tokens)
    return tale.sync({"a": (0, 1, 2, 3)}, sent={"a": (0, 1)})


@broken(6)
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


@broken(7)
def a_followers_assignment_counts() -> Tale:
    return _follower_assigns(wins=True)


@kept(7)
def a_followers_assignment_is_ignored() -> Tale:
    return _follower_assigns(wins=False)


# -- 8: legal transitions ----------------------------------------------------------------------


@broken(8)
def stable_without_a_join_phase() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    return tale.sync({"a": (0, 1, 2, 3)})


@broken(8)
def preparing_out_of_preparing() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).start().start(PREPARING)


@broken(8)
def a_generation_out_of_nowhere() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    return tale.open({"a": tale.ask(API.JOIN_GROUP, "a")})


# -- 9, 20, 52: refused requests ---------------------------------------------------------------


def _refused(error: ErrorCode, api: w.GroupApi, *changes: object) -> Tale:
    tale = Tale(group_max_size=2).stable(a=(0, 1, 2, 3))
    token = tale.ask(api, "z", 9)
    for change in changes:
        tale.add(change)
    return tale.answer(token, api, "z", 9, error=error)


_TOUCHED = w.TimerChanged(
    group_id=G,
    timer="session",
    change=w.TimerChange.SET,
    member_id=m("a"),
    due=Instant(99),
)
_LATE = f.MemberRejoined(group_id=G, member_id=m("a"), generation_id=GenerationId(1))


@broken(9)
def a_refused_heartbeat_touches_a_timer() -> Tale:
    return _refused(ErrorCode.ILLEGAL_GENERATION, API.HEARTBEAT, _TOUCHED)


@broken(9)
def a_refused_join_starts_a_rebalance() -> Tale:
    started = f.RebalanceStarted(
        group_id=G,
        generation_id=GenerationId(1),
        previous_state=GroupState.STABLE,
        cause=f.RebalanceCause.METADATA_UPDATED,
    )
    return _refused(ErrorCode.UNKNOWN_MEMBER_ID, API.JOIN_GROUP, started)


@kept(9)
def a_refused_heartbeat() -> Tale:
    return _refused(ErrorCode.ILLEGAL_GENERATION, API.HEARTBEAT)


@kept(9)
def a_refused_join_is_told_of() -> Tale:
    told = f.JoinRefused(
        group_id=G,
        member_id=m("z"),
        client_id="c",
        client_host="/h",
        error=ErrorCode.UNKNOWN_MEMBER_ID,
    )
    return _refused(ErrorCode.UNKNOWN_MEMBER_ID, API.JOIN_GROUP, told)


@broken(20)
def a_generation_larger_than_the_cap() -> Tale:
    return Tale(group_max_size=1).stable(a=(0, 1), b=(2, 3))


@broken(20)
def a_joiner_refused_for_size_is_remembered() -> Tale:
    handed = f.MemberIdHandedOut(group_id=G, state=GroupState.STABLE, member_id=m("z"))
    return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, API.JOIN_GROUP, handed)


@kept(20)
def a_joiner_is_refused_for_size() -> Tale:
    return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, API.JOIN_GROUP)


@broken(52)
def bad_input_changes_a_group() -> Tale:
    return _refused(ErrorCode.INVALID_SESSION_TIMEOUT, API.JOIN_GROUP, _LATE)


@broken(52)
def a_closed_connection_speaks_on() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tale.add(w.RequestUnreadable(connection=ConnectionId(1), reason="no request"))
    return tale.beat("a")


@kept(52)
def bad_input_closes_its_own_connection() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tale.add(w.RequestUnreadable(connection=ConnectionId(9), reason="no request"))
    return tale.beat("a")


# -- 10: removed stays removed -----------------------------------------------------------------


def _expired() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    for _ in range(3):
        tale.wait(3_000).beat("a")
    tale.wait(1_000).expire("b").start(cause=f.RebalanceCause.MEMBER_EXPIRED, members=("b",))
    tokens = {"a": tale.come_back("a", (0, 1))}
    return tale.wait(100).open(tokens).sync({"a": (0, 1, 2, 3)}).wait(100)


@broken(10)
def a_removed_members_heartbeat_succeeds() -> Tale:
    return _expired().beat("b", 2)


@kept(10, 16)
def a_removed_members_heartbeat_is_refused() -> Tale:
    return _expired().beat("b", 1, ErrorCode.UNKNOWN_MEMBER_ID)


# -- 11: ids -----------------------------------------------------------------------------------


@broken(11)
def an_id_is_given_twice() -> Tale:
    return Tale().hand_out("a").hand_out("a")


@broken(11)
def an_id_can_be_guessed() -> Tale:
    state = GroupState.EMPTY
    return Tale().add(f.MemberIdHandedOut(group_id=G, state=state, member_id=MemberId("c-2")))


# -- 12 to 15: static members ------------------------------------------------------------------


def _static() -> Tale:
    tale = Tale()
    tale.instances["a"] = "i"
    return tale.stable(a=(0, 1), b=(2, 3)).beat_all(3)


def replaced(tale: Tale, old: str, new: str, *, told: int | None = None) -> Tale:
    """A process comes back under its instance id; the group goes on."""
    token = tale.ask(
        API.JOIN_GROUP, "", body=tale.join_body(), group_instance_id=I, member_id=MemberId("")
    )
    tale.add(
        f.StaticMemberReplaced(
            group_id=G,
            state=GroupState.STABLE,
            generation_id=GenerationId(tale.generation),
            group_instance_id=I,
            replaced_id=m(old),
            member_id=m(new),
        )
    )
    tale.members = {new if n == old else n: held for n, held in tale.members.items()}
    tale.instances[new] = tale.instances.pop(old)
    tale.persist_group()
    body = w.JoinTold(leader_id=m(new), protocol_name=ProtocolName(tale.protocol), members=())
    return tale.answer(
        token,
        API.JOIN_GROUP,
        new,
        told or tale.generation,
        group_instance_id=I,
        body=body,
    )


@broken(12)
def a_second_member_of_one_instance() -> Tale:
    tale = _static()
    tale.instances["z"] = "i"
    tale.arrive("z")
    return tale


@kept(12)
def two_instances() -> Tale:
    tale = Tale()
    tale.instances.update(a="i", b="j")
    return tale.stable(a=(0, 1), b=(2, 3)).beat_all(3)


def _call_of_the_fenced(error: ErrorCode) -> Tale:
    tale = replaced(_static(), "a", "n").wait(10)
    return tale.call(API.HEARTBEAT, "a", group_instance_id=I, error=error)


@broken(13)
def the_replaced_holder_is_not_fenced() -> Tale:
    return _call_of_the_fenced(ErrorCode.NONE)


@broken(13)
def a_restart_forgets_who_was_fenced() -> Tale:
    tale = replaced(_static(), "a", "n").wait(10).crash().boot()
    tale.add(f.GroupLoaded(group_id=G, generation_id=GenerationId(1), member_count=2))
    return tale.call(API.HEARTBEAT, "a", group_instance_id=I, error=ErrorCode.NONE)


@kept(13)
def the_replaced_holder_is_fenced() -> Tale:
    return _call_of_the_fenced(ErrorCode.FENCED_INSTANCE_ID)


@kept(14, 45)
def a_static_member_comes_back_quietly() -> Tale:
    tale = replaced(_static(), "a", "n").wait(10)
    told = w.SyncTold(assignment=assignment(0, 1))
    tale.call(API.SYNC_GROUP, "n", body=w.SyncAsked(), group_instance_id=I, told=told)
    return tale.beat("n").beat("b")


@broken(14)
def a_static_return_starts_a_rebalance() -> Tale:
    tale = _static()
    tale = replaced(tale, "a", "n")
    place = next(
        i for i, r in enumerate(tale.history) if isinstance(r.fact, f.StaticMemberReplaced)
    )
    tale.now = tale.history[place].at
    del tale.history[place + 1 :]
    return tale.start(members=("n",))


@broken(14)
def a_static_return_is_given_another_assignment() -> Tale:
    tale = replaced(_static(), "a", "n").wait(10)
    told = w.SyncTold(assignment=assignment())
    return tale.call(API.SYNC_GROUP, "n", body=w.SyncAsked(), group_instance_id=I, told=told)


@broken(14)
def a_static_return_is_told_another_generation() -> Tale:
    return replaced(_static(), "a", "n", told=2)


@broken(15)
def a_static_member_leaves_by_itself() -> Tale:
    tale = _static()
    return tale.call(API.LEAVE_GROUP, "a", body=w.LeaveAsked(members=((m("a"), I),)), told=None)


@broken(15)
def a_static_member_leaves_as_if_it_were_dynamic() -> Tale:
    return _static().leave("a")


@kept(15)
def an_operator_removes_a_static_member() -> Tale:
    tale = _static()
    token = tale.ask(API.LEAVE_GROUP, body=w.LeaveAsked(members=((MemberId(""), I),)))
    tale.add(
        f.MemberLeft(
            group_id=G,
            generation_id=GenerationId(1),
            member_id=m("a"),
            group_instance_id=I,
            client_reason=None,
            pending=False,
        )
    )
    tale.start(cause=f.RebalanceCause.MEMBERS_LEFT, members=("a",))
    tale.answer(token, API.LEAVE_GROUP)
    tokens = {"b": tale.come_back("b", (2, 3))}
    return tale.wait(50).open(tokens).sync({"b": (0, 1, 2, 3)})


# -- 16 to 21: time ----------------------------------------------------------------------------


@broken(16)
def a_member_that_beats_is_expired() -> Tale:
    return Tale().stable(a=(0, 1), b=(2, 3)).beat_all(9).wait(2_000).expire("b")


@broken(16)
def a_silent_member_stays() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    for _ in range(10):
        tale.wait(3_000).beat("a")
    return tale


@kept(16)
def a_coordinator_that_stood_still_waits_longer() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).wait(20_000)
    tale.add(w.CoordinatorStalled(micros=20_000_000))
    return tale.wait(3_000).beat("a").beat("b")


@broken(17)
def a_new_member_is_parked_for_ever() -> Tale:
    tale = Tale(group_initial_rebalance_delay_ms=400_000)
    tale.arrive("a")
    return tale.start(GroupState.EMPTY).wait(320_000).add(w.CoordinatorStalled(micros=1))


@kept(17)
def a_new_member_is_dropped_after_five_minutes() -> Tale:
    tale = Tale(group_initial_rebalance_delay_ms=400_000)
    tale.arrive("a")
    return tale.start(GroupState.EMPTY).wait(300_000).expire("a")


@broken(18)
def a_join_phase_without_end() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.come_back("a", (0, 1))
    tale.start()
    for _ in range(30):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    return tale


@broken(18)
def a_sync_phase_without_end_although_all_beat() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a"), "b": tale.arrive("b")}
    tale.start(GroupState.EMPTY).wait(10).open(tokens)
    return tale.beat_all(66)


@kept(18)
def a_slow_disk_is_not_the_members_fault() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a")}
    tale.start(GroupState.EMPTY).wait(10).open(tokens)
    token = tale.ask(
        API.SYNC_GROUP, "a", 1, body=w.SyncAsked(assignments=((m("a"), assignment(0, 1, 2, 3)),))
    )
    tale.persist_group(ok=None)
    tale.wait(90_000).add(w.PersistOk(group_id=G, ticket=w.Ticket(1)))
    tale.add(
        f.GroupStabilized(
            group_id=G,
            generation_id=GenerationId(1),
            assignments=((m("a"), assignment(0, 1, 2, 3)),),
        )
    )
    told = w.SyncTold(assignment=assignment(0, 1, 2, 3))
    return tale.answer(token, API.SYNC_GROUP, "a", 1, body=told)


@broken(19)
def a_first_wait_without_end() -> Tale:
    tale = Tale(group_initial_rebalance_delay_ms=3_000)
    tokens = {"a": tale.arrive("a")}
    return tale.start(GroupState.EMPTY).wait(70_000).open(tokens)


@kept(19)
def a_first_wait_as_long_as_its_rebalance_timeout() -> Tale:
    tale = Tale(group_initial_rebalance_delay_ms=3_000)
    tokens = {"a": tale.arrive("a")}
    return tale.start(GroupState.EMPTY).wait(60_000).open(tokens).sync({"a": (0, 1, 2, 3)})


@broken(21)
def a_pending_id_is_kept() -> Tale:
    return Tale().hand_out("a").wait(12_000).hand_out("b")


@kept(21)
def a_pending_id_is_dropped() -> Tale:
    tale = Tale().hand_out("a").wait(10_000)
    return tale.add(f.PendingMemberExpired(group_id=G, member_id=m("a")))


# -- 51: one answer each -----------------------------------------------------------------------


@broken(51)
def a_request_is_answered_twice() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    token = tale.ask(API.HEARTBEAT, "a", 1)
    return tale.answer(token, API.HEARTBEAT, "a", 1).answer(token, API.HEARTBEAT, "a", 1)


@broken(51)
def an_answer_carries_anothers_correlation_id() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    token = tale.ask(API.HEARTBEAT, "a", 1)
    return tale.answer(token, API.HEARTBEAT, "a", 1, correlation_id=99_999)


def _two_on_one_connection(*order: int) -> Tale:
    tale = Tale(booted=False)
    for number in (1, 2):
        fact = c.RequestSent(group_id=G, api=API.HEARTBEAT, request=number, connection=7)
        tale.add(fact, "a")
    for number in order:
        tale.wait(1).add(
            c.ResponseReceived(group_id=G, api=API.HEARTBEAT, request=number, outcome=c.Outcome.OK),
            "a",
        )
    return tale


@broken(51)
def answers_come_out_of_turn() -> Tale:
    return _two_on_one_connection(2, 1)


@kept(51)
def answers_come_in_turn() -> Tale:
    return _two_on_one_connection(1, 2)
