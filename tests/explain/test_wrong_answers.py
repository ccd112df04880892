"""Logs that were explained wrongly or thinly once, each with its right answer."""

from __future__ import annotations

from tests.explain.test_stories import explain, line, names

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause

SCALA = "(kafka.coordinator.group.GroupCoordinator)"


def test_a_member_of_kip_848_that_keeps_its_partitions_did_not_expire() -> None:
    found = explain(
        [
            line(
                0,
                "[GroupId g] Member m-1 fenced from the group because it failed to transition from "
                "epoch 14 within 300000ms.",
            ),
            line(0.001, "[GroupId g] Bumped group epoch to 15 with metadata hash 812364."),
            line(
                0.005,
                "[GroupId g] Computed a new target assignment for epoch 15 with 'uniform' assignor "
                "in 2ms: {}.",
            ),
        ]
    )
    (row,) = found.story.rebalances
    assert (row.cause, row.member) == (Cause.TOO_SLOW, "m-1")
    assert names(found)[0] == "partitions not given up in time"
    assert "session expired" not in names(found)
    assert "within 300.0 s" in found.findings[0].says


def test_a_fenced_member_belongs_to_the_group_of_the_next_line() -> None:
    """The line of the Scala coordinator names no group."""
    found = explain(
        [
            "[2024-02-01 08:15:22,300] INFO [GroupCoordinator 0]: Request memberId=web-0-1 for "
            "static member with groupInstanceId=web-0 is fenced by current memberId=web-0-2 during "
            f"operation Heartbeat {SCALA}",
            "[2024-02-01 08:15:22,310] INFO [GroupCoordinator 0]: Static member with "
            "groupInstanceId=web-0 and unknown member id joins group web in Stable state. "
            f"Replacing previously mapped member web-0-2 with this groupInstanceId. {SCALA}",
        ]
    )
    assert found.story.group == "web"
    assert names(found) == ["duplicate instance id", "static member returned"]


def test_a_group_that_is_not_stored_while_replicas_are_missing_is_not_too_large() -> None:
    found = explain(
        [
            "[2022-08-09 03:04:05,006] WARN [GroupCoordinator 1]: Failed to write empty metadata "
            f"for group etl: The coordinator is not available. {SCALA}",
        ]
    )
    assert names(found)[0] == "group not stored"


def test_a_message_of_java_and_kafka_python_is_javas_behind_its_context() -> None:
    found = explain(
        [
            "2024-06-01 10:00:00,123 WARN [Consumer clientId=pay-1, groupId=pay] consumer poll "
            "timeout has expired. This means the time between subsequent calls to poll() was "
            "longer than the configured max.poll.interval.ms, which typically implies that the "
            "poll loop is spending too much time processing messages. You can address this either "
            "by increasing max.poll.interval.ms or by reducing the maximum size of batches "
            "returned in poll() with max.poll.records.",
        ]
    )
    assert found.makers == "Java"


def test_the_fields_of_franz_go_are_read_in_any_order() -> None:
    found = explain(
        [
            'time="2024-03-03T10:00:00Z" level=info msg="heartbeat errored" '
            'err="REBALANCE_IN_PROGRESS: The group is rebalancing" group=ships',
        ]
    )
    assert (found.story.group, found.makers) == ("ships", "franz-go")


def test_a_refused_session_timeout_is_no_join_that_timed_out() -> None:
    found = explain(
        [
            "[2026-03-01 10:00:00,000] ERROR [Consumer clientId=c-1, groupId=g] JoinGroup failed "
            "due to fatal error: The session timeout is not within the range allowed by the broker "
            "(as configured by group.min.session.timeout.ms and group.max.session.timeout.ms). "
            "(org.apache.kafka.clients.consumer.internals.ConsumerCoordinator)",
        ]
    )
    assert names(found) == ["session outside of the broker's range"]


def test_the_first_coordinator_of_a_client_was_not_lost_before_and_did_not_move() -> None:
    rdkafka = "%7|1772366400.000|CGRP|app#consumer-2| [thrd:main]: "
    found = explain(
        [
            f'{rdkafka}kafka:9092/bootstrap: Group "g" coordinator is kafka:9092 id 3',
            f'{rdkafka}Group "g" changing coordinator -1 -> 3',
            f'{rdkafka}Group "g" management reassigned from broker kafka:9092/bootstrap to '
            "kafka:9092/3",
            f'{rdkafka}Group "g" management assigned to broker kafka:9092/3',
        ]
    )
    assert names(found) == []
    moved = explain(
        [
            "INFO:kafka.cluster:Group coordinator for g is BrokerMetadata(nodeId=3, host='k', "
            "port=9092, rack=None)",
            "INFO:kafka.coordinator:Discovered coordinator 3 for group g",
            "INFO:kafka.coordinator:Discovered coordinator 4 for group g",
        ]
    )
    assert names(moved) == ["coordinator moved"]


def test_requests_on_the_coordinators_connection_are_no_loss() -> None:
    rdkafka = "%7|1772366400.000|SEND|app#consumer-2| [thrd:GroupCoordinator]: GroupCoordinator/3: "
    sent = f"{rdkafka}Sent HeartbeatRequest (v3, 90 bytes @ 0, CorrId 22)"
    named = '%7|1772366400.000|CGRP|app#consumer-2| [thrd:main]: Group "g" changed state init -> up'
    assert names(explain([named, sent])) == []
    lost = f"{rdkafka}kafka:9092: Disconnected (after 900ms in state UP)"
    assert names(explain([named, sent, lost])) == ["coordinator lost"]


def failed(reason: str) -> str:
    found = explain(
        [
            "[2026-03-01 10:00:00,000] INFO [Worker clientId=w-1, groupId=g] JoinGroup failed: "
            f"{reason} (org.apache.kafka.connect.runtime.distributed.WorkerCoordinator:632)"
        ]
    )
    (finding,) = found.findings
    return finding.says


def test_a_failed_join_has_the_reason_of_its_line() -> None:
    assert "not the coordinator" in failed(
        "This is not the correct coordinator. Marking coordinator unknown."
    )
    assert "loading the group" in failed(
        "Coordinator k:9092 (id: 3 rack: null) is loading the group."
    )
    assert failed("Something new.") == "A join failed: Something new."


def test_an_unknown_error_of_sync_group_is_a_record_that_is_too_large() -> None:
    rdkafka = "%7|1772366400.000|CGRP|app#consumer-2| [thrd:main]: "
    found = explain(
        [
            f'{rdkafka}Group "g": synchronization failed: Unknown broker error: rejoining',
        ]
    )
    assert found.findings[0].name == "group record too large"
    assert found.findings[0].known is Known.ASSUMED


def test_a_session_that_a_client_saw_ending_is_told_from_the_clients_side() -> None:
    found = explain(
        [
            "%4|1772366400.000|SESSTMOUT|app#consumer-2| [thrd:main]: Consumer group session timed "
            "out (in join-state steady) after 30171 ms without a successful response from the "
            "group coordinator (broker 1, last error was Success): revoking assignment and "
            "rejoining group",
        ]
    )
    (finding,) = found.findings
    assert finding.says == "Consumer app#consumer-2 had no answer from the coordinator for 30.2 s."
