"""``kohort groups`` beside Kafka's own ``kafka-consumer-groups``: the same columns and cells."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest
from tests.cli.commands import Kohort
from tests.interop.kafka_tools import GROUPS, KafkaTools
from tests.java import skip_without_kafkas_classes
from tests.waiting import until

from kohort.client.admin import Admin
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

SAME = {
    "--list --state --type": "list --state --type",
    "--describe --verbose {groups}": "offsets --verbose {groups}",
    "--describe --members --verbose {groups}": "members --verbose {groups}",
    "--describe --state --verbose {groups}": "state --verbose {groups}",
    "--reset-offsets --dry-run --group {empty} --topic {topic}:0,2 --by-duration PT30M": (
        "reset-offsets {empty} --topic {topic}:0,2 --by-duration PT30M"
    ),
    "--reset-offsets --dry-run {empties} --all-topics --shift-by 3 --export": (
        "reset-offsets {empty} {other} --all-topics --shift-by 3 --export"
    ),
}
"""The words for Kafka's tool -> those for kohort; both print the same rows."""


class Stage:
    """A topic, and groups of both protocols with and without members."""

    def __init__(self, bootstrap: str) -> None:
        end = uuid.uuid4().hex[:8]
        words = ("topic", "classic", "new", "empty", "other")
        self.names = {word: f"tables-{word}-{end}" for word in words}
        self.names["empties"] = f"--group {self.names['empty']} --group {self.names['other']}"
        self.names["groups"] = " ".join(f"--group {self.names[word]}" for word in words[1:])
        self._bootstrap = bootstrap
        self.kohort = Kohort(bootstrap)
        self.consumers = [
            self._consumer("classic", "c-1", {"group.instance.id": "pod-1"}),
            self._consumer("new", "n-1", {"group.protocol": "consumer"}),
        ]

    def _consumer(
        self, word: str, client_id: str, more: dict[str, str]
    ) -> confluent_kafka.Consumer:
        own = {"group.id": self.names[word], "client.id": client_id, "session.timeout.ms": 30_000}
        if "group.protocol" in more:
            del own["session.timeout.ms"]
        return confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "enable.auto.commit": False, **own, **more}
        )

    def set(self) -> None:
        """Write ten records to each of three partitions, commit, and assign."""
        topic = self.names["topic"]
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topic(topic, 3)
            producer = confluent_kafka.Producer({"bootstrap.servers": self._bootstrap})
            for number in range(30):
                producer.produce(topic, b"v", partition=number % 3)
            assert producer.flush(30) == 0
            offsets = {TopicPartition(topic, n): Position(4 + n) for n in range(2)}
            for word in ("empty", "other"):
                admin.alter_offsets(self.names[word], offsets)
        for consumer in self.consumers:
            consumer.subscribe([topic])
        until(self._assigned, "each consumer has the topic")
        for consumer in self.consumers:
            partition = confluent_kafka.TopicPartition(topic, 0, 7)
            consumer.commit(offsets=[partition], asynchronous=False)

    def _assigned(self) -> bool:
        for consumer in self.consumers:
            consumer.poll(0.1)
        return all(len(consumer.assignment()) == 3 for consumer in self.consumers)

    def theirs(self, tools: KafkaTools, words: str) -> str:
        """The output of Kafka's tool."""
        return tools.run(GROUPS, *shlex.split(words.format(**self.names)))

    def ours(self, words: str) -> str:
        """The output of kohort's command."""
        return self.kohort("groups", *shlex.split(words.format(**self.names)))


@pytest.fixture
def tools(real_kafka: RealKafka) -> Iterator[KafkaTools]:
    skip_without_kafkas_classes()
    with KafkaTools(real_kafka.bootstrap_servers) as tools:
        yield tools


@pytest.fixture
def stage(real_kafka: RealKafka) -> Iterator[Stage]:
    made = Stage(real_kafka.bootstrap_servers)
    try:
        made.set()
        yield made
    finally:
        for consumer in made.consumers:
            consumer.close()


def rows(text: str, names: dict[str, str]) -> list[list[str]]:
    """The heads, and the rows of the groups of this test, sorted."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return sorted(c for c in lines if c[0].split(",")[0] in {"GROUP", *names.values()})


def test_tables_are_those_of_kafkas_tool(stage: Stage, tools: KafkaTools) -> None:
    for their_words, words in SAME.items():
        their = stage.theirs(tools, their_words)
        expected = rows(their, stage.names)
        assert len(expected) >= 2, their
        assert rows(stage.ours(words), stage.names) == expected, words
    _changes(stage)


def _changes(stage: Stage) -> None:
    """Kohort's commands change what the broker has, of groups of both protocols."""
    kohort, names = stage.kohort, stage.names
    refused = ("groups", "reset-offsets", names["new"], "--topic", names["topic"], "--to-latest")
    kohort(*refused, "--execute", status=1)
    assert f"if the group '{names['new']}' is inactive, but the current state is Stable" in (
        kohort.errors
    )
    kohort("groups", "remove-members", names["classic"], names["new"], "--all-members", "--execute")
    shown = json.loads(kohort("groups", "members", names["new"], "--json"))
    assert [each["members"] for each in shown] == [[]]
    left = [names["empty"], names["other"]]
    kohort("groups", "delete-offsets", left[0], "--topic", f"{names['topic']}:0", "--execute")
    (offsets,) = json.loads(kohort("groups", "offsets", left[0], "--json"))
    assert [row["partition"] for row in offsets["partitions"]] == [1]
    told = kohort("groups", "delete", *left, "--execute")
    assert (
        told
        == f"Deletion of requested consumer groups ('{left[0]}', '{left[1]}') was successful.\n"
    )
