"""Logs of franz-go 1.22 on a real Kafka 4.3: a third member joins a cooperative group of two."""

from __future__ import annotations

from kohort.explain.causes import Cause, reason_of
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.reading import LogReader

OLD, OTHER, NEW = (f"kgo-{letter * 8}-9d3b-4e5c-9d0c-3f1f2e6f7a5d" for letter in "abc")
BUSY = "heartbeat errored; group: g, err: REBALANCE_IN_PROGRESS: The group is rebalancing, so a …"
NOTHING = "added: , lost: "


def round_of(at: int, member: str, generation: int, owned: str, change: str) -> list[str]:
    """The lines of one JoinGroup and one SyncGroup; times are milliseconds of a minute."""
    return [
        f"{stamp(at)} joining group; group: g",
        f"{stamp(at + 1)} joined; group: g, member_id: {member}, instance_id: <nil>, generation: "
        f"{generation}, leader: false",
        f"{stamp(at + 2)} syncing; group: g, protocol_type: consumer, protocol: cooperative-sticky",
        f"{stamp(at + 5)} synced; group: g, assigned: {owned}",
        f"{stamp(at + 5)} new group session begun; group: g, {change}",
        f"{stamp(at + 5)} beginning heartbeat loop; group: g",
    ]


def second_round(at: int, lost: str) -> list[str]:
    """The lines of a member that gave partitions up, before the second round."""
    return [
        f"{stamp(at)} calling onRevoke at the end of a session; group: g, lost: {lost}, stage: 0",
        f"{stamp(at)} forced rejoin quitting heartbeat loop; why: after revoking what we lost from "
        "a rebalance, is848: false",
        f"{stamp(at)} {BUSY}",
    ]


def stamp(at: int) -> str:
    return f"2026-11-27 19:45:{at // 1_000:02}.{at % 1_000:03} [INFO]"


def kept(name: str, gives_up: str, keeps: str, member: str) -> tuple[str, list[str]]:
    """The log of a member that gives one partition up."""
    first = [
        f"{stamp(36_472)} {BUSY}",
        *round_of(36_473, member, 4, keeps, f"added: , lost: {gives_up}"),
    ]
    return name, [
        *first,
        *second_round(36_479, gives_up),
        *round_of(36_989, member, 5, keeps, NOTHING),
    ]


def explained() -> list[Explained]:
    newcomer = [
        f"{stamp(36_078)} beginning to manage the group lifecycle; group: g",
        f"{stamp(36_078)} joining group; group: g",
        f"{stamp(36_080)} join returned MemberIDRequired, rejoining with response's MemberID; "
        f"group: g, member_id: {NEW}",
        *round_of(36_473, NEW, 4, "", NOTHING)[1:],
        f"{stamp(36_981)} {BUSY}",
        *round_of(36_988, NEW, 5, "t[2 5]", "added: t[2 5], lost: "),
    ]
    logs = [
        kept("one.log", "t[2]", "t[0 1]", OLD),
        kept("two.log", "t[5]", "t[3 4]", OTHER),
        ("new.log", newcomer),
    ]
    explainer, lines = Explainer(), []
    for name, log in logs:
        reader = LogReader(name)
        events = [event for n, text in enumerate(log, 1) for event in reader.read(n, text)]
        assert reader.counts.unknown == 0, reader.counts.examples
        lines += [*events, *reader.rest()]
    return explainer.feed_all(sorted(lines, key=lambda event: event.at or 0)).finish()


def test_a_member_with_no_partitions_makes_no_group_of_its_own() -> None:
    """Its line ends in «assigned: », and a session that lost nothing in «lost: »."""
    (found,) = explained()
    assert found.story.group == "g"


def test_the_newcomer_and_the_second_round_are_told() -> None:
    (found,) = explained()
    first, second = found.story.rebalances
    assert (first.generation, first.cause, first.member) == (4, Cause.NEW_MEMBER, NEW)
    assert not first.certain
    assert (second.generation, second.cause) == (5, Cause.SECOND_ROUND)


def test_a_member_of_the_generation_before_is_not_new() -> None:
    """One member asked without a reason; the others reported a rebalance of others."""
    silent = [
        *round_of(30_000, OLD, 3, "t[0 1]", NOTHING),
        *round_of(36_473, OLD, 4, "t[0 1]", NOTHING),
    ]
    heard = [
        *round_of(30_000, NEW, 3, "t[2]", NOTHING),
        f"{stamp(36_480)} {BUSY}",
        *round_of(36_481, NEW, 4, "t[2]", NOTHING),
    ]
    explainer = Explainer()
    events = [
        event
        for name, log in (("silent.log", silent), ("heard.log", heard))
        for n, text in enumerate(log, 1)
        for event in LogReader(name).read(n, text)
    ]
    (found,) = explainer.feed_all(sorted(events, key=lambda event: event.at or 0)).finish()
    assert found.story.rebalances[-1].generation == 4
    assert found.story.rebalances[-1].cause is not Cause.NEW_MEMBER


def test_the_broker_tells_the_second_round_in_the_words_of_franz_go() -> None:
    """franz-go sends only the first part of its reason."""
    told = reason_of(
        f"Leader {OLD} re-joining group during Stable; client reason: after revoking what we lost "
        "from a rebal"
    )
    assert told.cause is Cause.SECOND_ROUND
