"""Members that the coordinator waited for, in each source that tells them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.explain.test_pasted import NOON
from tests.explain.test_stories import done, explain, joins, line, member

from kohort.explain import waits
from kohort.explain.amounts import Known, Stop
from kohort.explain.causes import Cause
from kohort.explain.events import Kind, Place, Side
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.facts import HistoryReader
from kohort.explain.findings import waited_text
from kohort.explain.phases import phases_of, wait_text
from kohort.explain.reading import LogReader
from kohort.explain.rebalances import Ending, Join, Rebalance, Waited
from kohort.host.group_log import line_for
from kohort.model.facts import (
    AssignmentDelivered,
    AssignmentReceived,
    Fact,
    JoinPhaseCompleted,
    MemberRejoined,
    RebalanceCause,
    RebalanceStarted,
)
from kohort.model.group_state import GroupState
from kohort.model.history_record import AnyFact, Recorded
from kohort.model.ids import GenerationId, GroupId, MemberId, ProtocolName, ProtocolType
from kohort.model.instants import Instant

NEW, OLD = member("new", 1), member("old", 2)


def waited(lines: Iterable[str]) -> tuple[Waited, ...]:
    (row,) = explain(lines).story.rebalances
    return row.waited


def test_members_that_did_not_join_are_named_by_the_brokers_log() -> None:
    late = line(60, f"Group g removed dynamic members who haven't joined: Set({OLD}, {NEW}).")
    found = waited([joins(0, 3, NEW), late, *done(60, 4)])
    assert found == tuple(Waited(who, Ending.DROPPED, Known.MEASURED) for who in (OLD, NEW))


def test_a_wait_that_ends_when_a_member_expires_was_for_that_member() -> None:
    gone = line(42, f"Member {OLD} in group g has failed, removing it from the group.")
    found = explain([joins(0, 3, NEW), gone, *done(42.002, 4)])
    (row,) = found.story.rebalances
    assert row.waited == (Waited(OLD, Ending.EXPIRED, Known.BOUNDED),)
    assert waited_text(row) == f"{OLD} expired (likely)"
    slow = next(f for f in found.findings if f.name == "slow joiner")
    assert f"The wait was for {OLD}, which expired." in slow.says


def test_a_member_that_went_long_before_the_end_says_nothing_about_the_wait() -> None:
    gone = line(10, f"Member {OLD} in group g has failed, removing it from the group.")
    assert waited([joins(0, 3, NEW), gone, *done(42, 4)]) == ()


def test_the_last_of_several_clients_to_ask_is_the_one_that_was_waited_for() -> None:
    def client(number: int, at: int) -> list[str]:
        head = f"2026-03-01 12:00:{{:02}},000 INFO [Consumer clientId=c-{number}, groupId=g] "
        who = member(f"c-{number}", number)
        generation = f"Generation{{{{generationId=5, memberId='{who}', protocol='range'}}}}"
        return [
            (head + "(Re-)joining group").format(at),
            (head + f"Successfully joined group with generation {generation}").format(20),
            (head + f"Successfully synced group in generation {generation}").format(21),
        ]

    (row,) = explain(sorted([*client(1, 1), *client(2, 9)])).story.rebalances
    assert row.waited == (Waited(member("c-2", 2), Ending.LAST, Known.BOUNDED),)
    assert [join.member for join in row.joins] == [member("c-1", 1), member("c-2", 2)]
    times = [
        [None if at is None else round(at - row.began) for at in each]
        for join in row.joins
        for each in [(join.noticed, join.asked, join.joined, join.assigned)]
        if row.began is not None
    ]
    assert times == [[0, 0, 19, 20], [8, 8, 19, 20]]
    (alone,) = explain(client(1, 1)).story.rebalances
    assert alone.waited == ()


def history(*facts: tuple[float, AnyFact]) -> Explained:
    def words(fact: Fact) -> str:
        found = line_for(fact)
        return "" if found is None else found.text

    reader = HistoryReader("h", words, wall_s=NOON, dated=True)
    explainer = Explainer()
    for number, (at, fact) in enumerate(facts):
        recorded = Recorded(
            sequence=number, at=Instant(round(at * 1e6)), incarnation=1, source="b", fact=fact
        )
        explainer.feed_all(told for _, told in reader.read(recorded))
    (found,) = explainer.finish()
    return found


def test_a_history_measures_the_last_member_to_join() -> None:
    group, generation = GroupId("g"), GenerationId(4)
    found = history(
        (
            0,
            RebalanceStarted(
                group_id=group,
                generation_id=GenerationId(3),
                previous_state=GroupState.STABLE,
                cause=RebalanceCause.MEMBER_ADDED,
                member_ids=(MemberId(NEW),),
            ),
        ),
        (0, MemberRejoined(group, MemberId(NEW), generation)),
        (9, MemberRejoined(group, MemberId(OLD), generation)),
        (
            9,
            JoinPhaseCompleted(
                group_id=group,
                generation_id=generation,
                protocol_type=ProtocolType("consumer"),
                protocol_name=ProtocolName("range"),
                leader_id=MemberId(NEW),
                member_ids=(MemberId(NEW), MemberId(OLD)),
            ),
        ),
        (
            10,
            AssignmentReceived(
                group_id=group,
                generation_id=generation,
                leader_id=MemberId(NEW),
                member_count=2,
                static_count=0,
            ),
        ),
        (10, AssignmentDelivered(group, generation, MemberId(NEW), 20)),
        (11, AssignmentDelivered(group, generation, MemberId(OLD), 20)),
    )
    (row,) = found.story.rebalances
    assert row.waited == (Waited(OLD, Ending.LAST, Known.MEASURED),)
    assert found.story.counts[Kind.REJOINED] == 2
    assert row.joins == (
        Join(member=NEW, asked=NOON, assigned=NOON + 10),
        Join(member=OLD, asked=NOON + 9, assigned=NOON + 11),
    )
    assert [(p.name, p.begin - NOON, p.end - NOON) for p in phases_of(row)] == [
        ("members join", 0, 9),
        ("leader assigns", 9, 10),
    ]
    assert wait_text(row) == f"The group waited 9.0 s for members; {OLD} joined last."


def test_members_that_went_or_did_not_join_are_among_the_joins() -> None:
    gone = line(42, f"Member {OLD} in group g has failed, removing it from the group.")
    late = line(60, "Group g removed dynamic members who haven't joined: Set(late).")
    (row,) = explain([joins(0, 3, NEW), gone, late, *done(60, 4)]).story.rebalances
    began = row.began or 0.0
    assert row.joins == (
        Join(member=NEW, asked=began),
        Join(member=OLD, ending=Ending.EXPIRED, gone=began + 42),
        Join(member="late", ending=Ending.DROPPED),
    )


def test_a_member_that_begins_a_rebalance_with_its_end_is_among_the_joins() -> None:
    gone = line(42, f"Member {OLD} in group g has failed, removing it from the group.")
    begun = line(
        42,
        "Preparing to rebalance group g in state PreparingRebalance with old generation 3 "
        f"(__consumer_offsets-7) (reason: removing member {OLD} on heartbeat expiration)",
    )
    (row,) = explain([gone, begun, *done(43, 4)]).story.rebalances
    assert row.joins == (Join(member=OLD, ending=Ending.EXPIRED, gone=row.began),)


def test_stops_are_phases_before_and_behind_the_rounds() -> None:
    row = Rebalance(
        side=Side.OFFSETS,
        cause=Cause.UNTOLD,
        assigned=20.0,
        stops=(Stop("t-0", 12.0, 21.0, Known.BOUNDED), Stop("t-1", 15.0, 24.0, Known.BOUNDED)),
        place=Place("log", 1),
    )
    assert phases_of(row) == [
        ("until the assignment", 12.0, 20.0, Known.BOUNDED),
        ("members resume", 20.0, 24.0, Known.BOUNDED),
    ]
    assert phases_of(replace(row, began=18.0, joined=19.0)) == [
        ("until it begins", 12.0, 18.0, Known.BOUNDED),
        ("members join", 18.0, 19.0, Known.MEASURED),
        ("leader assigns", 19.0, 20.0, Known.MEASURED),
        ("members resume", 20.0, 24.0, Known.BOUNDED),
    ]
    assert phases_of(replace(row, assigned=None)) == []


def test_the_joins_of_the_last_rounds_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_MOST_JOINS", 6)
    rounds = waits.Rounds()
    first, second = rounds.begin(), rounds.begin()
    for joins_of_round in (first, second):
        for name in "ab":
            rounds.note(joins_of_round, name, (1.0, None, None, None))
    assert (len(first), len(second)) == (2, 2)
    rounds.begin()
    assert (len(first), len(second)) == (0, 2), "the oldest round is dropped"


def test_two_pods_with_one_client_id_are_two_clients() -> None:
    """The client id of a Java consumer is the same in each pod by default."""
    begun = "INFO [Consumer clientId=consumer-g-1, groupId=g] "
    old, new = member("consumer-g-1", 1), member("consumer-g-1", 2)

    def ended(who: str) -> list[str]:
        generation = f"Generation{{generationId=5, memberId='{who}', protocol='range'}}"
        return [
            f"2026-03-01 12:00:02,000 {begun}Successfully joined group with generation "
            f"{generation}",
            f"2026-03-01 12:00:02,100 {begun}Successfully synced group in generation {generation}",
        ]

    logs = {
        "pod-1.log": [
            f"2026-03-01 12:00:01,000 {begun}Request joining group due to: group is already "
            "rebalancing",
            f"2026-03-01 12:00:01,100 {begun}(Re-)joining group",
            *ended(old),
        ],
        "pod-2.log.1": [f"2026-03-01 12:00:00,500 {begun}(Re-)joining group"],
        "pod-2.log": ended(new),
    }
    events = []
    for name, lines in logs.items():
        reader = LogReader(name)
        events += [e for n, text in enumerate(lines, 1) for e in reader.read(n, text)]
    (found,) = Explainer().feed_all(sorted(events, key=lambda e: e.at or 0)).finish()
    assert set(found.story.clients) == {"consumer-g-1", "consumer-g-1 in pod-1.log"}
    (row,) = found.story.rebalances
    assert (row.cause, row.member, row.certain) == (Cause.NEW_MEMBER, new, False)
    assert row.waited == (Waited(old, Ending.LAST, Known.BOUNDED),)
    assert found.findings == ()
