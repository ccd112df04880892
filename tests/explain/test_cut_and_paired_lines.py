"""Objects that were cut or printed in several lines, values without their end, departures."""

from __future__ import annotations

import json
from time import process_time

import pytest
from tests.explain.test_copied_logs import NEXT, RDKAFKA, events
from tests.explain.test_stories import explain, member, names

from kohort.explain.causes import Cause, reason_of
from kohort.explain.events import Kind
from kohort.explain.explaining import Explainer
from kohort.explain.findings import span_text
from kohort.explain.reading import LogReader

KAFKAJS: dict[str, object] = {
    "level": "WARN",
    "timestamp": "2026-03-01T12:00:00.250Z",
    "logger": "kafkajs",
    "message": "[Runner] The group is rebalancing, re-joining",
    "groupId": "orders",
    "memberId": "c-1",
    "memberAssignment": {"pay": [0, 1]},
}
LOGGER = " (kafka.coordinator.group.GroupCoordinator)"


def broker(second: str, text: str) -> str:
    return f"[2026-03-01 12:00:0{second}] INFO [GroupCoordinator 1]: {text}{LOGGER}"


def javascript(found: dict[str, object]) -> str:
    """An object as Node's console prints it."""
    pairs = [f"  {name}: {value!r}," for name, value in found.items()]
    return "\n".join(["{", *pairs, "}"])


def pino(found: dict[str, object]) -> str:
    """A record as pino-pretty prints it; the logger is a field of its own there."""
    message = str(found["message"]).removeprefix("[Runner] ")
    pairs = [f"    {name}: {json.dumps(found[name])}" for name in ("groupId", "memberId")]
    return "\n".join([f"[2026-03-01 12:00:00.250 +0000] WARN (7 on pod): {message}", *pairs])


@pytest.mark.parametrize(
    "record",
    [
        json.dumps(KAFKAJS, indent=2),
        json.dumps([KAFKAJS], indent=2),
        javascript(KAFKAJS),
        pino(KAFKAJS),
        "\n".join(f"app-1  | {line}" for line in json.dumps(KAFKAJS, indent=2).splitlines()),
    ],
    ids=["JSON", "list of JSON", "JavaScript", "pino", "compose"],
)
def test_a_record_with_a_pair_in_each_line_is_one_line(record: str) -> None:
    found, after = events(*record.splitlines(), NEXT)
    assert (found.kind, found.group, found.member) == (Kind.HEARTBEAT_REBALANCING, "orders", "c-1")
    assert found.dated
    assert after.group == "other"


def test_objects_that_tell_nothing_about_groups_hide_no_line() -> None:
    lines = ["{", '  "level": "INFO",', '  "state": {', '    "a": 1', "  }", "}", "func f() {"]
    (found,) = events(*lines, NEXT)
    assert (found.group, found.place.line) == ("other", 8)


def test_an_object_that_was_cut_has_its_complete_pairs() -> None:
    whole = json.dumps(KAFKAJS)
    for end in (whole.index('"c-1"') + 1, whole.index("memberAssignment"), len(whole) - 3):
        (found,) = events(whole[:end])
        assert (found.kind, found.group) == (Kind.HEARTBEAT_REBALANCING, "orders")
    (found,) = events(whole[: whole.index('orders"') + 2])
    assert found.group == "", "a part of the group's name is no name"


def test_a_message_deep_in_an_object_has_the_time_beside_it() -> None:
    line = {
        "message": "Joined group g as member c in generation 3",
        "timestamp": "2026-03-01T12:00:00Z",
    }
    (found,) = events(json.dumps({"applicationLog": line}))
    assert (found.kind, found.dated) == (Kind.JOINED, True)


def test_kafka_gos_name_of_a_group_in_quotes_is_the_name() -> None:
    found = events('entering loop for consumer group, "g"', 'sync group finished for group, "g"')
    assert {event.group for event in found} == {"g"}


@pytest.mark.parametrize("end", ["", "eds a valid member ID"])
def test_a_first_join_of_librdkafka_is_no_failure_also_if_the_line_was_cut(end: str) -> None:
    found = explain(
        [
            f'{RDKAFKA}Group "g": join with 1 (1) subscribed topic(s)',
            f"{RDKAFKA}JoinGroup response: GenerationId -1, Protocol , LeaderId , my MemberId m, "
            f"0 members in group: Broker: Group member ne{end}",
        ]
    )
    assert names(found) == ["normal first join"]


def test_a_member_id_that_was_cut_is_that_of_the_line_before() -> None:
    new = member("c", 2)
    found = explain(
        [
            broker(
                "0,100",
                "Dynamic member with unknown member id joins group g in Stable state. Created "
                f"a new member id {new} and request the member to rejoin with this id.",
            ),
            broker(
                "0,105",
                "Preparing to rebalance group g in state PreparingRebalance with old generation 4 "
                f"(__consumer_offsets-3) (reason: Adding new member {new}",
            )[: -(len(new) // 2 + len(LOGGER))],
        ]
    )
    (row,) = found.story.rebalances
    assert (row.cause, row.member) == (Cause.NEW_MEMBER, new)


def test_a_departure_without_a_rebalance_in_the_log_is_told() -> None:
    leave = (
        "2026-03-01 12:00:00,250 INFO [Consumer clientId=c, groupId=g] Member c-1 sending "
        "LeaveGroup request to coordinator b:9092 (id: 7 rack: null) due to the consumer is being "
        "closed"
    )
    found = explain([leave])
    assert names(found) == ["member left"]
    assert "the consumer is being closed" in found.findings[0].says


def test_a_client_that_asks_to_join_before_its_log_ends_shares_the_coordinators_row() -> None:
    found = explain(
        [
            "2026-03-01 12:00:00,090 INFO (Re-)joining group g (org.apache.kafka.clients.consumer."
            "internals.AbstractCoordinator)",
            broker("0,100", "Preparing to restabilize group g with old generation 0"),
            broker("3,100", "Stabilized group g generation 1"),
        ]
    )
    assert [row.generation for row in found.story.rebalances] == [1]


def test_a_join_without_a_beginning_in_the_log_has_no_length() -> None:
    found = explain(
        [
            "2026-03-01 12:00:00,250 INFO [Consumer clientId=c, groupId=g] Successfully joined "
            "group with generation 7 (org.apache.kafka.clients.consumer.internals."
            "AbstractCoordinator)"
        ]
    )
    assert [row.join_s for row in found.story.rebalances] == [None]


def test_the_wait_for_a_dead_member_has_other_advice_than_that_for_a_busy_one() -> None:
    dead, new = member("c", 1), member("c", 2)
    found = explain(
        [
            broker(
                "0,000",
                "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
                f"(__consumer_offsets-0) (reason: Adding new member {new} with group instance id "
                "None; client reason: not provided)",
            ),
            *(
                line.replace("12:00:0", "12:00:4")
                for line in (
                    broker(
                        "2,000", f"Member {dead} in group g has failed, removing it from the group"
                    ),
                    broker(
                        "2,002",
                        "Stabilized group g generation 2 (__consumer_offsets-0) with 1 members",
                    ),
                )
            ),
        ]
    )
    slow = next(f for f in found.findings if f.name == "slow joiner")
    assert "session" in slow.advice
    assert "max.poll.records" not in slow.advice
    assert "killed" in slow.effect


def test_long_times_are_told_in_hours_and_days() -> None:
    assert [span_text(s) for s in (599, 7_200, 36_000, 864_000)] == [
        "599.0 s",
        "120 min",
        "10.0 h",
        "10.0 days",
    ]


def coordinator4(text: str) -> str:
    return f"[2026-03-01 12:00:00,100] INFO [GroupCoordinator id=1 topic=t partition=3] {text}"


@pytest.mark.parametrize("end", ["; cli", "; client reason: rebalance f", "; client reason:"])
def test_a_reason_that_was_cut_names_the_member(end: str) -> None:
    (event,) = events(
        coordinator4(
            "Preparing to rebalance group g in state PreparingRebalance with old generation 0 "
            f"(reason: Adding new member c-1 with group instance id null{end}"
        )
    )
    told = reason_of(event.reason)
    assert (told.cause, told.member, told.instance) == (Cause.NEW_MEMBER, "c-1", "")


def test_lines_in_a_frame_that_cuts_them_are_read() -> None:
    gone = member("c", 1)
    lines = (
        f"[Group g] Member {gone} has left group through explicit `LeaveGroup` request; client "
        "reason: the consumer i",
        "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
        f"(reason: explicit `LeaveGroup` request for ({gone[:10]}",
    )
    found = explain([f"│ {coordinator4(text)} │" for text in lines])
    (row,) = found.story.rebalances
    assert (row.cause, row.member, row.client_reason) == (Cause.LEFT, gone, "the consumer i")


def test_a_line_of_a_share_group_that_was_broken_behind_its_logger_is_read_whole() -> None:
    text = coordinator4("[GroupId g] Member m new assignment state: epoch=7, previousEpoch=6, ")
    first, second = text.split(" [GroupId")
    (event,) = events(first, f"[GroupId{second}", "state=STABLE, assignedPartitions=[t-0].")
    assert (event.kind, event.group, event.member) == (Kind.RECONCILED, "g", "m")


def test_subscriptions_of_sarama_at_several_brokers_are_one_rebalance() -> None:
    def at(minute: int, *texts: str) -> list[str]:
        return [f"[sarama] 2026/03/01 12:{minute:02}:00 consumer/broker/{text}" for text in texts]

    begin = ("1 accumulated 2 new subscriptions", "0 accumulated 1 new subscriptions")
    end = ("1 closed dead subscription to t/1", "0 closed dead subscription to t/0")
    found = explain([*at(0, *begin), *at(5, *end, *begin), *at(9, *begin)])
    assert len(found.story.rebalances) == 3
    assert names(found) == []


def test_aiokafkas_only_line_about_a_leave_is_a_departure() -> None:
    line = {
        "name": "aiokafka.consumer.group_coordinator",
        "message": "LeaveGroup request succeeded",
    }
    assert names(explain([json.dumps(line)])) == ["member left"]


def test_a_rebalance_that_the_end_of_the_log_leaves_open_is_told() -> None:
    begin = broker(
        "0,000",
        "Preparing to rebalance group g in state PreparingRebalance with old generation 4 "
        "(__consumer_offsets-0) (reason: Adding new member c-1 with group instance id None)",
    )
    other = broker("9,000", "Stabilized group other generation 2 (__consumer_offsets-1)")
    assert names(explain([begin])) == []
    reader = LogReader("server.log")
    told = [e for n, line in enumerate([begin, other], 1) for e in reader.read(n, line)]
    (found,) = (each for each in Explainer().feed_all(told).finish() if each.story.group == "g")
    assert names(found) == ["rebalance under way"]
    assert "9.0 s after its start" in found.findings[0].says


@pytest.mark.parametrize(
    ("context", "client"),
    [
        ("clientId=a=b, groupId=g", "a=b"),
        ("instanceId=i, clientId=c, groupId=g", "c"),
        ("app, groupId=g", "app"),
        ("... groupId=g", ""),
    ],
)
def test_a_context_of_javas_client_is_read_also_without_some_of_its_parts(
    context: str, client: str
) -> None:
    (event,) = events(f"INFO [Consumer {context}] (Re-)joining group")
    assert (event.group, event.client) == ("g", client)


def test_an_old_java_client_names_its_group_behind_a_failed_commit() -> None:
    (event,) = events(
        "Auto-commit of offsets {t-1=OffsetAndMetadata{offset=1, metadata=''}} failed for group g: "
        "Commit cannot be completed since the group has already rebalanced"
    )
    assert (event.kind, event.group) == (Kind.COMMIT_FAILED, "g")


@pytest.mark.parametrize("count", [2, 100])
def test_objects_in_a_list_of_an_export_are_read_each(count: int) -> None:
    """The answer of a service for logs: one object around all, longer than a record may be."""
    export = {"events": [{"timestamp": 1_772_366_400_000, "message": json.dumps(KAFKAJS)}] * count}
    found = events(*json.dumps(export, indent=4).splitlines(), NEXT)
    assert [event.group for event in found] == ["orders"] * count + ["other"]


def test_brackets_without_an_end_cost_no_seconds() -> None:
    begun = process_time()
    assert events(*(" " * (n % 300) + "{" for n in range(10_000))) == []
    assert process_time() - begun < 10


def test_a_leave_at_the_end_of_the_poll_interval_is_no_departure_on_request() -> None:
    late = (
        f"{RDKAFKA.replace('CGRP', 'MAXPOLL')}Application maximum poll interval (6000ms) exceeded "
        "by 55ms (adjust max.poll.interval.ms for long-running message processing): leaving group"
    )
    found = explain([late, f'{RDKAFKA}Group "g": leave (in state up)'])
    assert names(found) == ["poll interval"]
