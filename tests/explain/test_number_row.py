"""The row of numbers of a group: each with how the number is known; unknown numbers are absent."""

from __future__ import annotations

from tests.explain.test_stories import done, explain, joins, leaves, member
from tests.explain.test_without_generations import explained, sarama, session, subscribed

from kohort.explain.amounts import Known
from kohort.explain.pages.number_row import Number, numbers_of


def by_name(numbers: list[Number]) -> dict[str, tuple[str, Known]]:
    return {each.name: (each.text, each.known) for each in numbers}


def test_the_log_of_a_broker_bounds_the_longest_stop_and_names_the_member() -> None:
    found = explain(
        [
            *([joins(1, 4, member("svc", 1))]),
            *done(3.5, 5, members=3, leader_s=0.25),
            *leaves(700, 5, member("svc", 1)),
            *done(701, 6, members=2, leader_s=0.5),
        ]
    )
    numbers = by_name(numbers_of(found.story))
    assert numbers["rebalances"] == ("2", Known.MEASURED)
    assert numbers["rebalances an hour"] == ("10.3", Known.MEASURED)
    assert numbers["longest stop"] == ("≤ 2.8 s", Known.BOUNDED)
    assert numbers["named most often"] == (f"{member('svc', 1)} in 2 of 2", Known.MEASURED)
    assert not {"partition-seconds without a consumer", "partitions moved"} & numbers.keys()


def test_logs_of_clients_tell_what_the_stops_cost_and_the_partition_that_suffered_most() -> None:
    begin = [sarama(0, "client/coordinator requesting coordinator for g from 127.0.0.1:9092")]
    found = explained(
        {
            "one.log": [*begin, *subscribed(200, "012"), *session(4_442, "012", "12", 1)],
            "two.log": [*begin, *subscribed(4_560, "0"), sarama(10_000, "consumergroup/g: x")],
        }
    )
    numbers = by_name(numbers_of(found.story))
    assert numbers["longest stop"] == ("≤ 118 ms in 1 of 2 rebalances", Known.BOUNDED)
    assert numbers["partition-seconds without a consumer"] == (
        "≤ 0.3 ps in 1 of 2 rebalances",
        Known.BOUNDED,
    )
    assert numbers["lowest availability"][0].startswith("t-0: ≥ 9")
