"""Histories on durability, recovery, liveness and isolation (45 to 50)."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.cases_membership import I, replaced
from tests.history.tale import API, G, Tale, assignment, m

from kohort.model import client_facts as c
from kohort.model import facts as f
from kohort.model import wire_facts as w
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.ids import (
    GenerationId,
    GroupId,
    GroupInstanceId,
    ProtocolName,
    Ticket,
    TopicPartition,
)
from kohort.model.world_facts import FaultsHealed, HistoryCalmed

# -- 45, 47: told and stored -------------------------------------------------------------------


@broken(45, "the assignment of generation 1 was told, but not stored")
def an_assignment_is_told_before_it_is_stored() -> Tale:
    tale = Tale().persist(offsets=())
    tokens = {"a": tale.arrive("a")}
    tale.start(GroupState.EMPTY).wait(1).open(tokens)
    return tale.sync({"a": (0, 1, 2, 3)}, stored=False)


@broken(
    45,
    "write 2 was reported as stored, but the disk has not synced it",
    "t-0 at 5 was acknowledged, but not stored",
)
def the_log_reports_a_write_that_the_disk_has_not_synced() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    offsets = ((TopicPartition("t", 0), 5),)
    token = tale.ask(API.OFFSET_COMMIT, "a", 1, body=w.CommitAsked(offsets=offsets))
    tale.persist(ok=None, offsets=offsets)
    tale.add(w.PersistNotOnDisk(ticket=Ticket(2))).add(w.PersistOk(group_id=G, ticket=Ticket(2)))
    told = w.CommitTold(errors=((offsets[0][0], ErrorCode.NONE),))
    return tale.answer(token, API.OFFSET_COMMIT, "a", 1, body=told)


@broken(45, "t-0 at 5 was acknowledged, but not stored")
def a_commit_is_acknowledged_before_it_is_stored() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).commit("a", stored=None, p0=5)


@broken(45, "t-0 at 5 was acknowledged, but not stored")
def a_commit_rests_on_an_older_one_of_the_same_value() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5).commit("a", stored=None, p0=5)


@broken(47, "an offset of t-0 was told although its write failed")
def a_failed_commit_can_be_read() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5)
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=7)
    return tale.fetch(p0=7)


@broken(47, "generation 1 was told although its write failed")
def a_generation_is_told_although_its_write_failed() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a")}
    tale.start(GroupState.EMPTY).wait(1).open(tokens)
    tale.persist_group(ok=False)
    told = w.SyncTold(assignment=assignment(0, 1, 2, 3))
    return tale.call(API.SYNC_GROUP, "a", body=w.SyncAsked(), told=told)


@kept(47)
def a_failed_commit_is_refused_and_not_read() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5)
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=7)
    return tale.fetch(p0=5)


@kept(47)
def what_failed_may_be_stored_later() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=7)
    return tale.commit("a", p0=7).fetch(p0=7)


@kept(47)
def a_commit_that_was_kept_is_sent_again_in_vain() -> Tale:
    """Its answer was lost, its repetition met a full disk: the first is durable all the same."""
    tale = Tale().boot().stable(a=(0, 1, 2, 3)).commit("a", p0=5)
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=5)
    return tale.fetch(p0=5)


@broken(47, "an offset of t-0 was told although its write failed")
def a_commit_that_failed_twice_is_read() -> Tale:
    tale = Tale().boot().stable(a=(0, 1, 2, 3))
    for _ in range(2):
        tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=5)
    return tale.fetch(p0=5)


@broken(47, "an offset of t-0 was told although its write failed")
def a_commit_back_that_failed_is_read() -> Tale:
    """The offset was durable once, but another is since."""
    tale = Tale().boot().stable(a=(0, 1, 2, 3)).commit("a", p0=5).commit("a", p0=9)
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=5)
    return tale.fetch(p0=5)


@broken(47, "an offset of t-0 was told although its write failed")
def a_deleted_offset_that_failed_to_come_back_is_read() -> Tale:
    tale = Tale().boot().stable(a=(0, 1, 2, 3)).commit("a", p0=5)
    tale.persist(offsets=((TopicPartition("t", 0), None),))
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=5)
    return tale.fetch(p0=5)


@kept(47)
def what_a_crash_left_is_sent_again_in_vain() -> Tale:
    """A commit that failed, or had no answer, may be in the log that is read back."""
    tale = Tale().boot().stable(a=(0, 1, 2, 3)).commit("a", p0=5, p1=5)
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=7)
    tale.ask(API.OFFSET_COMMIT, "a", 1, body=w.CommitAsked(offsets=((TopicPartition("t", 1), 8),)))
    tale.persist(ok=None, offsets=((TopicPartition("t", 1), 8),))
    tale.crash().boot().add(_loaded(1, 1))
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=7, p1=8)
    return tale.fetch(p0=7, p1=8)


@broken(47, "an offset of t-0 was told although its write failed")
def what_a_crash_cannot_have_left_is_read() -> Tale:
    """It failed before a commit that is durable, so it cannot lie behind it in the log."""
    tale = Tale().boot().stable(a=(0, 1, 2, 3))
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=7)
    tale.commit("a", p0=9).crash().boot().add(_loaded(1, 1))
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=7)
    return tale.fetch(p0=7)


# -- 46: recovery ------------------------------------------------------------------------------


def _loaded(generation: int, count: int) -> f.GroupLoaded:
    return f.GroupLoaded(group_id=G, generation_id=GenerationId(generation), member_count=count)


@kept(46)
def a_crash_and_the_last_record() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).crash().boot().add(_loaded(1, 1)).beat("a")


@kept(46)
def a_crash_may_keep_what_was_on_its_way() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).beat_all(3)
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3)), "b": tale.arrive("b")}
    tale.start().wait(1).open(tokens)
    return tale.persist_group(ok=None).crash().boot().add(_loaded(2, 2))


@broken(46, "came back in generation 1 with members []; the log can hold generation 2 with [a]")
def a_crash_brings_an_older_state_back() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).again(a=(0, 1, 2, 3)).crash().boot()
    return tale.add(_loaded(1, 1))


@broken(46, "group g was durable and did not come back")
def a_crash_loses_a_group() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).crash().boot()
    return tale.beat("a", error=ErrorCode.UNKNOWN_MEMBER_ID)


def _changed_hands_while_rebalancing(
    loaded: tuple[tuple[str, str | None], ...], *, expired: bool = False
) -> Tale:
    """The place of "a" is "n"'s by a record of its own; "b" joins; the coordinator dies.

    If "a" is ``expired`` before, a stranger takes the place, and "n" takes it from him.
    """
    tale = Tale()
    tale.instances["a"] = "i"
    tale.stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.come_back("b", (2, 3))
    tale.start(members=("b",))
    holder = "a"
    if expired:
        tale.wait(tale.session_ms).expire("a")
        holder = "stranger"
        tale.instances[holder] = tale.instances.pop("a")
        tale.arrive(holder)
    tale.ask(API.JOIN_GROUP, "", body=tale.join_body(), group_instance_id=I)
    tale.add(
        f.StaticMemberReplaced(
            group_id=G,
            state=GroupState.PREPARING_REBALANCE,
            generation_id=GenerationId(1),
            group_instance_id=I,
            replaced_id=m(holder),
            member_id=m("n"),
        )
    )
    tale.persist().crash().boot()
    members = tuple((m(who), None if i is None else GroupInstanceId(i)) for who, i in loaded)
    tale.add(
        f.GroupLoaded(
            group_id=G, generation_id=GenerationId(1), member_count=len(members), members=members
        )
    )
    tale.members = {"n": (0, 1), "b": (2, 3)}
    tale.instances["n"] = "i"
    return tale


@kept(3, 46)
def a_place_that_changed_hands_while_rebalancing_comes_back_with_its_last_holder() -> Tale:
    tale = _changed_hands_while_rebalancing((("n", "i"), ("b", None)))
    return replaced(tale, "n", "x").beat("b")


@kept(3, 46)
def a_place_comes_back_with_the_holder_before_the_one_that_was_not_durable() -> Tale:
    tale = _changed_hands_while_rebalancing((("a", "i"), ("b", None)))
    tale.members = {"a": (0, 1), "b": (2, 3)}
    return replaced(tale, "a", "x").beat("b")


@kept(3, 46)
def a_place_comes_back_with_the_last_holder_though_the_one_of_the_record_expired() -> Tale:
    """The log could not store that the group was without him (seed 201412)."""
    tale = _changed_hands_while_rebalancing((("n", "i"), ("b", None)), expired=True)
    return replaced(tale, "n", "x").beat("b")


@broken(3, "leader a is no member of the generation")
def a_leader_is_told_that_did_not_come_back_from_the_log() -> Tale:
    tale = _changed_hands_while_rebalancing((("n", "i"), ("b", None)), expired=True)
    told = w.JoinTold(leader_id=m("a"), protocol_name=ProtocolName(tale.protocol))
    return tale.call(API.JOIN_GROUP, "b", body=tale.join_body(), told=told)


@broken(
    46, "came back in generation 1 with members [i, z]; the log can hold generation 1 with [i, b]"
)
def a_crash_brings_somebody_else_back() -> Tale:
    return _changed_hands_while_rebalancing((("n", "i"), ("z", None)))


# -- 48: stable at last ------------------------------------------------------------------------


def _healed(tale: Tale) -> Tale:
    return tale.add(FaultsHealed(group_id=G, core=("a",)), "lab")


@kept(48)
def stable_again_after_everything_healed() -> Tale:
    tale = _healed(Tale().stable(a=(0, 1, 2, 3)).beat_all(3))
    return tale.again(a=(0, 1, 2, 3)).beat_all(120).add(HistoryCalmed(group_id=G), "lab")


@broken(48, "still in PreparingRebalance, since 6001 ms")
def never_stable_although_everything_healed() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.come_back("a", (0, 1))
    tale = _healed(tale.start())
    for _ in range(50):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    return tale


@broken(48, "still in PreparingRebalance, since 3001 ms")
def the_end_of_a_calm_history_is_not_stable() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tale.come_back("a", (0, 1, 2, 3))
    return tale.start().add(HistoryCalmed(group_id=G), "lab")


# -- 49: for a reason --------------------------------------------------------------------------


@broken(49, "generation 2 opens after 243 s of quiet")
def a_generation_in_a_quiet_minute() -> Tale:
    return Tale().stable(a=(0, 1, 2, 3)).beat_all(240).again(a=(0, 1, 2, 3))


@broken(
    49,
    "4 generations since the last event that needs one",
    "5 generations since the last event that needs one",
    "6 generations since the last event that needs one",
)
def a_storm_of_generations() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    for _ in range(5):
        tale.again(a=(0, 1), b=(2, 3))
    return tale


@kept(49)
def each_member_that_gives_something_up_comes_back_when_it_is_ready() -> Tale:
    held: dict[str, tuple[int, ...]]
    held = {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7), "c": (8, 9, 10, 11)}
    tale = Tale(partitions=12).stable(**held).beat_all(3)
    kept_by = {name: numbers[:3] for name, numbers in held.items()}
    mine: tuple[int, ...] = ()
    tokens = {name: tale.come_back(name, held[name]) for name in held}
    tokens["d"] = tale.arrive("d")
    tale.start().wait(100).open(tokens).sync({**kept_by, "d": mine})
    for name in held:
        mine, held[name] = (*mine, held[name][3]), kept_by[name]
        tokens = {each: tale.come_back(each, held[each]) for each in held}
        tokens["d"] = tale.come_back("d", mine[:-1])
        cause = f.RebalanceCause.METADATA_UPDATED
        tale.start(cause=cause, members=(name,)).wait(100).open(tokens).sync({**kept_by, "d": mine})
    return tale


@broken(
    49,
    "4 generations since the last event that needs one",
    "5 generations since the last event that needs one",
)
def members_give_up_what_they_could_keep_and_each_comes_back_for_that() -> Tale:
    """Nobody came and nobody went: two generations and one for good measure are enough."""
    tale = Tale(partitions=8).stable(a=(0, 1), b=(2, 3), c=(4, 5), d=(6, 7)).beat_all(3)
    tale.again(a=(0,), b=(2,), c=(4,), d=(6,)).again(a=(0, 3), b=(2,), c=(4,), d=(6,))
    return tale.again(a=(0, 3), b=(2, 1), c=(4,), d=(6,)).again(
        a=(0, 3), b=(2, 1), c=(4, 7), d=(6,)
    )


@kept(49)
def a_static_member_comes_late_and_comes_late() -> Tale:
    tale = Tale()
    tale.protocol, tale.instances = "range", {"a": "place-a", "b": "place-b"}
    tale.stable(a=(0, 1), b=(2, 3))
    for late, prompt in (("b", "a"), ("a", "b"), ("b", "a"), ("a", "b")):
        tokens = {prompt: tale.come_back(prompt), late: None}
        tale.start(cause=f.RebalanceCause.METADATA_UPDATED, members=(prompt,)).wait(60_000)
        tale.open(tokens).sync({"a": (0, 1), "b": (2, 3)}, only=(prompt,))
    return tale


@broken(49, "a rebalance for ('b',), but none of them expired now")
def a_rebalance_for_somebody_who_is_gone_already() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3).leave("b")
    tokens = {"a": tale.come_back("a", (0, 1))}
    tale.start(members=("b",), cause=f.RebalanceCause.MEMBERS_LEFT)
    tale.wait(1).open(tokens).sync({"a": (0, 1, 2, 3)}).wait(5_000)
    return tale.start(members=("b",), cause=f.RebalanceCause.MEMBER_EXPIRED)


# -- 50: isolation -----------------------------------------------------------------------------


def _neighbours(took_ms: int) -> Tale:
    """Another group's heartbeats while this one rebalances."""
    tale = Tale().stable(a=(0, 1), b=(2, 3))
    other = GroupId("other")
    tale.add(f.GroupCreated(group_id=other, simple=False))
    tale.come_back("a", (0, 1))
    tale.start()
    for number in range(1, 4):
        tale.wait(100)
        sent = c.RequestSent(group_id=other, api=API.HEARTBEAT, request=number)
        tale.add(sent, "n").wait(took_ms)
        got = c.ResponseReceived(
            group_id=other, api=API.HEARTBEAT, request=number, outcome=c.Outcome.OK
        )
        tale.add(got, "n")
    return tale


@kept(50)
def a_neighbour_is_answered_at_once() -> Tale:
    return _neighbours(3)


@broken(50, "heartbeats took 900 ms at the 99th percentile while another group rebalanced")
def a_neighbour_waits() -> Tale:
    return _neighbours(900)


@kept(38)
def a_write_that_failed_may_be_there_after_a_crash() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5)
    tale.commit("a", stored=False, error=ErrorCode.NOT_COORDINATOR, p0=7)
    return tale.crash().boot().add(_loaded(1, 1)).fetch(p0=7)


@broken(38, "t-0 was told as 7, expected 5")
def a_commit_that_was_refused_is_told() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3)).commit("a", p0=5)
    tale.commit("a", 0, stored=None, error=ErrorCode.ILLEGAL_GENERATION, p0=7)
    return tale.fetch(p0=7)


@kept(18)
def a_log_that_fails_does_not_count_as_waiting() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tokens = {"a": tale.come_back("a", (0, 1))}
    tale.start()
    for _ in range(15):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    tale.add(f.WriteFailed(group_id=G, purpose="generation", error=failed))
    for _ in range(10):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    tokens["b"] = tale.come_back("b", (2, 3))
    return tale.open(tokens).sync({"a": (0, 1), "b": (2, 3)})
