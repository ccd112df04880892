"""Lines as people paste them: other loggers, old versions, messages without their values."""

from __future__ import annotations

from calendar import timegm

import pytest
from tests.explain.test_stories import explain, member, names

from kohort.explain.causes import Cause
from kohort.explain.events import Event, Kind
from kohort.explain.explaining import Explainer
from kohort.explain.reading import LogReader

NOON = float(timegm((2026, 3, 1, 12, 0, 0)))
RDKAFKA = "%7|1772366400.000|CGRP|app#consumer-2| [thrd:main]: "


def events(*lines: str) -> list[Event]:
    """The events of a log; no line about a group is unknown."""
    reader = LogReader("pasted.log")
    found = [event for n, line in enumerate(lines, 1) for event in reader.read(n, line)]
    assert reader.counts.unknown == 0, reader.counts.examples
    return [*found, *reader.rest()]


def kinds(*lines: str) -> list[Kind]:
    return [event.kind for event in events(*lines)]


def test_javas_own_logger_writes_the_time_on_the_line_before() -> None:
    (joining,) = events(
        "Mar 01, 2026 12:00:00 PM org.apache.kafka.clients.consumer.internals.AbstractCoordinator "
        "sendJoinGroupRequest",
        "INFO: [Consumer clientId=c-1, groupId=g] (Re-)joining group",
    )
    assert (joining.kind, joining.group, joining.at) == (Kind.JOINING, "g", NOON)


def test_a_record_of_several_lines_has_the_time_of_its_first() -> None:
    (heartbeat,) = events(
        "2026-03-01 12:00:00Z app |Notice| :",
        "----",
        " event.type()= 2",
        ' event.str()= Group "g" heartbeat error response in state up (join state assigned, 1 '
        "partition(s) assigned): Broker: Group rebalance in progress",
    )
    assert (heartbeat.kind, heartbeat.at) == (Kind.HEARTBEAT_REBALANCING, NOON)


def test_a_line_of_another_container_gives_no_time() -> None:
    text = "Heartbeat failed for group g because it is rebalancing"
    (heartbeat,) = events("other_1 | 2026-03-01 12:00:00 x", f"app_1 | {text}")
    assert heartbeat.at is None


def test_franz_gos_values_may_stand_in_an_object_behind_the_message() -> None:
    (joined,) = events(
        "2026-03-01T12:00:00Z\tinfo\tkzap.go:114\tjoined, balancing group\t"
        '{"resource": {"service.name": "collector"}, "group": "g", "member_id": "kgo-1", '
        '"instance_id": "<nil>", "generation": 7, "leader": true}',
    )
    assert (joined.kind, joined.group, joined.member) == (Kind.JOINED, "g", "kgo-1")
    assert joined.generation == 7


def test_lines_of_one_go_client_with_and_without_its_member_are_one_rebalance() -> None:
    who = member("kgo", 1)
    lines = (
        "[2026-03-01 12:00:00.0] [INFO] joining group; group: g",
        f"[2026-03-01 12:00:03.0] [INFO] joined; group: g, member_id: {who}, instance_id: <nil>, "
        "generation: 7, balance_protocol: range, leader: false",
        "[2026-03-01 12:00:04.0] [INFO] synced; group: g, assigned: t[0 1]",
    )
    (row,) = explain(lines).story.rebalances
    assert (row.generation, row.member) == (7, who)
    assert [event.instance for event in events(*lines)] == ["", "", ""]
    assert (row.join_s, row.leader_s) == (3.0, 1.0)


def test_a_heartbeat_that_failed_for_an_unknown_reason_blames_no_coordinator() -> None:
    line = '{"ts": 1772366400.0, "msg": "heartbeat errored", "group": "g"%s}'
    assert kinds(line % "") == [Kind.REQUESTED]
    assert kinds(line % ', "err": {"Value": {}}') == [Kind.REQUESTED]
    assert kinds(line % ', "err": "NOT_COORDINATOR: moved"') == [Kind.COORDINATOR_LOST]
    assert kinds(line % ', "err": "context canceled"') == [Kind.PROGRESS]


def test_a_logger_may_drop_all_values_but_the_group() -> None:
    revoked = "eager consumer revoking prior assigned partitions"
    assert kinds(f'{{"msg": "{revoked}", "group": "g"}}') == [Kind.REVOKED]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Broker: Group rebalance in progress", Kind.HEARTBEAT_REBALANCING),
        ("Broker: Not coordinator", Kind.COORDINATOR_LOST),
        ("Broker: Coordinator load in progress", Kind.COORDINATOR_LOST),
        ("Local: Broker transport failure", Kind.COORDINATOR_LOST),
        ("Broker: Unknown member", Kind.UNKNOWN_MEMBER),
        ("Broker: Specified group generation id is not valid", Kind.UNKNOWN_MEMBER),
        ("Broker: Static consumer fenced by other consumer with same id", Kind.CLIENT_FENCED),
        ("Broker: out of milk", Kind.PROGRESS),
    ],
)
def test_a_failed_heartbeat_of_librdkafka_is_told_by_its_error(reason: str, kind: Kind) -> None:
    state = "in state up (join-state steady, 3 partition(s) assigned)"
    (event,) = events(f'{RDKAFKA}Group "g" heartbeat error response {state}: {reason}')
    assert (event.kind, event.group, event.client) == (kind, "g", "app#consumer-2")


def test_a_first_join_of_librdkafka_is_no_failure() -> None:
    found = explain(
        [
            f'{RDKAFKA}Group "g": join with 1 subscribed topic(s)',
            f"{RDKAFKA}JoinGroup response: GenerationId -1, Protocol , LeaderId , my MemberId m-1, "
            "0 members in group: Broker: Group member needs a valid member ID",
        ]
    )
    assert names(found) == ["normal first join"]


@pytest.mark.parametrize("first", [0, 1], ids=["before", "after"])
def test_a_member_that_leaves_has_its_host_and_its_reason_from_its_own_line(first: int) -> None:
    """Kafka 3.2 writes the line about the rebalance first, Kafka 4 the one about the member."""
    scala = "(kafka.coordinator.group.GroupCoordinator)"
    lines = [
        "[2026-03-01 12:00:00,000] INFO [GroupCoordinator 0]: Preparing to rebalance group g in "
        "state PreparingRebalance with old generation 4 (__consumer_offsets-7) (reason: Removing "
        f"member m-1 on LeaveGroup) {scala}",
        "[2026-03-01 12:00:00,000] INFO [GroupCoordinator 0]: Member MemberMetadata(memberId=m-1, "
        "groupInstanceId=None, clientId=m, clientHost=/10.0.0.7, sessionTimeoutMs=9, "
        "rebalanceTimeoutMs=9, supportedProtocols=List(range)) has left group g through explicit "
        f"`LeaveGroup`; client reason: the consumer is being closed {scala}",
    ]
    (row,) = explain([lines[first], lines[1 - first]]).story.rebalances
    assert (row.member, row.host) == ("m-1", "/10.0.0.7")
    assert row.client_reason == "the consumer is being closed"


def test_aiokafka_is_told_from_kafka_python_by_its_logger() -> None:
    line = "2026-03-01 12:00:00,000 %s (Re-)joining group g"
    assert [e.maker for e in events(line % "kafka.coordinator")] == ["kafka-python"]
    assert [e.maker for e in events(line % "aiokafka.consumer.group_coordinator")] == ["aiokafka"]
    structured = (
        '{"event": "(Re-)joining group g", "logger": "aiokafka.consumer.group_coordinator"}'
    )
    assert [e.maker for e in events(structured)] == ["aiokafka"]


def test_a_failed_commit_in_words_of_two_programs_is_told_by_other_lines_or_of_either() -> None:
    line = "2026-03-01 12:00:00,000 %sOffsetCommit failed for group g - NotAuthorized"
    python = "2026-03-01 12:00:00,000 Heartbeat poll expired, leaving group"
    aiokafka = "2026-03-01 12:00:00,000 OffsetCommit failed before join, ignoring: closed"

    def makers(*lines: str) -> list[str]:
        return [event.maker for event in events(*lines)]

    assert makers(line % "") == ["kafka-python or aiokafka"]
    assert makers(line % "kafka.coordinator.consumer ") == ["kafka-python"]
    assert makers(line % "aiokafka.consumer.group_coordinator ") == ["aiokafka"]
    assert makers(python, line % "")[-1] == "kafka-python"
    assert makers(aiokafka, line % "")[-1] == "aiokafka"


def test_a_group_of_kafka_0_10_is_restabilized() -> None:
    begin = "[2017-03-02 11:02:21,120] INFO [GroupCoordinator 2]: "
    end = "(kafka.coordinator.GroupCoordinator)"
    (row,) = explain(
        [
            f"{begin}Preparing to restabilize group old with old generation 17 {end}",
            f"{begin}Stabilized group old generation 18 {end}",
            f"{begin}Assignment received from leader for group old for generation 18 {end}",
        ]
    ).story.rebalances
    assert (row.before, row.generation, row.cause) == (17, 18, Cause.UNTOLD)


def test_an_old_listing_belongs_to_the_group_in_front_of_it() -> None:
    """While a group rebalances, Kafka 0.10 lists members without partitions."""
    lines = [
        "Warning: Consumer group 'g' is rebalancing.",
        "",
        "    TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID",
        "    -      -          -               -               -    m-1          /h    c",
        "    t      0          5               9               4    -            -     -",
    ]
    (found,) = Explainer().feed_all(events(*lines)).finish()
    listing = found.story.listing
    assert (found.story.group, listing.members, listing.partitions) == ("g", {"m-1"}, {"t-0"})
    assert names(found)[:2] == ["rebalance under way", "partitions without a consumer"]


def test_a_table_far_behind_another_group_is_not_of_that_group() -> None:
    lines = [
        "Consumer group 'g' has no active members.",
        *(f"a line {number}" for number in range(9)),
        "TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID",
        "t     0         5              9              4   m-1         /h   c",
    ]
    assert [event.group for event in events(*lines)] == ["g", ""]


def test_a_group_with_quotes_in_its_brackets_is_read_from_an_object_of_a_service() -> None:
    (begun,) = events(
        '{"level": "INFO", "timestamp": "2026-03-01 12:00:00,000", "message": {"type": "BEGIN", '
        '"reason": "Preparing to rebalance group g in state PreparingRebalance with old generation '
        '3 (reason: Adding new member m-1 with group instanceid None)"}}',
    )
    assert (begun.kind, begun.group, begun.at) == (Kind.PREPARING, "g", NOON)


def test_pairs_behind_the_logger_are_no_part_of_the_message() -> None:
    (joining,) = events(
        "[2026-03-01 12:00:00,000] INFO [Worker clientId=w-1, groupId=workers] (Re-)joining group "
        "(org.apache.kafka.connect.runtime.distributed.WorkerCoordinator:611) - app=connect, "
        "clusterId=c, server=0",
    )
    assert (joining.kind, joining.group) == (Kind.JOINING, "workers")


def test_the_place_of_a_python_logger_behind_the_message_is_no_part_of_the_group() -> None:
    (joining,) = events(
        "2026-03-01 12:00:00,000 MainThread INFO (Re-)joining group orders, "
        "base-ensure_active_group-258"
    )
    assert joining.group == "orders"


def test_a_line_that_a_terminal_broke_is_read_whole() -> None:
    who = member("app", 1)
    head = (
        "[2026-03-01 12:00:00,000] INFO [GroupCoordinator 1]: Preparing to rebalance group g in "
        f"state PreparingRebalance with old generation 7 (__consumer_offsets-3) (reason: removing "
        f"member {who[:9]}"
    )
    tail = " on heartbeat expiration) (kafka.coordinator.group.GroupCoordinator)"
    next_line = (
        "[2026-03-01 12:00:01,000] INFO [GroupCoordinator 1]: Group g with generation 8 is now "
        "empty (__consumer_offsets-3) (kafka.coordinator.group.GroupCoordinator)"
    )
    (row,) = explain((head, who[9:] + tail, next_line)).story.rebalances
    assert (row.cause, row.member, row.place.line) == (Cause.EXPIRED, who, 1)
    begun, empty = events(head, next_line)  # nothing completes the first line
    assert (begun.kind, empty.kind) == (Kind.PREPARING, Kind.EMPTY)


def test_lines_of_two_more_clients() -> None:
    who = member("svc", 3)
    go = (
        "--- INFO --- [2026-03-01T12:00:00.1Z] entering loop for consumer group, carts",
        f"--- INFO --- [2026-03-01T12:00:00.2Z] Joined group carts as member {who} in generation 4",
        "--- INFO --- [2026-03-01T12:00:00.3Z] sync group finished for group, carts",
    )
    (row,) = explain(go).story.rebalances
    assert (row.generation, row.member, round(row.join_s or 0, 3)) == (4, who, 0.1)
    assert kinds(
        "ERROR [[carts] {}:] Error sending heartbeat: Kafka::UnknownMemberId",
        "INFO [[carts] {}:] Joining group `carts`",
        f"INFO [[carts] {{}}:] Joined group `carts` with member id `{who}`",
    ) == [Kind.UNKNOWN_MEMBER, Kind.JOINING, Kind.JOINED]


def test_a_line_that_was_cut_in_the_name_of_its_thread_is_read() -> None:
    (stable,) = events(
        "2026-03-01 12:00:00,000 INFO [GroupCoordinator 0]: Stabilized group g generation 8 "
        "(__consumer_offsets-7) (kafka.coordinator.group.GroupCoordinator) [data-plane-k"
    )
    assert (stable.kind, stable.generation) == (Kind.STABILIZED, 8)


def test_a_rebalance_without_its_first_line_has_the_likely_cause_of_the_line_before() -> None:
    who = member("app", 1)
    found = explain(
        (
            f"[2026-03-01 12:00:00,000] INFO [GroupCoordinator 1]: Member {who} in group g has "
            "failed, removing it from the group (kafka.coordinator.group.GroupCoordinator)",
            "[2026-03-01 12:00:00,100] INFO [GroupCoordinator 1]: Stabilized group g generation 8 "
            "(__consumer_offsets-3) with 1 members (kafka.coordinator.group.GroupCoordinator)",
        )
    )
    (row,) = found.story.rebalances
    assert (row.cause, row.member, row.certain) == (Cause.EXPIRED, who, False)


def test_the_file_of_a_logger_tells_aiokafka_from_the_other_clients() -> None:
    found = explain(
        (
            '{"timestamp": "2026-03-01T12:00:00Z", "message": "(Re-)joining group g", '
            '"file_name": "group_coordinator.py", "level": "INFO"}',
            '{"timestamp": "2026-03-01T12:00:01Z", "message": "Sending JoinGroup '
            "(JoinGroupRequest_v5(group='g')) to coordinator 0\", "
            '"file_name": "group_coordinator.py", "level": "DEBUG"}',
        )
    )
    assert found.makers == "aiokafka"


def test_a_consumer_that_repeats_a_line_repeats_its_event_with_another_place_and_time() -> None:
    """The reader keeps events by their text; a line without a group of its own is not kept."""
    context = "[Consumer clientId=c-{}, groupId={}] "
    where = "(org.apache.kafka.clients.consumer.internals.ConsumerCoordinator)"
    said = ("(Re-)joining group", "Revoke previously assigned partitions t-1")
    lines = [
        f"[2026-03-01 10:00:0{number % 10},500] INFO "
        f"{context.format(number % 2, group)}{text} {where}"
        for group in ("g", "h", "null", "g")
        for number in range(4)
        for text in said
    ]
    one_by_one, at_once = LogReader("log"), LogReader("log")
    expected = [e for n, line in enumerate(lines, 1) for e in one_by_one.read(n, line)]
    assert at_once.read_lines(1, lines) == expected
    assert {e.group for e in expected} == {"g", "h"}
    assert at_once.counts == one_by_one.counts
