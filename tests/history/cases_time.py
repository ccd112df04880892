"""Histories for the checks 16 to 21 and 51: sessions, pending ids, phases, one answer each."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.tale import API, G, Tale, assignment, m

from kohort.model import client_facts as c
from kohort.model import facts as f
from kohort.model import wire_facts as w
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.ids import GenerationId, GroupInstanceId, Ticket, Token, TopicPartition

PREPARING = GroupState.PREPARING_REBALANCE
I = GroupInstanceId("i")  # noqa: E741 - an instance id


# -- 16 to 21: time ----------------------------------------------------------------------------


@broken(16, "b was expired 2000 ms after it showed life; its session is 10000 ms")
def a_member_that_beats_is_expired() -> Tale:
    return Tale().stable(a=(0, 1), b=(2, 3)).beat_all(9).wait(2_000).expire("b")


@broken(16, "b was silent for 30000 ms and still there; its session is 10000 ms")
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


@broken(17, "a has been new for 320000 ms")
def a_new_member_is_parked_for_ever() -> Tale:
    tale = Tale(group_initial_rebalance_delay_ms=400_000)
    tale.arrive("a")
    return tale.start(GroupState.EMPTY).wait(320_000).add(w.CoordinatorStalled(micros=1))


@kept(17)
def a_new_member_is_dropped_after_five_minutes() -> Tale:
    tale = Tale(group_initial_rebalance_delay_ms=400_000)
    tale.arrive("a")
    return tale.start(GroupState.EMPTY).wait(300_000).expire("a")


@broken(18, "PreparingRebalance lasted 90000 ms; the longest rebalance timeout is 60000 ms")
def a_join_phase_without_end() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.come_back("a", (0, 1))
    tale.start()
    for _ in range(30):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    return tale


@broken(18, "CompletingRebalance lasted 66000 ms; the longest rebalance timeout is 60000 ms")
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
    tale.wait(90_000).add(w.PersistOk(group_id=G, ticket=Ticket(1)))
    tale.add(
        f.GroupStabilized(
            group_id=G,
            generation_id=GenerationId(1),
            assignments=((m("a"), assignment(0, 1, 2, 3)),),
        )
    )
    told = w.SyncTold(assignment=assignment(0, 1, 2, 3))
    return tale.answer(token, API.SYNC_GROUP, "a", 1, body=told)


@kept(18)
def a_slow_disk_behind_a_commit_is_not_the_members_fault() -> Tale:
    """The assignment waits for its own write; earlier writes of other records do not matter."""
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tokens = {"a": tale.come_back("a", (0, 1))}
    tale.start()
    offsets = ((TopicPartition("t", 2), 7),)
    commit = tale.ask(API.OFFSET_COMMIT, "b", 1, body=w.CommitAsked(offsets=offsets))
    tale.persist(ok=None, offsets=offsets)
    tokens["b"] = tale.come_back("b", (2, 3))
    tale.open(tokens)
    assigned = {"a": (0, 1), "b": (2, 3)}
    payload = tuple((m(name), assignment(*numbers)) for name, numbers in assigned.items())
    syncs = {
        "a": tale.ask(API.SYNC_GROUP, "a", 2, body=w.SyncAsked(assignments=payload)),
        "b": tale.ask(API.SYNC_GROUP, "b", 2, body=w.SyncAsked()),
    }
    tale.persist_group(ok=None)
    tale.wait(20_000).add(w.PersistOk(group_id=G, ticket=Ticket(2)))
    told = w.CommitTold(errors=((offsets[0][0], ErrorCode.NONE),))
    tale.answer(commit, API.OFFSET_COMMIT, "b", 1, body=told)
    tale.wait(70_000).add(w.PersistOk(group_id=G, ticket=Ticket(3)))
    tale.add(
        f.GroupStabilized(group_id=G, generation_id=GenerationId(2), assignments=payload),
    )
    for name, token in syncs.items():
        told_sync = w.SyncTold(assignment=assignment(*assigned[name]))
        tale.answer(token, API.SYNC_GROUP, name, 2, body=told_sync)
    return tale


@broken(18, "CompletingRebalance lasted 70001 ms; the longest rebalance timeout is 60000 ms")
def a_sync_phase_goes_on_although_the_assignment_is_stored() -> Tale:
    tale = Tale()
    tokens = {"a": tale.arrive("a")}
    tale.start(GroupState.EMPTY).wait(10).open(tokens)
    payload = ((m("a"), assignment(0, 1, 2, 3)),)
    tale.ask(API.SYNC_GROUP, "a", 1, body=w.SyncAsked(assignments=payload))
    return tale.persist_group().wait(70_000).leave("a")


def _number_stored_after(seconds: int) -> tuple[Tale, Token]:
    """One member is back for that long when the generation's number is durable."""
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    token = tale.come_back("a", (0, 1))
    tale.start().persist(ok=None, reserved=GenerationId(2))
    for _ in range(seconds // 3):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    return tale.add(w.PersistOk(group_id=G, ticket=Ticket(2))), token


@kept(18)
def a_join_phase_waits_for_its_number_to_be_stored() -> Tale:
    """The story: a commit and then the number waited 7 s each for a slow disk (100859)."""
    tale, token = _number_stored_after(90)
    return tale.open({"a": token, "b": tale.come_back("b", (2, 3))})


@broken(18, "PreparingRebalance lasted 66000 ms; the longest rebalance timeout is 60000 ms")
def a_join_phase_goes_on_although_its_number_was_stored_in_time() -> Tale:
    tale, _ = _number_stored_after(6)
    for _ in range(20):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    return tale


@broken(18, "PreparingRebalance lasted 66000 ms; the longest rebalance timeout is 60000 ms")
def a_join_phase_goes_on_although_its_number_was_stored_late() -> Tale:
    tale, _ = _number_stored_after(63)
    return tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)


@broken(18, "PreparingRebalance lasted 63000 ms; the longest rebalance timeout is 60000 ms")
def a_join_phase_that_should_be_over_stores_a_number_then() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.come_back("a", (0, 1))
    tale.start()
    for _ in range(21):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    return tale.persist(ok=None, reserved=GenerationId(2))


@broken(18, "PreparingRebalance lasted 63000 ms; the longest rebalance timeout is 60000 ms")
def a_join_phase_waits_for_a_commit_to_be_stored() -> Tale:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.come_back("a", (0, 1))
    tale.start().persist(ok=None, offsets=((TopicPartition("t", 2), 7),))
    for _ in range(21):
        tale.wait(3_000).beat("b", error=ErrorCode.REBALANCE_IN_PROGRESS)
    return tale


@broken(19, "the first wait lasted 70000 ms, the limit is 60000 ms")
def a_first_wait_without_end() -> Tale:
    tale = Tale(group_initial_rebalance_delay_ms=3_000)
    tokens = {"a": tale.arrive("a")}
    return tale.start(GroupState.EMPTY).wait(70_000).open(tokens)


@kept(19)
def a_first_wait_as_long_as_its_rebalance_timeout() -> Tale:
    tale = Tale(group_initial_rebalance_delay_ms=3_000)
    tokens = {"a": tale.arrive("a")}
    return tale.start(GroupState.EMPTY).wait(60_000).open(tokens).sync({"a": (0, 1, 2, 3)})


@broken(21, "the id a was pending for 12000 ms; its session is 10000 ms")
def a_pending_id_is_kept() -> Tale:
    return Tale().hand_out("a").wait(12_000).hand_out("b")


@kept(21)
def a_pending_id_is_dropped() -> Tale:
    tale = Tale().hand_out("a").wait(10_000)
    return tale.add(f.PendingMemberExpired(group_id=G, member_id=m("a")))


# -- 51: one answer each -----------------------------------------------------------------------


@broken(51, "an answer to Heartbeat for which no request waits")
def a_request_is_answered_twice() -> Tale:
    tale = Tale().stable(a=(0, 1, 2, 3))
    token = tale.ask(API.HEARTBEAT, "a", 1)
    return tale.answer(token, API.HEARTBEAT, "a", 1).answer(token, API.HEARTBEAT, "a", 1)


@broken(51, "Heartbeat was answered as another request")
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


@broken(51, "Heartbeat was answered out of turn")
def answers_come_out_of_turn() -> Tale:
    return _two_on_one_connection(2, 1)


@broken(51, "a cannot read an answer: the frame ends early")
def a_client_cannot_read_an_answer() -> Tale:
    reason = "the frame ends early"
    tale = _two_on_one_connection(1)
    return tale.add(c.AnswerUnreadable(group_id=G, connection=7, reason=reason), "a")


@kept(51)
def answers_come_in_turn() -> Tale:
    return _two_on_one_connection(1, 2)
