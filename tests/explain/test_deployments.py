"""The deployment in the evidence: pods, their events, and figures with the way they are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.explain.test_stories import done, joins, leaves, line, member, preparing

from kohort.client.consuming.poll_loop import IDLE_WAIT_S
from kohort.explain.amounts import Known
from kohort.explain.client_times import ClientTimes
from kohort.explain.deployments import Deployment, Incident, What
from kohort.explain.events import Place, Timed
from kohort.explain.evidence import Evidence
from kohort.explain.offsets_topic.generations import Settled, SettledMember
from kohort.explain.reading import LogReader
from kohort.explain.told import Told
from kohort.model import client_facts as c
from kohort.model.errors import ConfigError
from kohort.model.history_record import AnyFact
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition

G = GroupId("g")
RESTART = [
    *leaves(100, 4, member("svc", 1)),
    *done(102, 5, members=2),
    joins(112.5, 5, member("svc", 9)),
    *done(114, 6, members=3),
]


def expires(at: float, who: str) -> str:
    return line(at, f"Member {who} in group g has failed, removing it from the group.")


def deployment(lines: Iterable[str], *before: Told) -> Deployment:
    reader, evidence = LogReader("broker.log"), Evidence()
    for told in before:
        evidence.feed(told)
    for number, text in enumerate(lines, 1):
        for event in reader.read(number, text):
            evidence.feed(event)
    return evidence.deployment()


def away(incident: Incident) -> float:
    return round(incident.for_s or 0, 3)


def test_a_process_that_leaves_and_comes_back_is_one_pod_with_a_measured_restart() -> None:
    found = deployment(RESTART)
    (incident,) = found.incidents
    assert (incident.what, away(incident), incident.known) == (What.STOPPED, 12.5, Known.MEASURED)
    assert found.figures["restart.ms"].value == 12_500
    assert found.pods == ("svc", "other 1", "other 2"), "two members have no name in the log"
    assert found.figures["members"].value == 3
    assert (found.rebalances, found.dead) == (2, None)


def test_an_expired_member_died_a_session_earlier_and_may_be_back_before_it_expires() -> None:
    lines = [
        joins(130, 4, member("svc", 2)),
        expires(145, member("svc", 1)),
        *done(145.1, 5, members=2),
    ]
    records = Settled(
        group="g",
        generation=4,
        at=0.0,
        protocol="cooperative-sticky",
        members=(SettledMember(member=member("svc", 1), client="svc", session_s=20.0),),
        place=Place("offsets", 1),
    )
    evidence = deployment(lines, records)
    (incident,) = evidence.incidents
    assert incident.what is What.KILLED
    assert incident.for_s == pytest.approx(5.0), "it died 20 s before its expiry, at 125 s"
    assert incident.known is Known.BOUNDED
    assert evidence.figures["session.timeout.ms"].value == 20_000
    assert evidence.figures["session.timeout.ms"].known is Known.MEASURED
    assert evidence.figures["partition.assignment.strategy"].value == "cooperative-sticky"


def test_a_record_that_is_read_after_the_log_ends_no_later_life() -> None:
    """Files are read first, then the offsets topic from its beginning."""
    evidence = Evidence()
    reader = LogReader("broker.log")
    for number, text in enumerate(RESTART, 1):
        for event in reader.read(number, text):
            evidence.feed(event)
    begin = reader.read(9, joins(0, 0, "x"))[0].at or 0.0
    present = SettledMember(member=member("svc", 1), client="svc")
    for generation, at in ((4, begin + 10), (5, begin + 102)):
        members = (present,) if generation == 4 else ()
        evidence.feed(
            Settled(
                group="g",
                generation=generation,
                at=at,
                protocol="range",
                members=members,
                place=Place("offsets", generation),
            )
        )
    (incident,) = evidence.deployment().incidents
    assert (incident.what, away(incident)) == (What.STOPPED, 12.5)


def test_a_member_that_is_back_right_after_its_expiry_was_paused() -> None:
    lines = [
        expires(145, member("svc", 1)),
        preparing(145, 4, f"removing member {member('svc', 1)} on heartbeat expiration"),
        *done(145.1, 5, members=1),
        joins(147, 5, member("svc", 2)),
        *done(148, 6, members=2),
    ]
    (incident,) = deployment(lines).incidents
    assert (incident.what, away(incident)) == (What.PAUSED, 47.0)


def test_a_member_that_polled_too_late_has_the_time_without_a_poll() -> None:
    who = member("svc", 1)
    reason = "consumer poll timeout has expired."
    text = f"[Group g] Member {who} has left group through explicit `LeaveGroup` request"
    lines = [
        line(400, f"{text}; client reason: {reason}"),
        preparing(400, 4, f"explicit `LeaveGroup` request for ({who}) members."),
        *done(401, 5, members=1),
        joins(420, 5, member("svc", 2)),
        *done(421, 6, members=2),
    ]
    (incident,) = deployment(lines).incidents
    assert (incident.what, away(incident)) == (What.SLOW, 320.0)


def test_a_long_wait_for_members_means_that_one_did_not_poll() -> None:
    found = deployment([joins(0, 4, member("svc", 1)), *done(20, 5, members=2)])
    slow, started = sorted(found.incidents, key=lambda each: each.what is What.STARTED)
    assert (slow.what, slow.pod, away(slow)) == (What.SLOW, "other 1", 20.0)
    assert (started.what, started.pod) == (What.STARTED, "svc")
    assert (found.pods, found.later) == (("other 1",), ("svc",))


def test_the_start_of_a_whole_group_is_replayed_if_nothing_else_happened() -> None:
    lines = [joins(0, 0, member("a", 1)), *done(3, 1, members=1)]
    lines += [joins(5, 1, member("b", 2)), *done(6, 2, members=2)]
    found = deployment(lines)
    assert found.begins
    assert [i.what for i in found.incidents] == [What.STARTED, What.STARTED]
    assert found.figures["group.initial.rebalance.delay.ms"].value == 3_000


def test_the_end_of_the_whole_group_is_not_replayed() -> None:
    start = [joins(0, 0, member("a", 1)), *done(3, 1, members=1)]
    lines = [*start, *leaves(50, 1, member("a", 1)), joins(55, 2, member("a", 2))]
    lines += [*done(57, 3, members=1), *leaves(90, 3, member("a", 2))]
    found = deployment(lines)
    assert [(i.what, away(i)) for i in found.incidents] == [(What.STOPPED, 5.0)]
    assert found.notes == ("the end of the whole group is not replayed",)


def test_evidence_without_a_rebalance_or_without_a_group_is_refused() -> None:
    with pytest.raises(ConfigError, match="no rebalance in the evidence"):
        deployment([expires(3, member("svc", 1))])
    with pytest.raises(ConfigError, match="tells anything about a group"):
        deployment(["nothing"])
    unnamed = [preparing(0, 4, "leader x re-joining"), line(1, "Stabilized group g generation 5.")]
    with pytest.raises(ConfigError, match="names no member of group g"):
        deployment(unnamed[:1])


def test_two_groups_need_a_name() -> None:
    other = [text.replace("group g ", "group h ") for text in RESTART]
    with pytest.raises(ConfigError, match="2 groups with rebalances"):
        deployment([*RESTART, *other])


def test_the_times_of_callbacks_restores_and_heartbeats_come_from_facts() -> None:
    times, parts = ClientTimes(), (TopicPartition("t", 0), TopicPartition("t", 1))
    told: dict[str, Any] = {
        "group_id": G,
        "member_id": MemberId("m"),
        "generation_id": GenerationId(1),
    }
    assigned = {**told, "kind": c.CallbackKind.ASSIGNED, "partitions": parts}
    revoked = {**told, "kind": c.CallbackKind.REVOKED, "partitions": parts}
    facts: list[tuple[float, AnyFact]] = [
        (1.0, c.CallbackStarted(**assigned)),
        (1.1, c.CallbackEnded(**assigned)),
        (1.5, c.PositionSet(group_id=G, partition=parts[0], offset=0)),
        (2.0, c.PositionSet(group_id=G, partition=parts[1], offset=0)),
        (5.0, c.CallbackStarted(**revoked)),
        (5.4, c.CallbackEnded(**revoked)),
        (6.0, c.CallbackStarted(**assigned)),
        (6.1, c.PositionSet(group_id=G, partition=parts[0], offset=0)),
    ]
    found = [timed for at, fact in facts if (timed := times.read(fact, at, "pod"))]
    short = [(each.name, round(each.seconds, 3), each.count) for each in found]
    assert short == [
        ("restore", 0.5, 1),
        ("restore", 1.0, 1),
        ("flush", 0.4, 2),
        ("restore again", 0.1, 1),
    ]


def test_flushes_are_split_into_a_time_for_each_call_and_one_for_each_partition() -> None:
    flushes = [
        Timed(group="g", name="flush", seconds=0.3 + 0.05 * count, count=count, at=200.0)
        for count in (2, 4, 10)
    ]
    figures = deployment(RESTART, *flushes).figures
    assert (figures["flush.ms"].value, figures["flush.each.ms"].value) == (300, 50)
    assert figures["flush.ms"].known is Known.MEASURED
    assert figures["restore.ms"].known is Known.ASSUMED


def test_looks_of_a_waiting_poll_are_those_of_kohorts_consumer_if_it_wrote_a_history() -> None:
    flush = Timed(group="g", name="flush", seconds=0.3, count=2, at=200.0)
    assert "look.ms" not in deployment(RESTART).figures
    look = deployment(RESTART, flush).figures["look.ms"]
    assert look.value == 1_000 * IDLE_WAIT_S
