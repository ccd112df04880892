"""One script of topic administration and topic ids to a real Kafka and to kohort: same answers.

What the two do differently on purpose is listed by name, and must differ.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tests.real_kafka.script import SETTLING, Peer, port_of

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ErrorCode
from kohort.storage.log_config import TOPIC_SETTINGS
from kohort.storage.records import Record, build_batch
from kohort.testing.real_kafka import RealKafka
from kohort.wire.messages import k00_produce as produce
from kohort.wire.messages import k01_fetch as fetch
from kohort.wire.messages import k03_metadata as metadata
from kohort.wire.messages import k08_offset_commit as commit
from kohort.wire.messages import k09_offset_fetch as committed
from kohort.wire.messages import k10_find_coordinator as find
from kohort.wire.messages import k19_create_topics as create
from kohort.wire.messages import k20_delete_topics as delete
from kohort.wire.messages import k21_delete_records as records
from kohort.wire.messages import k32_describe_configs as describe
from kohort.wire.messages import k37_create_partitions as grow
from kohort.wire.messages import k44_incremental_alter_configs as alter
from kohort.wire.messages import k60_describe_cluster as cluster

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

NONE, NOBODYS = bytes(16), uuid.UUID(int=7).bytes
RUN = uuid.uuid4().hex[:8]
T, U, SMALL, COMPACTED, G = (f"{name}-{RUN}" for name in ("t", "u", "small", "compacted", "g"))
"""Names that no other test has given to the same Kafka."""

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

DIFFERENT = {
    "metadata: neither name nor id": "Kafka falls over its own null: UNKNOWN_SERVER_ERROR",
    "alter: an operation that is none": "the same",
    "alter: the broker itself": "no setting of a running broker changes here",
    "create: segments of 14 bytes": "Kafka asks for 1 MiB since 4.1; small ones serve tests",
    "grow: the internal topic": "it stays as it is",
}


class Script:
    """Asks one broker, and writes down what it says under a name."""

    def __init__(self, port: int) -> None:
        self.peer = Peer(port, "topics")
        self.ids: dict[bytes, str] = {NONE: "none", NOBODYS: "nobody's"}
        self.told: dict[str, Any] = {}

    def ask(self, api: str, request: object, version: int | None = None) -> Any:
        self.peer.send(api, request, version)
        return self.peer.receive()

    def made(self, name: str, partitions: int = 1, **configs: str | None) -> tuple[Any, ...]:
        topic = create.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        row = self.ask("CreateTopics", create.CreateTopicsRequest(topics=[topic])).topics[0]
        if row.error_code == 0:
            self.ids.setdefault(row.topic_id, name)
            self._wait_for(name, row.topic_id)
        return code(row), row.num_partitions

    def _wait_for(self, name: str, topic_id: bytes) -> None:
        """Kafka lists a topic before its partitions have leaders: wait until they can be read."""
        deadline = time.monotonic() + 60
        while (told := self.metadata((name, NONE))[0])[0] != "NONE":
            assert time.monotonic() < deadline, f"{name} was never told: {told}"
            time.sleep(0.02)
        for partition in range(told[3]):
            while (row := self.fetched(topic_id, 0, partition))[1] != "NONE":
                assert time.monotonic() < deadline, f"{name}-{partition} was never led: {row}"
                time.sleep(0.02)

    def metadata(self, *topics: tuple[str | None, bytes], version: int = 12) -> list[Any]:
        asked = [metadata.MetadataRequestTopic(name=n, topic_id=i) for n, i in topics]
        request = metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return [
            (code(t), t.name, self.ids.get(t.topic_id), len(t.partitions))
            for t in self.ask("Metadata", request, version).topics
        ]

    def fetched(self, topic_id: bytes, offset: int = 0, partition: int = 0) -> Any:
        row = fetch.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        topic = fetch.FetchTopic(topic_id=topic_id, partitions=[row])
        request = fetch.FetchRequest(topics=[topic], max_wait_ms=10)
        (topic,) = self.ask("Fetch", request, 18).responses
        (row,) = topic.partitions
        return (
            self.ids[topic.topic_id],
            *(code(row), row.high_watermark, row.log_start_offset, row.aborted_transactions),
            len(row.records or b""),
        )

    def commits(self, *rows: tuple[bytes, int, int]) -> Any:
        request = commit.OffsetCommitRequest(
            group_id=G,
            topics=[
                commit.OffsetCommitRequestTopic(
                    topic_id=i,
                    partitions=[
                        commit.OffsetCommitRequestPartition(partition_index=n, committed_offset=o)
                    ],
                )
                for i, n, o in rows
            ],
        )
        told: list[tuple[str, int, int]] = []
        for _ in range(100):
            answer = self.ask("OffsetCommit", request, 10)
            told = [
                (self.ids[t.topic_id], p.partition_index, p.error_code)
                for t in answer.topics
                for p in t.partitions
            ]
            if not any(error in SETTLING for _, _, error in told):
                break
            time.sleep(0.1)
        return sorted((topic, n, ErrorCode(error).name) for topic, n, error in told)

    def positions(self, *ids: bytes) -> Any:
        topics = [
            committed.OffsetFetchRequestTopics(topic_id=i, partition_indexes=[0, 1]) for i in ids
        ]
        group = committed.OffsetFetchRequestGroup(group_id=G, topics=topics if ids else None)
        answer = self.ask("OffsetFetch", committed.OffsetFetchRequest(groups=[group]), 10)
        (told,) = answer.groups
        rows = [(self.ids[t.topic_id], p) for t in told.topics for p in t.partitions]
        return code(told), sorted(
            (n, p.partition_index, p.committed_offset, code(p)) for n, p in rows
        )

    def deleted(self, *topics: tuple[str | None, bytes]) -> Any:
        states = [delete.DeleteTopicState(name=n, topic_id=i) for n, i in topics]
        answer = self.ask(
            "DeleteTopics", delete.DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6
        )
        return sorted(
            (code(r), r.name or "", self.ids.get(r.topic_id, "?")) for r in answer.responses
        )

    def altered(self, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC) -> Any:
        configs = [
            alter.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in changes
        ]
        resource = alter.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        request = alter.IncrementalAlterConfigsRequest(resources=[resource])
        (row,) = self.ask("IncrementalAlterConfigs", request).responses
        return code(row), row.resource_type, row.resource_name

    def settings(self, name: str, *keys: str, kind: int = TOPIC) -> Any:
        resource = describe.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys)
        )
        answer = self.ask("DescribeConfigs", describe.DescribeConfigsRequest(resources=[resource]))
        (result,) = answer.results
        rows = [
            (r.name, r.value, r.config_source, r.read_only, r.config_type) for r in result.configs
        ]
        return code(result), sorted(rows)

    def settings_after(self, before: Any, *, changed: bool) -> Any:
        """The settings of the topic; Kafka's broker learns a change after its controller."""
        deadline = time.monotonic() + 60
        while (told := self.settings(T, *CHANGED)) == before and changed:
            assert time.monotonic() < deadline, f"a change was never told: {told}"
            time.sleep(0.02)
        return told

    def cut(self, name: str, *rows: tuple[int, int]) -> Any:
        partitions = [records.DeleteRecordsPartition(partition_index=n, offset=o) for n, o in rows]
        topic = records.DeleteRecordsTopic(name=name, partitions=partitions)
        request = records.DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
        (told,) = self.ask("DeleteRecords", request).topics
        return sorted((r.partition_index, r.low_watermark, code(r)) for r in told.partitions)

    def grown(self, name: str, count: int, *, validate_only: bool = False) -> Any:
        topic = grow.CreatePartitionsTopic(name=name, count=count)
        request = grow.CreatePartitionsRequest(
            topics=[topic], timeout_ms=30_000, validate_only=validate_only
        )
        return code(self.ask("CreatePartitions", request).results[0])


def code(row: Any) -> str:
    return ErrorCode(row.error_code).name


def perform(script: Script) -> None:
    """Everything that is asked, in order."""
    told, s = script.told, script
    for name in ("", ".", "..", "a" * 250, "a/b", "a b"):
        told[f"create: {name[:9]!r}"] = s.made(name)
    told["create"] = s.made(T, 2)
    told["create: again"] = s.made(T)
    told["create: unknown setting"] = s.made(U, nonsense="1")
    told["create: wrong setting"] = s.made(U, retention_ms="x")
    told["create: null setting"] = s.made(U, retention_ms=None)
    told["create: no partitions"] = s.made(U, 0)
    told["create: segments of 14 bytes"] = s.made(SMALL, segment_bytes="14")
    told["create: with a dot"] = s.made(f"k.x-{RUN}")
    told["create: a collision"] = s.made(f"k_x-{RUN}")
    topic_id = next(i for i, name in s.ids.items() if name == T)
    ids_in_metadata(s, topic_id)
    batch = build_batch([Record(None, b"%d" % n, int(time.time() * 1_000)) for n in range(10)])
    data = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name=T, partition_data=[data])
    put = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    (written,) = s.ask("Produce", put).responses
    assert code(written.partition_responses[0]) == "NONE"
    for name, (asked, offset, partition) in {
        "known": (topic_id, 0, 0),
        "unknown": (NOBODYS, 0, 0),
        "none": (NONE, 0, 0),
        "no such partition": (topic_id, 0, 7),
        "out of range": (topic_id, 99, 0),
    }.items():
        told[f"fetch: {name}"] = s.fetched(asked, offset, partition)
    s.ask("FindCoordinator", find.FindCoordinatorRequest(coordinator_keys=[G]))
    told["commit: unknown"] = s.commits((NOBODYS, 0, 5), (NONE, 0, 5))
    told["commit: mixed"] = s.commits((NOBODYS, 0, 5), (topic_id, 0, 6), (topic_id, 9, 1))
    told["committed"] = s.positions(topic_id)
    told["committed: mixed"] = s.positions(topic_id, NOBODYS)
    told["committed: all"] = s.positions()
    settings(s)
    records_cut(s, topic_id)
    partitions(s)
    deletions(s, topic_id)
    kinds = {kind: cluster.DescribeClusterRequest(endpoint_type=kind) for kind in (1, 2, 7)}
    for kind, request in kinds.items():
        told[f"cluster: endpoint {kind}"] = code(s.ask("DescribeCluster", request))


def ids_in_metadata(s: Script, topic_id: bytes) -> None:
    told = s.told
    told["metadata: neither name nor id"] = s.metadata((None, NONE))
    told["metadata: by id"] = s.metadata((None, topic_id))
    told["metadata: by unknown id"] = s.metadata((None, NOBODYS))
    told["metadata: by name"] = s.metadata((T, NONE), version=13)
    told["metadata: both"] = s.metadata(("nope", NONE), (None, topic_id))
    told["metadata: both in one"] = s.metadata((T, NOBODYS))
    told["metadata: by id too early"] = s.metadata((None, topic_id), version=10)
    told["metadata: nobody too early"] = s.metadata((None, NONE), version=11)
    told["metadata: a bad name"] = s.metadata(("a b", NONE), ("", NONE))


CHANGED = ("cleanup.policy", "retention.ms")
SEEN = ("append", "subtract", "unset")
"""Those changes below that change the described values of these settings."""


def settings(s: Script) -> None:
    told = s.told
    changes: dict[str, tuple[tuple[str, int, str | None], ...]] = {
        "unknown": (("nonsense", SET, "1"),),
        "wrong": (("retention.ms", SET, "x"),),
        "out of range": (("retention.ms", SET, "-7"),),
        "null": (("retention.ms", SET, None),),
        "append to a setting that is no list": (("retention.ms", APPEND, "1"),),
        "an operation that is none": (("retention.ms", 9, "1"),),
        "one setting twice": (("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        "unset what is not set": (("segment.ms", DELETE, None), ("nonsense", DELETE, None)),
        "append": (("cleanup.policy", APPEND, "compact"),),
        "append again": (("cleanup.policy", APPEND, "compact"),),
        "subtract": (("cleanup.policy", SUBTRACT, "delete"),),
        "unset": (("cleanup.policy", DELETE, None), ("retention.ms", SET, "123456789")),
    }
    before = s.settings(T, *CHANGED)
    for name, some in changes.items():
        told[f"alter: {name}"] = s.altered(T, *some)
        told[f"alter: {name}: told"] = before = s.settings_after(before, changed=name in SEEN)
    told["alter: no such topic"] = s.altered("nope", ("retention.ms", SET, "1"))
    told["alter: a bad name"] = s.altered("a b", ("retention.ms", SET, "1"))
    told["alter: no name"] = s.altered("", ("retention.ms", SET, "1"))
    told["alter: no such kind"] = s.altered(T, ("retention.ms", SET, "1"), kind=99)
    told["alter: another broker"] = s.altered("77", ("log.retention.ms", SET, "1"), kind=BROKER)
    told["alter: the broker itself"] = s.altered(
        "1", ("log.retention.ms", SET, "100000"), kind=BROKER
    )
    told["settings: no such topic"] = s.settings("nope")
    told["settings: a bad name"] = s.settings("a b")
    told["settings: no such broker"] = s.settings("77", kind=BROKER)
    told["settings: unknown"] = s.settings(T, "nonsense")
    told["settings: names"] = sorted(row[0] for row in s.settings(T)[1])


def records_cut(s: Script, topic_id: bytes) -> None:
    told = s.told
    told["delete records"] = s.cut(T, (0, 4))
    told["delete records: fetch before"] = s.fetched(topic_id, 3)
    told["delete records: backwards"] = s.cut(T, (0, 2))
    told["delete records: too far"] = s.cut(T, (0, 99))
    told["delete records: below 0"] = s.cut(T, (0, -2))
    told["delete records: twice"] = s.cut(T, (0, 5), (0, 6), (1, -1))
    told["delete records: all"] = s.cut(T, (0, -1))
    told["delete records: fetch the end"] = s.fetched(topic_id, 10)
    told["delete records: no partition"] = s.cut(T, (7, 0))
    told["delete records: no topic"] = s.cut("nope", (0, 0))
    s.made(COMPACTED, cleanup_policy="compact")
    told["delete records: of a compacted topic"] = s.cut(COMPACTED, (0, 0))
    told["delete records: of the internal topic"] = s.cut("__consumer_offsets", (0, 0), (60, 0))


def partitions(s: Script) -> None:
    told = s.told
    told["grow: no such topic"] = s.grown("nope", 2)
    told["grow: none"] = s.grown(T, 0)
    told["grow: as many"] = s.grown(T, 2)
    told["grow: less"] = s.grown(T, 1)
    told["grow: try"] = s.grown(T, 3, validate_only=True)
    told["grow: the internal topic"] = s.grown("__consumer_offsets", 99, validate_only=True)


def deletions(s: Script, topic_id: bytes) -> None:
    told = s.told
    told["delete: neither"] = s.deleted((None, NONE))
    told["delete: both"] = s.deleted((T, topic_id))
    told["delete: unknown id"] = s.deleted((None, NOBODYS))
    told["delete: unknown name"] = s.deleted(("nope", NONE), ("a b", NONE))
    told["delete: twice by id"] = s.deleted((None, topic_id), (None, topic_id))
    told["delete: twice by name"] = s.deleted((T, NONE), (T, NONE))
    told["delete: once each way"] = s.deleted((T, NONE), (None, topic_id))
    told["delete: by id"] = s.deleted((None, topic_id))
    told["delete: by name"] = s.deleted((COMPACTED, NONE))


def test_topics_are_administered_as_kafka_does_it(
    real_kafka: RealKafka, kohort_broker_factory: Callable[..., EmbeddedBroker]
) -> None:
    kohort = Script(port_of(kohort_broker_factory().bootstrap_servers))
    kafka = Script(port_of(real_kafka.bootstrap_servers))
    for script in (kohort, kafka):
        perform(script)
        script.peer.close()
    assert kohort.told.keys() == kafka.told.keys()
    differ = {name for name in kohort.told if kohort.told[name] != kafka.told[name]}
    shown = [f"{n}: kafka {kafka.told[n]}, kohort {kohort.told[n]}" for n in sorted(differ)]
    assert differ == set(DIFFERENT), "\n".join(shown)
    assert kohort.told["settings: names"] == sorted(TOPIC_SETTINGS)
