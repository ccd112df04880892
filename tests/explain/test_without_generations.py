"""Logs of sarama 1.50 and KafkaJS 2.2, which name no generation, as written on a real Kafka 4.3."""

from __future__ import annotations

import json

from tests.explain.test_stories import done, joins

from kohort.explain.causes import Cause
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.reading import LogReader
from kohort.explain.rebalances import Ending

UUID = "12345678-1234-1234-1234-12345678"
OLD, NEW = (f"js-{UUID}000{n}" for n in (1, 2))


def sarama(at: int, text: str) -> str:
    return f"[sarama] 2026/03/01 10:00:{at // 1_000:02}.{at % 1_000:03}000 {text}"


def session(at: int, gives: str, gets: str, generation: int) -> list[str]:
    """The lines of a member of sarama in one rebalance; times are milliseconds of a minute."""
    ended = f"consumergroup/session/sarama-{UUID}0003/{generation}"
    return [
        *(sarama(at, f"consumer/broker/1 closed dead subscription to t/{p}") for p in gives),
        sarama(at + 1, f"{ended} heartbeat loop stopped"),
        sarama(at + 1, f"{ended} released"),
        sarama(at + 8, "client/coordinator requesting coordinator for g from 127.0.0.1:9092"),
        sarama(at + 9, "client/coordinator coordinator for g is #1 (127.0.0.1:9092)"),
        *subscribed(at + 115, gets),
    ]


def subscribed(at: int, gets: str) -> list[str]:
    return [
        sarama(at, f"consumer/broker/1 accumulated {len(gets)} new subscriptions"),
        *(sarama(at, f"consumer/broker/1 added subscription to t/{p}") for p in gets),
    ]


def kafkajs(at: int, text: str, **fields: object) -> str:
    time = f"2026-03-01T10:00:{at // 1_000:02}.{at % 1_000:03}Z"
    return json.dumps(
        {"level": "INFO", "timestamp": time, "logger": "kafkajs", "message": text} | fields
    )


def kafkajs_logs() -> dict[str, list[str]]:
    """Two processes with one client id; the second one is new."""
    joined = "[ConsumerGroup] Consumer has joined the group"
    old, new = ({"groupId": "g", "memberId": member} for member in (OLD, NEW))
    return {
        "one.log": [
            kafkajs(5_204, joined, **old),
            kafkajs(
                15_749,
                "[Connection] Response Heartbeat(key: 12, version: 3)",
                clientId="js",
                error="The group is rebalancing, so a rejoin is needed",
            ),
            kafkajs(15_760, "[Runner] The group is rebalancing, re-joining", **old),
            kafkajs(15_768, joined, **old),
        ],
        "two.log": [
            kafkajs(11_106, "[Consumer] Starting", groupId="g"),
            kafkajs(15_773, joined, **new),
        ],
    }


def explained(logs: dict[str, list[str]]) -> Explained:
    explainer, events = Explainer(), []
    for name, lines in logs.items():
        reader = LogReader(name)
        events += [e for n, text in enumerate(lines, 1) for e in reader.read(n, text)]
        assert reader.counts.unknown == 0, reader.counts.examples
        events += reader.rest()
    (found,) = explainer.feed_all(sorted(events, key=lambda each: each.at or 0)).finish()
    return found


def test_members_of_sarama_share_a_row_and_tell_the_stops_of_partitions() -> None:
    begin = [sarama(100, "client/coordinator requesting coordinator for g from 127.0.0.1:9092")]
    found = explained(
        {
            "one.log": [*begin, *subscribed(200, "012"), *session(4_442, "012", "12", 1)],
            "two.log": [*begin, *subscribed(4_560, "0")],
        }
    )
    first, second = found.story.rebalances
    assert (first.stops, second.generation, second.cause) == ((), None, Cause.UNTOLD)
    assert {stop.partition: round(stop.end - stop.begin, 3) for stop in second.stops} == {
        "t-0": 0.118,
        "t-1": 0.115,
        "t-2": 0.115,
    }


def test_a_member_of_sarama_that_ends_begins_no_rebalance() -> None:
    begin = [sarama(100, "client/coordinator requesting coordinator for g from 127.0.0.1:9092")]
    last = sarama(9_000, "consumer/broker/1 closed dead subscription to t/0")
    (only,) = explained({"one.log": [*begin, *subscribed(200, "0"), last]}).story.rebalances
    assert only.assigned is not None


def test_processes_of_kafkajs_with_one_client_id_share_a_row_with_the_new_member() -> None:
    first, second = explained(kafkajs_logs()).story.rebalances
    assert (first.cause, first.member) == (Cause.UNTOLD, OLD)
    assert (second.cause, second.member, second.certain) == (Cause.NEW_MEMBER, NEW, False)


def test_the_lines_of_kafkajs_have_partitions_assignor_and_time_of_the_join() -> None:
    joined = "[ConsumerGroup] Consumer has joined the group"
    told: dict[str, object] = {"groupId": "g", "groupProtocol": "RoundRobinAssigner"}
    old, new = told | {"memberId": OLD}, told | {"memberId": NEW}
    logs = {
        "one.log": [
            kafkajs(5_204, joined, **old, memberAssignment={"t": [0, 1, 2, 3]}, duration=3_030),
            kafkajs(15_760, "[Runner] The group is rebalancing, re-joining", **old),
            kafkajs(15_768, joined, **old, memberAssignment={"t": [0, 2]}, duration=7),
        ],
        "two.log": [
            kafkajs(11_106, "[Consumer] Starting", groupId="g"),
            kafkajs(15_773, joined, **new, memberAssignment={"t": [1, 3]}, duration=4_650),
            kafkajs(20_000, "[Consumer] Stopped", groupId="g"),
        ],
    }
    found = explained(logs)
    first, second = found.story.rebalances
    assert (first.assignor, round((first.assigned or 0) - (first.began or 0), 3)) == (
        "RoundRobinAssigner",
        3.03,
    )
    assert {stop.partition: round(stop.end - stop.begin, 3) for stop in second.stops} == {
        **dict.fromkeys(("t-0", "t-2"), 0.008),
        **dict.fromkeys(("t-1", "t-3"), 0.013),
    }
    assert (second.cause, second.member) == (Cause.NEW_MEMBER, NEW)
    began = second.began or 0.0
    asked = [(join.member, round((join.asked or 0.0) - began, 3)) for join in second.joins]
    assert asked == [(NEW, 0.0), (OLD, 4.638)]
    assert [(waited.member, waited.ending) for waited in second.waited] == [(OLD, Ending.LAST)]
    owned = {(each.partition, each.owner) for each in found.story.owned}
    assert owned >= {("t-0", "js"), ("t-3", "js in two.log")}


def test_damaged_values_beside_a_line_of_kafkajs_are_left_out() -> None:
    joined = "[ConsumerGroup] Consumer has joined the group"
    bad = {"memberAssignment": {"t": "0"}, "duration": -1, "groupProtocol": None, "groupId": "g"}
    (row,) = explained({"one.log": [kafkajs(5_204, joined, memberId=OLD, **bad)]}).story.rebalances
    assert (row.assignor, row.stops, row.began) == ("", (), row.assigned)


def test_rows_of_kafkajs_join_those_of_the_broker_and_no_stop_is_measured() -> None:
    """KafkaJS names no partitions: a stop of 0 ms would be a guess."""
    broker = [*joins(1.1, 0, OLD), *done(5.2, 1, members=1)]
    broker += [*joins(11.1, 1, NEW), *done(15.76, 2, members=2)]
    found = explained({"server.log": broker, **kafkajs_logs()})
    first, second = found.story.rebalances
    assert [first.generation, second.generation] == [1, 2]
    assert not second.covered
