"""The consumer's embedded bytes: member_and_policies 5.5, and the codecs of other clients."""

from __future__ import annotations

import struct
from collections.abc import Callable, Set

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kohort.embedded.consumer import (
    Assignment,
    StickyUserData,
    Subscription,
    SubscriptionReader,
    decode_assignment,
    decode_sticky_userdata,
    decode_subscription,
    encode_assignment,
    encode_generation_userdata,
    encode_sticky_userdata,
    encode_subscription,
    generation_in_userdata,
    partitions_in,
)
from kohort.model.errors import ProtocolError
from kohort.model.ids import NO_GENERATION, GenerationId, TopicPartition
from kohort.model.partition_set import PartitionSet
from kohort.schema import decode

T0, T2, U1 = TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)

FULL = Subscription(
    topics=frozenset({"u", "t"}),
    user_data=b"\x01\x02",
    owned=frozenset({U1, T2, T0}),
    generation_id=GenerationId(7),
    rack_id="r1",
)
V0_BODY = "00000002 0001 74 0001 75 00000002 0102"
V1_TAIL = "00000002 0001 74 00000002 00000000 00000002 0001 75 00000001 00000001"
HEX = {
    0: f"0000 {V0_BODY}",
    1: f"0001 {V0_BODY} {V1_TAIL}",
    2: f"0002 {V0_BODY} {V1_TAIL} 00000007",
    3: f"0003 {V0_BODY} {V1_TAIL} 00000007 0002 7231",
}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_91_93_subscriptions_by_hand(version: int) -> None:
    assert encode_subscription(FULL, version) == bytes.fromhex(HEX[version])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_91_94_reading_gives_the_fields_of_the_version(version: int) -> None:
    read = decode_subscription(bytes.fromhex(HEX[version]))
    assert read == Subscription(
        topics=FULL.topics,
        user_data=FULL.user_data,
        owned=FULL.owned if version >= 1 else frozenset(),
        generation_id=GenerationId(7 if version >= 2 else -1),
        rack_id="r1" if version >= 3 else None,
    )


@pytest.mark.parametrize("user_data", [None, b"", b"x"])
def test_92_null_stays_null_and_empty_stays_empty(user_data: bytes | None) -> None:
    subscription = Subscription(topics=frozenset("t"), user_data=user_data)
    assert decode_subscription(encode_subscription(subscription)).user_data == user_data
    assignment = Assignment(partitions=frozenset(), user_data=user_data)
    assert decode_assignment(encode_assignment(assignment)).user_data == user_data


def test_96_a_version_of_the_future_is_read_as_the_highest_known_one() -> None:
    data = bytes.fromhex(HEX[3].replace("0003", "0064", 1)) + b"a future field"
    assert decode_subscription(data) == FULL
    data = bytes.fromhex("0064 00000001 0001 74 00000001 00000002 ffffffff") + b"tail"
    assert decode_assignment(data) == Assignment(partitions=frozenset({T2}))


@pytest.mark.parametrize("read", [decode_subscription, decode_assignment])
def test_97_a_negative_version_is_refused(read: Callable[[bytes], object]) -> None:
    with pytest.raises(ProtocolError, match="version -1"):
        read(b"\xff\xff\x00\x00\x00\x00")


@pytest.mark.parametrize("length", range(len(bytes.fromhex(HEX[3]))))
def test_97_truncated_bytes_are_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(bytes.fromhex(HEX[3])[:length])


def test_98_assignments_of_all_versions_are_alike() -> None:
    assignment = Assignment(partitions=frozenset({U1, T0, T2}), user_data=None)
    body = "00000002 0001 74 00000002 00000000 00000002 0001 75 00000001 00000001 ffffffff"
    for version in range(4):
        data = bytes.fromhex(f"{version:04x} {body}")
        assert encode_assignment(assignment, version) == data
        assert decode_assignment(data) == assignment


def test_99_no_bytes_are_an_assignment_of_nothing() -> None:
    assert decode_assignment(b"") == Assignment(partitions=frozenset())


def test_a_length_beyond_the_data_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(bytes.fromhex("0000 7fffffff 0001 74"))


def test_67_sticky_userdata_of_both_versions() -> None:
    new = encode_sticky_userdata({T0, U1}, GenerationId(4))
    assert new.hex() == (
        "00000002" "000174" "00000001" "00000000" "000175" "00000001" "00000001" "00000004"
    )  # fmt: skip
    assert decode_sticky_userdata(new) == (frozenset({T0, U1}), GenerationId(4))
    old = encode_sticky_userdata({T0, U1}, GenerationId(4), version=0)
    assert decode_sticky_userdata(old) == (frozenset({T0, U1}), GenerationId(-1))
    for other in (None, b"", b"\x00", b"\xff\xff\xff\xff"):
        assert decode_sticky_userdata(other) is None


def test_generations_in_userdata() -> None:
    assert generation_in_userdata(encode_generation_userdata(GenerationId(12))) == 12
    assert generation_in_userdata(encode_generation_userdata(GenerationId(-5))) == -1
    assert generation_in_userdata(encode_sticky_userdata({T0}, GenerationId(3))) == 3
    assert generation_in_userdata(None) == -1


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
PARTITIONS = st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), max_size=12)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.frozensets(NAMES, max_size=5),
    user_data=st.none() | st.binary(max_size=20),
    owned=PARTITIONS,
    generation_id=st.integers(-1, 2**31 - 1).map(GenerationId),
    rack_id=st.none() | NAMES,
)


@given(SUBSCRIPTIONS)
def test_91_100_round_trips_and_the_same_bytes_twice(value: Subscription) -> None:
    data = encode_subscription(value)
    assert decode_subscription(data) == value
    assert encode_subscription(decode_subscription(data)) == data


@given(PARTITIONS, st.none() | st.binary(max_size=20))
def test_98_assignments_round_trip(
    partitions: frozenset[TopicPartition], user_data: bytes | None
) -> None:
    value = Assignment(partitions=partitions, user_data=user_data)
    assert decode_assignment(encode_assignment(value)) == value


def _read(read: Callable[[bytes], Subscription], data: bytes) -> Subscription | None:
    try:
        return read(data)
    except ProtocolError:
        return None


FEW_TOPICS = st.lists(st.sampled_from(["t", "u", "vv", ""]), max_size=4)
ARRAYS = st.lists(st.tuples(st.sampled_from(["t", "u", "vv", ""]), st.integers(0, 2)), max_size=4)


@given(st.lists(st.tuples(FEW_TOPICS, ARRAYS, st.integers(0, 80), st.none() | st.just(b"!"))))
@example([([], [("t", 1), (second, 1)], 0, None) for second in ("u", "x", "vv", "u")])
def test_a_reader_reads_each_subscription_like_the_first_one(
    members: list[tuple[list[str], list[tuple[str, int]], int, bytes | None]],
) -> None:
    """Members repeat topics and arrays of others, in any order; some bytes end too early."""
    reader = SubscriptionReader()
    for number, (topics, array, length, user_data) in enumerate(members):
        data = struct.pack(">hi", 1, len(topics))
        for topic in topics:
            data += struct.pack(">h", len(topic)) + topic.encode()
        data += b"\xff\xff\xff\xff" if user_data is None else b"\x00\x00\x00\x01" + user_data
        data += struct.pack(">i", len(array))
        for topic, count in array:
            data += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", count)
            data += struct.pack(f">{count}i", *range(number, number + count))
        data = data[: length or None]
        assert _read(reader.read, data) == _read(decode_subscription, data)


def test_repeated_topics_and_columns_are_one_object() -> None:
    """An assignor compares such topics once."""
    reader = SubscriptionReader()
    read = []
    for number in range(3):
        owned = {TopicPartition("t", number), TopicPartition("u", 1)}
        said = Subscription(topics=frozenset({"t", "u"}), owned=owned)
        read.append(reader.read(encode_subscription(said)))
        assert read[-1] == said
    assert read[2].topics is read[0].topics
    columns = [said.owned.topics for said in read if isinstance(said.owned, PartitionSet)]
    assert columns[2] is columns[1]


def test_a_number_that_has_no_place_is_named_with_its_topic() -> None:
    partitions = {TopicPartition("t", 1), TopicPartition("u", 2**31)}
    with pytest.raises(ProtocolError, match="partitions of u"):
        encode_assignment(Assignment(partitions=partitions))


def lists(partitions: Set[TopicPartition]) -> list[tuple[str, list[int]]]:
    """The form of other clients: topics with their partitions, sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


@given(SUBSCRIPTIONS, st.integers(0, 3))
def test_subscriptions_are_kafka_python_s_byte_for_byte(value: Subscription, version: int) -> None:
    consumer = pytest.importorskip("kafka.protocol.consumer.metadata")
    theirs = consumer.ConsumerProtocolSubscription(
        topics=sorted(value.topics),
        user_data=value.user_data,
        owned_partitions=[
            consumer.ConsumerProtocolSubscription.TopicPartition(topic=t, partitions=p)
            for t, p in lists(value.owned)
        ],
        generation_id=value.generation_id,
        rack_id=value.rack_id,
    )
    data = encode_subscription(value, version)
    assert data == theirs.encode(version=version, header=True)


@given(SUBSCRIPTIONS)
def test_95_readers_of_older_versions_ignore_the_newer_fields(value: Subscription) -> None:
    data = encode_subscription(value, 3)
    oldest = pytest.importorskip("aiokafka.coordinator.protocol").ConsumerProtocolMemberMetadata
    read = oldest.decode(data)
    assert read.subscription == sorted(value.topics)
    assert read.user_data == value.user_data
    kafka_python = pytest.importorskip("kafka.protocol.consumer.metadata")
    second = kafka_python.ConsumerProtocolSubscription.decode(data, version=1)
    assert second.topics == sorted(value.topics)
    owned = [(each.topic, list(each.partitions)) for each in second.owned_partitions]
    assert owned == lists(value.owned)


@given(PARTITIONS, st.none() | st.binary(max_size=20))
def test_assignments_are_aiokafka_s_byte_for_byte(
    partitions: frozenset[TopicPartition], user_data: bytes | None
) -> None:
    protocol = pytest.importorskip("aiokafka.coordinator.protocol")
    theirs = protocol.ConsumerProtocolMemberAssignment(0, lists(partitions), user_data)
    value = Assignment(partitions=partitions, user_data=user_data)
    assert encode_assignment(value, 0) == theirs.encode()


@given(
    st.frozensets(
        st.builds(
            TopicPartition,
            st.text(max_size=5),
            st.integers(min_value=-(2**31), max_value=2**31 - 1),
        )
    )
)
def test_partitions_in_columns_have_the_bytes_of_the_declared_structure(
    partitions: frozenset[TopicPartition],
) -> None:
    declared = encode_sticky_userdata(partitions, NO_GENERATION, 0)  # that array and no more
    assert encode_assignment(Assignment(partitions=partitions)) == (
        b"\x00\x03" + declared + b"\xff\xff\xff\xff"
    )


@given(
    st.lists(
        st.tuples(st.sampled_from("tuv"), st.lists(st.integers(-1, 3), max_size=4)), max_size=4
    ),
    st.data(),
)
def test_damaged_columns_are_refused_like_the_declared_structure(
    entries: list[tuple[str, list[int]]], data: st.DataObject
) -> None:
    """Unsorted topics and double entries are read; other damage is an error for both."""
    value = struct.pack(">i", len(entries)) + b"".join(
        struct.pack(f">h1si{len(numbers)}i", 1, topic.encode(), len(numbers), *numbers)
        for topic, numbers in entries
    )
    at = data.draw(st.integers(0, len(value) - 1))
    byte = data.draw(st.sampled_from([value[at], 0, 1, 0x7F, 0x80, 0xFF]))
    damaged = value[:at] + bytes([byte]) + value[at + 1 :]
    damaged = damaged[: data.draw(st.integers(len(damaged) - 2, len(damaged)))]
    try:
        declared, end = decode(StickyUserData, 0, damaged)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            decode_assignment(b"\x00\x03" + damaged)
        return
    if end == len(damaged):
        found = decode_assignment(b"\x00\x03" + damaged + b"\xff\xff\xff\xff").partitions
        assert found == partitions_in(declared.previous_assignment)
        assert list(found) == sorted(found)
