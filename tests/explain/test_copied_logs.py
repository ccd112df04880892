"""Logs as people copy them: broken lines, objects in objects, frameworks, old clients."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable

import pytest
from tests.explain.test_stories import explain, member, names

from kohort.explain.causes import Cause
from kohort.explain.events import Event, Kind
from kohort.explain.reading import LogReader

WHO = member("c-1", 1)
RDKAFKA = "%7|1772366400.000|CGRP|my app#consumer-2| [thrd:main]: "


def events(*lines: str) -> list[Event]:
    reader = LogReader("pasted.log")
    found = [event for n, text in enumerate(lines, 1) for event in reader.read(n, text)]
    found += reader.rest()
    assert reader.counts.unknown == 0, reader.counts.examples
    return found


BROKEN = {
    "rebalance": "[2026-03-01 12:00:00,250] INFO [GroupCoordinator 1]: Preparing to rebalance "
    "group orders in state PreparingRebalance with old generation 7 (__consumer_offsets-3) "
    f"(reason: removing member {WHO} on heartbeat expiration) "
    "(kafka.coordinator.group.GroupCoordinator)",
    "leave": "[2026-03-01 12:00:00,250] INFO [GroupCoordinator 1]: Member MemberMetadata("
    f"memberId={WHO}, groupInstanceId=None, clientId=c-1, clientHost=/10.1.2.3, "
    "sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range)) has left "
    "group orders through explicit `LeaveGroup`; client reason: the consumer is being closed "
    "(kafka.coordinator.group.GroupCoordinator)",
    "join": "2026-03-01 12:00:00,250 INFO [Consumer clientId=c-1, groupId=orders] Successfully "
    f"joined group with generation Generation{{generationId=7, memberId='{WHO}', "
    "protocol='range'} (org.apache.kafka.clients.consumer.internals.ConsumerCoordinator)",
    "kafka-python": "2026-03-01 12:00:00,250 kafka.coordinator WARNING Heartbeat failed for group "
    "orders because it is rebalancing",
}
NEXT = (
    "[2026-03-01 12:00:05,000] INFO [GroupCoordinator 1]: Stabilized group other generation 8 "
    "(__consumer_offsets-3) with 1 members (kafka.coordinator.group.GroupCoordinator)"
)


def at_width(text: str) -> list[str]:
    return [text[begin : begin + 80] for begin in range(0, len(text), 80)]


def at_words(text: str) -> list[str]:
    return textwrap.wrap(text, 80, break_on_hyphens=False)


def quoted(text: str) -> list[str]:
    return [f"> {piece}" for piece in at_words(text)]


def indented(text: str) -> list[str]:
    return textwrap.wrap(text, 80, break_on_hyphens=False, subsequent_indent="    ")


@pytest.mark.parametrize("broken", [at_width, at_words, quoted, indented])
@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
def test_a_line_that_was_broken_into_several_is_read_whole(
    line: str, broken: Callable[[str], list[str]]
) -> None:
    (whole,) = events(line)
    pieces = broken(line)
    assert len(pieces) > 1
    found, after = events(*pieces, NEXT)
    assert (found._replace(text=""), after.group) == (whole._replace(text=""), "other")


def test_a_stack_trace_is_no_part_of_the_line_in_front_of_it_and_no_unknown_line() -> None:
    (failed,) = events(
        "2026-03-01 12:00:00,250 ERROR Offset commit cannot be completed since the consumer is "
        "not part of an active group for auto partition assignment; it is likely that the "
        "consumer was kicked out of the group.",
        "\tat org.apache.kafka.clients.consumer.internals.ConsumerCoordinator.send(X.java:1139)",
    )
    assert failed.kind is Kind.COMMIT_FAILED


def test_a_message_deep_in_the_objects_of_a_line_is_found() -> None:
    text = (
        "[thrd:main]: Application maximum poll interval (300000ms) exceeded by 132ms (adjust "
        "max.poll.interval.ms for long-running message processing): leaving group"
    )
    event = {"message": "event log: x", "data": {"severity": 4, "fac": "MAXPOLL", "message": text}}
    (late,) = events(json.dumps({"timestamp": "2026-03-01 12:00:00.25", "data": event}))
    assert (late.kind, late.dated) == (Kind.POLL_EXPIRED, True)


def test_a_second_round_of_franz_go_is_told_though_its_line_names_no_group() -> None:
    found = explain(
        [
            json.dumps({"time": "2026-03-01T12:00:00Z", "message": text, **more})
            for text, more in (
                ("beginning heartbeat loop", {"group": "g"}),
                (
                    "forced rejoin quitting heartbeat loop",
                    {"why": "cooperative rejoin after revoking what we lost from a rebalance"},
                ),
                ("heartbeat errored", {"group": "g", "err": {"Key": "error", "Value": {}}}),
            )
        ]
    )
    (row,) = found.story.rebalances
    assert (found.story.group, row.cause) == ("g", Cause.SECOND_ROUND)


def test_partitions_in_the_words_of_spring_are_those_of_javas_consumer_if_it_is_silent() -> None:
    def spring(text: str) -> str:
        return (
            "2026-03-01 12:00:00.250  INFO 1 --- [ntainer#0-0-C-1] "
            f"o.s.k.l.KafkaMessageListenerContainer    : orders: partitions {text}"
        )

    found = events(spring("assigned: [t-0]"), spring("revoked: [t-0]"), spring("lost: [t-0]"))
    assert [event.kind for event in found] == [Kind.SYNCED, Kind.REVOKED, Kind.LOST]
    assert {event.group for event in found} == {"orders"}
    both = events(
        "2026-03-01 12:00:00.250  INFO 1 --- [ntainer#0-0-C-1] o.a.k.c.c.i.ConsumerCoordinator : "
        "[Consumer clientId=c-1, groupId=orders] Adding newly assigned partitions: t-0",
        spring("assigned: [t-0]"),
    )
    assert [event.kind for event in both] == [Kind.ADDED, Kind.PROGRESS]


def test_a_move_of_librdkafkas_coordinator_is_one_loss() -> None:
    found = explain(
        [
            f'{RDKAFKA}Group "g" heartbeat error response in state up (join-state steady, 1 '
            "partition(s) assigned): Broker: Not coordinator",
            f'{RDKAFKA}10.0.0.1:9092/1: Group "g" coordinator is 10.0.0.2:9092 id 2',
            f'{RDKAFKA}Group "g" changing coordinator 3 -> 2',
            f'{RDKAFKA}Group "g" broker 10.0.0.3:9092/3 is no longer coordinator',
            f'{RDKAFKA}Group "g" coordinator set to broker 10.0.0.2:9092/2',
        ]
    )
    assert names(found) == ["coordinator moved", "coordinator lost"]
    assert "at 3, and later at 2" in found.findings[0].says
    assert "coordinator once" in found.findings[1].says
    assert next(iter(found.story.clients)) == "my app#consumer-2"


def test_a_commit_without_offsets_is_not_refused() -> None:
    assert names(explain([f"{RDKAFKA}OffsetCommit internal error: Local: No offset stored"])) == []


def test_clients_that_had_not_joined_at_the_end_of_the_log_share_their_rebalance() -> None:
    found = explain(
        [
            f"[2026-03-01 12:00:0{second},000] INFO [Consumer clientId=c-{number}, groupId=g] "
            f"{text} (org.apache.kafka.clients.consumer.internals.ConsumerCoordinator)"
            for second, number, text in (
                (0, 1, "Revoking previously assigned partitions [t-0]"),
                (0, 1, "(Re-)joining group"),
                (2, 2, "(Re-)joining group"),
                (8, 3, "(Re-)joining group"),
            )
        ]
    )
    assert [row.client for row in found.story.rebalances] == ["c-1", "c-3"]


@pytest.mark.parametrize(
    ("text", "kind", "group"),
    [
        (
            "[sarama]2016/07/05 11:58:19 client/coordinator coordinator for consumergoup g is #0 "
            "(127.0.0.1:9092)",
            Kind.COORDINATOR_FOUND,
            "g",
        ),
        ("[sarama]2016/07/05 11:58:19 cluster/consumer  rebalance", Kind.JOINING, ""),
        (
            "Local: Maximum application poll interval (max.poll.interval.ms) exceeded "
            "(max_poll_exceeded)",
            Kind.POLL_EXPIRED,
            "",
        ),
        (
            "E, [2026-03-01T12:00:00.1 #7] ERROR -- : Error committing offsets: Kafka::Unknown",
            Kind.COMMIT_FAILED,
            "",
        ),
        (
            "2026.03.01 12:00:00.364050 [ 18 ] {} <Trace> StorageKafka (q): Topics/partitions "
            "assigned: [ t[0:#] ]",
            Kind.SYNCED,
            "",
        ),
        (
            "[2026-03-01 12:00:00,000] INFO [GroupCoordinator 1]: Preparing to rebalance group g "
            "in state PreparingRebalance with old generation 7 (__consumer_offsets-3",
            Kind.PREPARING,
            "g",
        ),
        (
            "[2026-03-01 12:00:00,000] INFO [GroupCoordinator 1]: Preparing to rebalance group g "
            "in state PreparingRebalance with old generation 7 "
            "(kafka.coordinator.group.GroupCoordinator)",
            Kind.PREPARING,
            "g",
        ),
        (
            "WARN stream-thread [app-StreamThread-1] Detected that the thread is being fenced. "
            "This implies that this thread missed a rebalance and dropped out of the consumer "
            "group. "
            "Will close out all assigned tasks and rejoin the consumer group. "
            "(org.apache.kafka.streams.processor.internals.StreamThread:572)",
            Kind.UNKNOWN_MEMBER,
            "",
        ),
        (
            "2016-08-02 05:38:14 INFO  GroupMetadataManager:68 - [Group Metadata Manager on Broker "
            "0]: Finished loading offsets from [__consumer_offsets,44] in 1 milliseconds.",
            Kind.COORDINATOR_MOVED,
            "",
        ),
        (
            "[2026-03-01 12:00:00,000] INFO [Consumer clientId=c, groupId=g] Successfully joined "
            "group with generation Generation{generationId=18, memberId='c-",
            Kind.JOINED,
            "g",
        ),
    ],
)
def test_lines_of_old_clients_and_of_frameworks(text: str, kind: Kind, group: str) -> None:
    (event,) = events(text)
    assert (event.kind, event.group) == (kind, group)


def kafkajs(level: str, message: str, error: str = "", **more: str) -> str:
    """A line of KafkaJS."""
    fields = {"level": level, "timestamp": "2026-03-01T12:00:00.25Z", "message": message}
    return json.dumps(fields | ({"error": error} if error else {}) | more)


HEARTBEAT = "[Connection] Response Heartbeat(key: 12, version: 3)"
REBALANCING = "The group is rebalancing, so a rejoin is needed"
UNAWARE = "The coordinator is not aware of this member"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (kafkajs("ERROR", HEARTBEAT, REBALANCING), Kind.HEARTBEAT_REBALANCING),
        (kafkajs("DEBUG", HEARTBEAT, REBALANCING), Kind.PROGRESS),
        (kafkajs("DEBUG", HEARTBEAT), Kind.PROGRESS),
        (kafkajs("ERROR", HEARTBEAT, UNAWARE), Kind.UNKNOWN_MEMBER),
        (kafkajs("ERROR", HEARTBEAT, "This is not the correct coordinator for this group"),
         Kind.COORDINATOR_LOST),
        (f"[2026-03-01 12:00:00.25] ERROR: {UNAWARE}, re-joining the group", Kind.UNKNOWN_MEMBER),
    ],
)  # fmt: skip
def test_an_answer_of_kafkajs_is_told_by_its_error(line: str, kind: Kind) -> None:
    (event,) = events(line)
    assert event.kind is kind


def test_a_member_that_one_line_names_by_its_client_id_is_one_consumer() -> None:
    found = explain(
        [
            kafkajs("ERROR", HEARTBEAT, UNAWARE, clientId="c-1"),
            kafkajs("ERROR", f"[Runner] {UNAWARE}, re-joining the group", memberId=WHO),
        ]
    )
    assert f"did not know consumer {WHO} any more, 2 times" in found.findings[0].says


def test_brods_generation_is_that_of_the_line_in_front_of_the_assignment() -> None:
    def brod(at: str, generation: int, *lines: str) -> list[str]:
        head = f"[{at}I||<0.1.0>] Group member (g,coor=<0.1.0>,cb=<0.2.0>,generation={generation}):"
        return [head, *lines]

    found = explain(
        [
            *brod("12:00:00.100", 40_408, "re-joining group, reason:unknown_member_id"),
            *brod("12:00:00.300", 40_410, "elected=true"),
            *brod("12:00:00.350", 40_410, "assignments received:", "  t:", "    partition=0 x"),
        ]
    )
    (row,) = found.story.rebalances
    assert (row.generation, row.began, row.assigned) == (40_410, 43_200.1, 43_200.35)


def test_a_client_that_writes_lines_of_aiokafka_and_of_kafka_python_is_one_client() -> None:
    found = explain(
        [
            f"[2026-03-01 12:00:00,{millis}: INFO]: {text}"
            for millis, text in (
                (100, "Heartbeat failed for group g because it is rebalancing"),
                (120, "(Re-)joining group g"),
                (150, f"Joined group 'g' (generation 2) with member_id {WHO}"),
                (170, "Successfully synced group g with generation 2"),
            )
        ]
    )
    (row,) = found.story.rebalances
    assert (row.generation, row.cause) == (2, Cause.OTHERS)


def scala(at: str, text: str) -> str:
    """A line of the coordinator of Kafka before 4.0."""
    return (
        f"[2026-03-01 12:{at}] INFO [GroupCoordinator 2]: {text} "
        "(kafka.coordinator.group.GroupCoordinator)"
    )


@pytest.mark.parametrize(
    ("expired", "first"), [("00:10,100", "coordinator moved"), ("05:00,100", "session expired")]
)
def test_members_that_expire_soon_after_a_load_were_lost_in_the_move(
    expired: str, first: str
) -> None:
    found = explain(
        [
            scala("00:00,100", "Loading group metadata for g with generation 5"),
            scala(expired, f"Member {WHO} in group g has failed, removing it from the group"),
        ]
    )
    assert names(found)[0] == first
    assert names(found).count("coordinator moved") == 1


def test_kafka_pythons_name_of_a_coordinators_connection_is_no_other_broker() -> None:
    found = explain(
        [
            "INFO:kafka.cluster:Group coordinator for g is BrokerMetadata(nodeId='coordinator-1', "
            "host='k', port=9092, rack=None)",
            "INFO:kafka.coordinator:Discovered coordinator coordinator-1 for group g",
        ]
    )
    assert names(found) == []


def test_broken_lines_without_times_are_read_whole() -> None:
    (expired,) = events(
        "%4|...|SESSTMOUT|rdkafka#consumer-1|...: Consumer group session timed out (in join-state",
        "steady) after 45267 ms without a successful response from the group coordinator (broker",
        "-1, last error was Local: Broker transport failure): revoking assignment and rejoining",
    )
    assert (expired.kind, expired.details["ms"]) == (Kind.SESSION_EXPIRED, "45267")
    lost, refused = events(
        "Marking the coordinator dead (node 1) for group orders",
        "OffsetCommit failed for group orders due to group error",
        "  ([Error 25] UnknownMemberIdError), will rejoin",
    )
    assert (lost.kind, lost.maker) == (Kind.COORDINATOR_LOST, "aiokafka")
    assert (refused.kind, refused.group) == (Kind.COMMIT_FAILED, "orders")
