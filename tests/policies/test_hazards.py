"""The hazards of member_and_policies 1.10 and bad input that no other test of plans has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.policies.deferred_group import MINUTE, Group
from tests.policies.test_consumer_groups import offered

from kohort.consumer.embedded_protocol import EmbeddedProtocol
from kohort.embedded.connect import COMPATIBLE, ConnectAssignment, encode_worker_assignment
from kohort.embedded.consumer import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from kohort.embedded.deferral import Echo, Handover, Pending, Wait, encode_echo
from kohort.engine.connect_protocol import connect_protocol
from kohort.engine.consumer_protocol import consumer_protocol
from kohort.engine.resource_protocol import resource_protocol
from kohort.model.ids import GenerationId, MemberId, ProtocolName, TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.model.partition_set import PartitionSet
from kohort.policies.connect_groups import NOTHING_READ
from kohort.policies.consumer_groups import ConsumerAssigner, join_protocols
from kohort.policies.deferred import DeferredPlan, Resolution
from kohort.policies.losses import Moment
from kohort.policies.registry import assignors
from kohort.policies.resource_groups import ResourceAssigner
from kohort.policies.spec import GroupSpec
from kohort.policies.sticky import COOPERATIVE


class Scattered(Group):
    """Each member's clock is some hours away from the clocks of the others."""

    def decide(self, spec: GroupSpec, moment: Moment) -> DeferredPlan:
        hours = 5 * "abcdefgh".index(moment.leader_id[0])
        return super().decide(
            spec, replace(moment, now=after(moment.now, Millis(hours * 3_600_000)))
        )


def test_clocks_that_are_hours_apart_change_no_wait() -> None:
    group = Scattered("a b c d", t=24)
    lost = group.owned("d")
    group.leave("d")
    group.settle()
    for leader in "ab":
        group.sleep(20)
        assert group.idle >= lost
        group.leave(leader)
        group.settle()
    group.sleep(21)
    assert lost.isdisjoint(group.idle), "61 seconds after the loss, under each leader"


def test_a_topic_that_is_deleted_and_made_again_during_a_wait_is_new() -> None:
    group = Group("a b c d", t=8, u=4)
    lost = group.owned("d")
    group.leave("d")
    group.settle()
    assert {p.topic for p in lost} == {"t", "u"}
    group.sizes = {"t": 8}
    group.settle()
    assert group.idle == {p for p in lost if p.topic == "t"}
    group.sizes = {"t": 8, "u": 6}
    group.settle()
    assert group.idle == {p for p in lost if p.topic == "t"}, "u has no lost partition any more"
    group.sleep(61)
    assert not group.idle


def test_a_member_that_left_at_its_poll_interval_and_came_back_gets_its_partitions() -> None:
    """It leaves by LeaveGroup and joins with another id at its next poll: a bounce."""
    group = Group("a b c", t=12)
    before = {name: group.owned(name) for name in "abc"}
    group.leave("b")
    group.settle()
    group.sleep(1)
    group.join("b'")
    group.settle()
    assert group.owned("b'") == before["b"]
    assert (group.owned("a"), group.owned("c")) == (before["a"], before["c"])
    assert group.moves == 0


@pytest.mark.parametrize("generation", [-1, 0])
def test_a_newcomer_may_say_that_its_generation_is_zero(generation: int) -> None:
    """franz-go does; Kafka's first generation is 1."""
    group = Group("a b c", t=12)
    lost = group.owned("c")
    group.leave("c")
    group.settle()
    group.join("d")
    group.members["d"].generation = generation
    group.settle()
    assert group.owned("d") == lost
    assert group.moves == len(lost), "nothing else moved"


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
def test_179_under_an_eager_name_nothing_waits_and_no_flag_counts(name: str) -> None:
    everything = Resolution(
        most_wait_ms=Millis(60_000), most_moves=1, stateful=frozenset("t"), standbys=1
    )
    wait = Wait(
        wait_id=1,
        start_generation=GenerationId(1),
        remaining_ms=Millis(30_000),
        partitions=frozenset({TopicPartition("t", 0)}),
    )
    echo = Echo(pending=Pending(waits=(wait,)), draining=True, identity=3, prepares=True)
    members = []
    for member in "ab":
        offers = join_protocols(
            assignors(f"cooperative-sticky,{name}"),
            ["t"],
            generation_id=GenerationId(4),
            echo=echo,
        )
        chosen = next(each for each in offers if each.name == name)
        members.append(offered(member, chosen.metadata))
    moment = Moment(generation_id=GenerationId(5), now=Instant(0), leader_id=MemberId("a"))
    made = ConsumerAssigner(everything).assign(ProtocolName(name), members, {"t": 4}, moment)
    assert made.again is None
    told = {i: decode_assignment(data) for i, data in made.assignments.items()}
    assert [each.user_data for each in told.values()] == [None, None]
    assert sorted(len(each.partitions) for each in told.values()) == [2, 2]


ECHO = encode_echo(GenerationId(4), Echo(identity=7))


def subscribed(user_data: bytes, *owned: int) -> bytes:
    return encode_subscription(
        Subscription(
            topics=frozenset("t"),
            user_data=user_data,
            owned=frozenset(TopicPartition("t", n) for n in owned),
            generation_id=GenerationId(4),
        )
    )


def told(resolution: Resolution, data: bytes) -> tuple[list[str], list[str]]:
    """The faults and the notes of a leader with this offer of b; the group keeps its balance."""
    notes: list[str] = []
    faults: list[str] = []
    assigner = ConsumerAssigner(resolution, notes.append, faults.append)
    members = [offered("a", subscribed(ECHO, 0, 1)), offered("b", data)]
    moment = Moment(generation_id=GenerationId(5), now=Instant(0), leader_id=MemberId("a"))
    plan = assigner.assign(COOPERATIVE.name, members, {"t": 4}, moment)
    given = [decode_assignment(each) for each in plan.assignments.values()]
    assert [each.user_data for each in given] == [None, None]
    assert [sorted(n for _, n in each.partitions) for each in given] == [[0, 1], [2, 3]]
    return faults, notes


@pytest.mark.parametrize("resolution", [MINUTE, Resolution()], ids=["wait", "design one"])
@pytest.mark.parametrize(
    ("data", "fault"),
    [
        pytest.param(ECHO[:-1], "member b: ", id="cut"),
        pytest.param(
            ECHO[:6] + b"\x7f" + ECHO[7:],
            "member b: userdata of waits has format 127; this kohort reads 1",
            id="newer format",
        ),
    ],
)
def test_userdata_that_cannot_be_read_is_named_and_the_group_settles(
    data: bytes, fault: str, resolution: Resolution
) -> None:
    (sentence,), notes = told(resolution, subscribed(data, 2, 3))
    assert sentence.startswith(f"generation 5: {fault}")
    assert notes == []


def test_other_kafka_clients_are_named_if_partitions_may_wait() -> None:
    foreign = subscribed(ECHO[:4] + b"zz" + ECHO[6:], 2, 3)
    sentence = "generation 5: member b reports no waits: another Kafka client wrote the userdata"
    assert told(MINUTE, foreign) == ([], [sentence])
    assert told(Resolution(), foreign) == ([], []), "nothing depends on userdata"


@pytest.mark.parametrize(
    ("resolution", "limit"), [(MINUTE, "60.0"), (Resolution(), "0.0")], ids=["wait", "design one"]
)
def test_a_wait_and_a_preparation_above_the_maximum_are_named_and_cut(
    resolution: Resolution, limit: str
) -> None:
    three = frozenset({TopicPartition("t", 3)})
    wait = Wait(
        wait_id=1,
        start_generation=GenerationId(1),
        remaining_ms=Millis(2**31 - 1),
        partitions=three,
    )
    coming = Handover(remaining_ms=Millis(2**31 - 1), partitions=three)
    far = Echo(pending=Pending(waits=(wait,), handovers=(coming,)))
    faults, _ = told(resolution, subscribed(encode_echo(GenerationId(4), far), 2, 3))
    assert faults == [
        f"generation 5: member b reports a longer {what} than this leader permits: it is cut to "
        f"{most} s"
        for what, most in (("wait", limit), ("preparation", "0.0"))
    ]


def test_a_subscription_that_cannot_be_read_is_named_and_the_others_get_everything() -> None:
    faults: list[str] = []
    assigner = ConsumerAssigner(warn=faults.append)
    members = [offered("a", subscribed(ECHO, 0, 1)), offered("b", b"\x7f")]
    plan = assigner.assign(COOPERATIVE.name, members, {"t": 4})
    given = [decode_assignment(each).partitions for each in plan.assignments.values()]
    assert list(map(len, given)) == [4, 0]
    (sentence,) = faults
    assert sentence.startswith("member b gets nothing: its subscription cannot be read: ")


@pytest.mark.parametrize("protocol", ["consumer", "resources", "worker"])
def test_damaged_userdata_of_the_leader_is_told_and_the_partitions_are_taken(protocol: str) -> None:
    faults: list[str] = []
    warn = faults.append
    mine = PartitionSet.of([TopicPartition("t", 1)])
    data = encode_assignment(Assignment(partitions=mine, user_data=ECHO[4:-1]))
    embedded: EmbeddedProtocol[Any]
    if protocol == "consumer":
        embedded = consumer_protocol((), warn=warn).embedded
    elif protocol == "resources":
        embedded = resource_protocol(ResourceAssigner(list), warn=warn).embedded
    else:
        embedded = connect_protocol("", lambda: NOTHING_READ, warn=warn).embedded
    if protocol == "worker":
        data = encode_worker_assignment(ConnectAssignment(detail=data), COMPATIBLE)
    assigned, user_data = embedded.read_assignment(data)
    assert (len(assigned), user_data) == (1, None)
    (sentence,) = faults
    assert sentence.startswith("the leader's userdata in the assignment of this member is ignored")
