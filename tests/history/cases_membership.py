"""Histories for the checks 9 to 15, 20 and 52: refusals, ids, removal, static members."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.tale import API, G, Tale, assignment, m

from kohort.model import facts as f
from kohort.model import wire_facts as w
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.history_record import AnyFact
from kohort.model.ids import ConnectionId, GenerationId, GroupInstanceId, MemberId, ProtocolName
from kohort.model.instants import Instant

PREPARING = GroupState.PREPARING_REBALANCE
I = GroupInstanceId("i")  # noqa: E741 - an instance id


# -- 9, 20, 52: refused requests ---------------------------------------------------------------


def _refused(error: ErrorCode, api: w.GroupApi, *changes: AnyFact) -> Tale:
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


@broken(9, "Heartbeat of z was refused with ILLEGAL_GENERATION, but brought TimerChanged")
def a_refused_heartbeat_touches_a_timer() -> Tale:
    return _refused(ErrorCode.ILLEGAL_GENERATION, API.HEARTBEAT, _TOUCHED)


@broken(9, "JoinGroup of z was refused with UNKNOWN_MEMBER_ID, but brought RebalanceStarted")
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


@broken(20, "2 members in a generation, the cap is 1")
def a_generation_larger_than_the_cap() -> Tale:
    return Tale(group_max_size=1).stable(a=(0, 1), b=(2, 3))


@broken(20, "JoinGroup of z was refused with GROUP_MAX_SIZE_REACHED, but brought MemberIdHandedOut")
def a_joiner_refused_for_size_is_remembered() -> Tale:
    handed = f.MemberIdHandedOut(group_id=G, state=GroupState.STABLE, member_id=m("z"))
    return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, API.JOIN_GROUP, handed)


@kept(20)
def a_joiner_is_refused_for_size() -> Tale:
    return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, API.JOIN_GROUP)


@broken(52, "JoinGroup of z was refused with INVALID_SESSION_TIMEOUT, but brought MemberRejoined")
def bad_input_changes_a_group() -> Tale:
    return _refused(ErrorCode.INVALID_SESSION_TIMEOUT, API.JOIN_GROUP, _LATE)


@broken(52, "a request on connection 1, which was closed before")
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


@broken(10, "b was removed, and its Heartbeat succeeded afterwards")
def a_removed_members_heartbeat_succeeds() -> Tale:
    return _expired().beat("b", 2)


@kept(10, 16)
def a_removed_members_heartbeat_is_refused() -> Tale:
    return _expired().beat("b", 1, ErrorCode.UNKNOWN_MEMBER_ID)


# -- 11: ids -----------------------------------------------------------------------------------


@broken(11, "the id a was given before")
def an_id_is_given_twice() -> Tale:
    return Tale().hand_out("a").hand_out("a")


@broken(11, "the id c-2 can be guessed")
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


@broken(12, "instance i is held by ['a'] already")
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


@broken(13, "a lost instance i and was answered NONE to Heartbeat")
def the_replaced_holder_is_not_fenced() -> Tale:
    return _call_of_the_fenced(ErrorCode.NONE)


@broken(13, "a lost instance i and was answered NONE to Heartbeat")
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


@broken(14, "the return of static member n started a rebalance")
def a_static_return_starts_a_rebalance() -> Tale:
    tale = _static()
    tale = replaced(tale, "a", "n")
    place = next(
        i for i, r in enumerate(tale.history) if isinstance(r.fact, f.StaticMemberReplaced)
    )
    tale.now = tale.history[place].at
    del tale.history[place + 1 :]
    return tale.start(members=("n",))


@broken(14, "a static member that came back was given another assignment")
def a_static_return_is_given_another_assignment() -> Tale:
    tale = replaced(_static(), "a", "n").wait(10)
    told = w.SyncTold(assignment=assignment())
    return tale.call(API.SYNC_GROUP, "n", body=w.SyncAsked(), group_instance_id=I, told=told)


@broken(14, "static member back in generation 2, not 1")
def a_static_return_is_told_another_generation() -> Tale:
    return replaced(_static(), "a", "n", told=2)


@broken(15, "static member a (i) asks to leave")
def a_static_member_leaves_by_itself() -> Tale:
    tale = _static()
    return tale.call(API.LEAVE_GROUP, "a", body=w.LeaveAsked(members=((m("a"), I),)), told=None)


@broken(15, "static member a left as if it were dynamic")
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
