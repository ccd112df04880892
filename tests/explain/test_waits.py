"""Members that the coordinator waited for, in each source that tells them."""

from __future__ import annotations

from collections.abc import Iterable

from tests.explain.test_pasted import NOON
from tests.explain.test_stories import done, explain, joins, line, member

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause
from kohort.explain.events import Kind
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.facts import HistoryReader
from kohort.explain.findings import waited_text
from kohort.explain.reading import LogReader
from kohort.explain.rebalances import Ending, Waited
from kohort.host.group_log import line_for
from kohort.model.facts import (
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
    )
    (row,) = found.story.rebalances
    assert row.waited == (Waited(OLD, Ending.LAST, Known.MEASURED),)
    assert found.story.counts[Kind.REJOINED] == 2


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
