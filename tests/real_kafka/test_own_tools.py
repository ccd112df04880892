"""``kohort topics`` and ``kohort groups`` against a real Kafka: they say the same there."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.waiting import until

from kohort import Consumer
from kohort.cli.main import cli
from kohort.model.errors import KohortError
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

PATIENCE_S = 60


def test_topics_and_groups_of_a_real_kafka(real_kafka: RealKafka) -> None:
    def kohort(*words: str) -> str:
        done = CliRunner().invoke(cli, [*words, "--bootstrap-server", real_kafka.bootstrap_servers])
        if isinstance(done.exception, KohortError):
            return str(done.exception)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    made = kohort("topics", "create", "ours", "--partitions", "2", "--config", "retention.ms=5000")
    assert made == "Created topic ours.\n"
    assert "TOPIC_ALREADY_EXISTS (36)" in kohort("topics", "create", "ours")
    assert "INVALID_CONFIG (40)" in kohort("topics", "create", "odd", "--config", "no.such=1")
    assert "ours" in kohort("topics", "list").split()
    (described,) = json.loads(kohort("topics", "describe", "ours", "--json"))
    assert [p["partition"] for p in described["partitions"]] == [0, 1]
    assert "5000" in kohort("topics", "config", "ours")

    with Consumer(
        bootstrap_servers=real_kafka.bootstrap_servers, group_id="readers-of-ours"
    ) as consumer:
        consumer.subscribe(["ours"])
        until(
            lambda: len(consumer.assignment()) == 2,
            "both partitions are assigned",
            PATIENCE_S,
            between=lambda: consumer.poll(0.1),
        )
        assert "readers-of-ours" in kohort("groups", "list").split()
        (group,) = json.loads(kohort("groups", "describe", "readers-of-ours", "--json"))
        assert (group["state"], group["assignment_strategy"]) == ("Stable", "cooperative-sticky")
        (member,) = group["members"]
        assert member["partitions"] == ["ours-0", "ours-1"]

    told = kohort("groups", "describe", "nobody-at-all")
    assert told == "Consumer group 'nobody-at-all' does not exist."
    assert kohort("topics", "delete", "ours") == "Deleted topic ours.\n"
    assert "UNKNOWN_TOPIC_OR_PARTITION (3)" in kohort("topics", "delete", "ours")
