"""Records of the offsets topic as Kafka's tools print them; lines of a real Kafka 4.3."""

from __future__ import annotations

from kohort.explain.amounts import Known
from kohort.explain.causes import Cause
from kohort.explain.events import Place
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.offsets_topic.generations import Committed, Settled
from kohort.explain.offsets_topic.topic_records import dumped
from kohort.model.ids import TopicPartition

TOPIC_ID = "H3vGrnCrQpuRQfK1TCOX5Q"


def line(kind: int, key: str, payload: str, at: int = 1_000_000) -> str:
    value = payload and f'{{"version":"0","data":{payload}}}'
    return (
        f"| offset: 0 CreateTime: {at} keySize: 31 valueSize: 54 sequence: 0 headerKeys: [] "
        f'key: {{"type":"{kind}","data":{key}}} payload: {value or "<DELETE>"}'
    )


GROUP = (
    '{"protocolType":"consumer","generation":2,"protocol":"range","leader":"one-1",'
    '"currentStateTimestamp":1795645896946,"members":[{"memberId":"pod-2-8a","groupInstanceId":'
    '"pod-2","clientId":"two","clientHost":"/127.0.0.1","rebalanceTimeout":300000,'
    '"sessionTimeout":6000,"subscription":%s,"assignment":%s}]}'
)
APART = (
    '{"topics":["t"],"userData":null,"ownedPartitions":[],"generationId":-1,"rackId":null}',
    '{"assignedPartitions":[{"topic":"t","partitions":[0,2]}],"userData":null}',
)
AS_BYTES = ('"AAMAAAABAAF0AAAABP////8AAAAA////////"', '"AAMAAAABAAF0AAAAAgAAAAAAAAAC/////w=="')


def test_a_group_is_read_from_a_dump_and_from_a_formatter() -> None:
    printed = [
        line(2, '{"group":"g"}', GROUP % APART),
        '{"key":{"type":2,"data":{"group":"g"}},"value":{"version":3,"data":%s}}'
        % (GROUP % AS_BYTES),
    ]
    for text in printed:
        (record,) = dumped(text, "dump", 7)
        assert isinstance(record, Settled)
        assert (record.group, record.generation, record.place) == ("g", 2, Place("dump", 7))
        (member,) = record.members
        assert (member.instance, member.client, member.session_s) == ("pod-2", "two", 6.0)
        assert member.topics == {"t"}
        assert member.partitions == {TopicPartition("t", 0), TopicPartition("t", 2)}


def test_commits_are_read_from_formatters_and_dumps_before_kafka_3_8() -> None:
    dump = (
        "| offset: 4 CreateTime: 1795645902037 keySize: 9 valueSize: 9 sequence: 0 headerKeys: [] "
    )
    oldest = (
        "offset: 4 position: 0 CreateTime: 1795645902037 isvalid: true keysize: 9 valuesize: 9 "
    )
    printed = [
        "[g,with,commas,t-x,2]::OffsetAndMetadata(offset=5, leaderEpoch=Optional.empty, "
        "metadata=m, commitTimestamp=1795645902037, expireTimestamp=None)",
        "[g,with,commas,t-x,2]::[OffsetMetadata[5,NO_METADATA],CommitTime 1795645902037,"
        "ExpirationTime 1795732302037]",
        dump + "key: offset_commit::group=g,with,commas,partition=t-x-2 payload: offset=5",
        oldest + "key: offset::g,with,commas:t-x:2 payload: 5:metadata",
    ]
    for text in printed:
        assert dumped(text, "dump", 1) == [
            Committed(
                group="g,with,commas",
                partition=TopicPartition("t-x", 2),
                offset=5,
                at=1795645902.037,
            )
        ], text
    assert dumped("[g,t,2]::NULL", "dump", 1) == []
    assert dumped(dump + "key: offset_commit::group=g payload: <DELETE>", "dump", 1) == []


def test_groups_are_read_from_dumps_before_kafka_3_8() -> None:
    name = "svc-7c3ee6c1-0b2a-4a5c-9d6e-6f1f0d1f2a3b"
    text = (
        "| offset: 0 CreateTime: 1000000 keysize: 31 valuesize: 54 sequence: 0 headerKeys: [] key: "
        'group_metadata::group=g payload: {"protocolType":"consumer","protocol":"range",'
        '"generationId":2,"assignment":"{NAME=[t-0, t-2]:00000001,b-1=[]}"}'
    ).replace("NAME", name)
    (record,) = dumped(text, "dump", 7)
    assert isinstance(record, Settled)
    assert (record.group, record.generation, record.at) == ("g", 2, 1_000.0)
    first, second = record.members
    assert (first.member, first.client) == (name, "svc")
    assert first.partitions == {TopicPartition("t", 0), TopicPartition("t", 2)}
    assert (second.member, second.partitions) == ("b-1", frozenset())


def test_a_commit_has_the_name_and_the_id_of_its_topic() -> None:
    key = '{"group":"g","topic":"t","partition":0}'
    value = f'{{"offset":5,"commitTimestamp":1795645902037,"topicId":"{TOPIC_ID}"}}'
    (record,) = dumped(line(1, key, value), "dump", 1)
    assert isinstance(record, Committed)
    assert (record.offset, record.at, record.topic_id) == (5, 1795645902.037, TOPIC_ID)
    assert dumped(line(1, key, ""), "dump", 1) == [], "a tombstone of a commit tells nothing"


def test_other_and_damaged_lines_are_no_records() -> None:
    whole = line(2, '{"group":"g"}', GROUP % APART)
    for text in (whole[:-9], whole.replace("members", "x"), '{"key":5}', '{"key":{"type":"2"}}'):
        assert dumped(text, "dump", 1) == []
    assert dumped(line(3, '{"groupId":"g"}', '{"epoch":1}', at=10**20), "dump", 1) == []
    header = "baseOffset: 0 lastOffset: 4 count: 5 position: 0 CreateTime: 1795645908739"
    assert dumped(header, "dump", 1) == []


def member(name: str, at: int) -> str:
    value = (
        f'{{"instanceId":null,"rackId":null,"clientId":"c-{name}","clientHost":"/10.0.0.1",'
        '"subscribedTopicNames":["t"]}'
    )
    return line(5, f'{{"groupId":"g","memberId":"{name}"}}', value, at)


def bumped(epoch: int, at: int) -> str:
    return line(3, '{"groupId":"g"}', f'{{"epoch":{epoch}}}', at)


def owns(name: str, epoch: int, at: int, *numbers: int, revoking: tuple[int, ...] = ()) -> str:
    def parts(those: tuple[int, ...]) -> str:
        return f'[{{"topicId":"{TOPIC_ID}","partitions":{list(those)}}}]' if those else "[]"

    value = (
        f'{{"memberEpoch":{epoch},"previousMemberEpoch":0,"state":0,"assignedPartitions":'
        f'{parts(numbers)},"partitionsPendingRevocation":{parts(revoking)}}}'
    )
    return line(8, f'{{"groupId":"g","memberId":"{name}"}}', value, at)


def explain(*lines: str) -> Explained:
    explainer = Explainer()
    for number, text in enumerate(lines, 1):
        explainer.feed_all(dumped(text, "dump", number))
    (found,) = explainer.finish()
    return found


def test_a_group_of_the_new_protocol_moves_only_the_partitions_that_change() -> None:
    commit = line(
        1,
        '{"group":"g","topic":"t","partition":0}',
        f'{{"offset":5,"commitTimestamp":9000,"topicId":"{TOPIC_ID}"}}',
    )
    found = explain(
        member("a", 10_000), bumped(1, 10_000), owns("a", 1, 10_100, 0, 1, 2, 3), commit,
        member("b", 20_000), bumped(2, 20_000), owns("b", 2, 20_000),
        owns("a", 1, 23_000, 0, 1, revoking=(2, 3)), owns("a", 2, 24_000, 0, 1),
        owns("b", 2, 26_500, 2, 3),
    )  # fmt: skip
    first, second = found.story.rebalances
    assert (first.cause, first.member, first.client) == (Cause.NEW_MEMBER, "a", "c-a")
    assert (second.cause, second.member, second.generation) == (Cause.NEW_MEMBER, "b", 2)
    assert (second.began, second.assigned, second.members) == (20.0, 26.5, 2)
    assert (second.moved, second.needless) == (2, 0)
    stays = [(o.owner, o.end) for o in found.story.owned if o.partition == "t-0"]
    assert stays == [("a", 26.5)], "a member of a stable group writes no record"
    assert [(s.partition, s.seconds, s.known) for s in second.stops] == [
        ("t-2", 2.5, Known.ASSUMED),
        ("t-3", 2.5, Known.ASSUMED),
    ], "topics have their names, and nothing stops while a member still revokes"


def test_a_member_of_the_new_protocol_that_goes_is_the_cause() -> None:
    gone = '{"groupId":"g","memberId":"a"}'
    found = explain(
        member("a", 10_000), member("b", 10_000), bumped(1, 10_000),
        owns("a", 1, 10_100, 0), owns("b", 1, 10_100, 1),
        line(8, gone, "", 50_000), line(5, gone, "", 50_000), bumped(2, 50_000),
        owns("b", 2, 50_200, 0, 1),
    )  # fmt: skip
    last = found.story.rebalances[-1]
    assert (last.cause, last.member, last.moved, last.needless) == (Cause.GONE, "a", 1, 0)
    assert last.cost is not None
    assert round(last.cost.value, 3) == 0.2
