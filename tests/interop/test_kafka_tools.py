"""Kafka's own command-line tools, on kohort's broker.

What a tool prints is read as little as it can be: the words that an operator looks for. `make long`
looks for the same words on the Kafka that the tools come from.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.conformance.members import TOPIC, Member, forms, subscription
from tests.conformance.registry import profile_of
from tests.conformance.talk import Talk
from tests.interop.kafka_tools import GROUPS, TOPICS, KafkaTools
from tests.java import skip_without_kafkas_classes

from kohort.coordinator.partitions import partition_for
from kohort.testing.kafka_jars import KafkaUnavailable
from kohort.testing.real_kafka import run_tool
from kohort.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.real_kafka]

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS = "org.apache.kafka.tools.consumer"
GROUP = "tooled"
AT_ONCE = 2
LONG_MS = 600_000
INTERNAL = "__consumer_offsets"
LATEST = -1


def assignment(*partitions: int) -> bytes:
    """An assignment of the consumer protocol, version 0: these partitions of the one topic."""
    head = subscription(TOPIC)[:-4] + len(partitions).to_bytes(4, "big")
    return head + b"".join(p.to_bytes(4, "big") for p in partitions) + b"\xff\xff\xff\xff"


@pytest.fixture(params=["kohort", pytest.param("kafka", marks=pytest.mark.long)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Kohort's broker, or the Kafka that shows that the tools say so there, too."""
    if request.param == "kafka":
        return str(request.getfixturevalue("real_kafka").bootstrap_servers)
    return str(request.getfixturevalue("kohort_broker").bootstrap_servers)


@pytest.fixture
def tools(bootstrap: str) -> Iterator[KafkaTools]:
    skip_without_kafkas_classes()
    with KafkaTools(bootstrap) as tools:
        yield tools


def test_kafka_topics_creates_describes_enlarges_lists_and_deletes(tools: KafkaTools) -> None:
    created = tools.run(
        TOPICS,
        "--create",
        "--topic",
        "by-tool",
        "--partitions",
        "3",
        "--config",
        "retention.ms=1000",
    )
    assert "Created topic by-tool." in created
    described = tools.run(TOPICS, "--describe", "--topic", "by-tool")
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+.*retention.ms=1000", described)
    assert (
        len(re.findall(r"Partition: \d\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    )
    assert "by-tool" in tools.run(TOPICS, "--list").split()
    tools.run(TOPICS, "--alter", "--topic", "by-tool", "--partitions", "5")
    assert "PartitionCount: 5" in tools.run(TOPICS, "--describe", "--topic", "by-tool")
    tools.run(TOPICS, "--delete", "--topic", "by-tool")
    with pytest.raises(KafkaUnavailable, match="by-tool"):
        tools.run(TOPICS, "--delete", "--topic", "by-tool")


async def _group_of_one(talk: Talk) -> Member:
    """A Stable group with a commit."""
    await talk.begin()
    member = Member(talk, "client-a", session=LONG_MS)
    await forms(member)
    assert (await member.sync({member: assignment(0, 1)})).error == "NONE"
    assert await member.commit(0, metadata="a note") == "NONE"
    return member


async def _where(talk: Talk) -> str:
    """The console consumer's options for all records of the partition that holds the group."""
    named = MetadataRequestTopic(name=INTERNAL)
    metadata = await talk.ask("Metadata", MetadataRequest(topics=[named]))
    partition = partition_for(GROUP, len(metadata.topics[0].partitions))
    asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    topic = ListOffsetsTopic(name=INTERNAL, partitions=[asked])
    answer = await talk.ask("ListOffsets", ListOffsetsRequest(replica_id=-1, topics=[topic]), 2)
    end = answer.topics[0].partitions[0].offset
    return (
        f"--topic {INTERNAL} --partition {partition} --offset earliest "
        f"--max-messages {end} --timeout-ms 40000"
    )


def test_kafka_consumer_groups_and_the_console_consumer_see_a_live_group_and_an_empty_one(
    tools: KafkaTools, bootstrap: str
) -> None:
    async def story() -> None:
        talk = Talk(await profile_of(bootstrap), GROUP)
        try:
            member = await _group_of_one(talk)
            await asyncio.to_thread(_looks_at_a_live_group, tools, member.id)
            where = await _where(talk)
            await asyncio.to_thread(_reads_the_records, bootstrap, member.id, where)
            assert await member.leave() == "NONE"
            await asyncio.to_thread(_works_on_an_empty_group, tools)
        finally:
            await talk.end()

    asyncio.run(story())


def _looks_at_a_live_group(tools: KafkaTools, member_id: str) -> None:
    describe = ("--describe", "--group", GROUP)
    listed = tools.run(GROUPS, "--list", "--state")
    offsets = tools.run(GROUPS, *describe)
    members = tools.run(GROUPS, *describe, "--members", "--verbose")
    state = tools.run(GROUPS, *describe, "--state")
    assert re.search(rf"{GROUP}\s+Stable", listed)
    rows = [line.split() for line in offsets.splitlines() if line.startswith(GROUP)]
    assert [row[1:7] for row in rows] == [
        [TOPIC, "0", "0", "0", "0", member_id],
        [TOPIC, "1", "-", "0", "-", member_id],
    ]
    assert re.search(rf"{member_id}\s+/127.0.0.1\s+client-a\s+2\s.*{TOPIC}:0,1", members)
    assert re.search(rf"{GROUP}\s+127.0.0.1:\d+\s+\(1\)\s+range\s+Stable\s+1", state)


def _works_on_an_empty_group(tools: KafkaTools) -> None:
    of_group = ("--group", GROUP)
    where = ("--topic", f"{TOPIC}:1", "--to-earliest", "--execute")
    reset = tools.run(GROUPS, "--reset-offsets", *of_group, *where)
    assert re.search(rf"{GROUP}\s+{TOPIC}\s+1\s+0", reset)
    deleted = tools.run(GROUPS, "--delete-offsets", *of_group, "--topic", f"{TOPIC}:0")
    assert "Successful" in deleted
    offsets = tools.run(GROUPS, "--describe", *of_group)
    rows = [line.split() for line in offsets.splitlines() if line.startswith(GROUP)]
    assert [row[1:4] for row in rows] == [[TOPIC, "1", "0"]]
    gone = tools.run(GROUPS, "--delete", *of_group)
    assert f"Deletion of requested consumer groups ('{GROUP}') was successful." in gone


def _reads_the_records(bootstrap: str, member_id: str, where: str) -> None:
    """With a Java for each run, since the console consumer counts records in a static variable."""

    def printed(formatter: str) -> str:
        words = f"--bootstrap-server {bootstrap} {where} --formatter {FORMATTERS}.{formatter}"
        return run_tool(CONSOLE, *words.split())

    with ThreadPoolExecutor(AT_ONCE) as pool:
        groups, offsets = pool.map(
            printed, ("GroupMetadataMessageFormatter", "OffsetsMessageFormatter")
        )
    *_, last = (r for r in _records(groups) if r["key"]["data"]["group"] == GROUP)
    value = last["value"]["data"]
    assert (value["protocolType"], value["generation"], value["leader"]) == (
        "consumer",
        1,
        member_id,
    )
    assert [m["memberId"] for m in value["members"]] == [member_id]
    *_, last = (r for r in _records(offsets) if r["key"]["data"]["group"] == GROUP)
    assert (last["key"]["data"]["topic"], last["key"]["data"]["partition"]) == (TOPIC, 0)
    assert (last["value"]["data"]["offset"], last["value"]["data"]["metadata"]) == (0, "a note")


def _records(printed: str) -> Iterator[dict[str, Any]]:
    """JSON objects that a formatter wrote one after the other; the logger's words follow."""
    decoder, text = json.JSONDecoder(), printed.strip()
    while text.startswith("{"):
        record, end = decoder.raw_decode(text)
        yield record
        text = text[end:].lstrip()
