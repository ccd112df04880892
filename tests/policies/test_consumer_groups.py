"""From consumers' bytes to assignments and back; the registry; measures of plans."""

from __future__ import annotations

import struct

import pytest
from tests.policies.groups import group, member, partitions
from tests.policies.measures import moves, skew, squared_load, unassigned, violations

from kohort.coordinator.records import GroupMetadata, GroupRecord, MemberMetadata
from kohort.embedded.consumer import (
    Assignment,
    LeadersNote,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_sticky_userdata,
    encode_subscription,
)
from kohort.model.errors import ConfigError
from kohort.model.ids import (
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    TopicPartition,
)
from kohort.model.instants import Millis, WallMillis
from kohort.model.join import JoinedMember
from kohort.policies.consumer_groups import ConsumerAssigner, group_spec, join_protocols
from kohort.policies.registry import ASSIGNORS, assignor, assignors, is_cooperative
from kohort.policies.spec import AssignAgain, Assignor, GroupSpec, MemberSpec, Plan
from kohort.storage.group_records import write_record

COOPERATIVE = ProtocolName("cooperative-sticky")


def offered(name: str, metadata: bytes, instance: str | None = None) -> JoinedMember:
    return JoinedMember(
        member_id=MemberId(name),
        group_instance_id=None if instance is None else GroupInstanceId(instance),
        metadata=metadata,
    )


def spec_of(metadata: bytes, name: str = "cooperative-sticky") -> MemberSpec:
    return group_spec(ProtocolName(name), [offered("a", metadata)], {"t": 4}).members[MemberId("a")]


def test_every_member_that_offers_gets_an_assignment() -> None:
    offers = [
        join_protocols(assignors("range"), ["t"])[0].metadata,
        join_protocols(assignors("range"), ["t", "u"])[0].metadata,
    ]
    members = [offered("a", offers[0]), offered("b", offers[1], "i")]
    assigner = ConsumerAssigner()
    assert assigner.topics(offers) == {"t", "u"}
    plan = assigner.assign(ProtocolName("range"), members, {"t": 3})
    shares = {m: decode_assignment(data) for m, data in plan.assignments.items()}
    assert shares[MemberId("b")].partitions == partitions("t0 t1"), "static members come first"
    assert shares[MemberId("a")].partitions == partitions("t2")
    assert all(a.user_data is None for a in shares.values()), "KIP-848 conversion needs that (B15)"


def test_a_member_with_unreadable_bytes_gets_nothing_and_the_group_works() -> None:
    good = join_protocols(assignors("range"), ["t"])[0].metadata
    members = [offered("a", b"\x00"), offered("b", good)]
    assigner = ConsumerAssigner()
    assert assigner.topics([m.metadata for m in members]) == {"t"}
    plan = assigner.assign(ProtocolName("range"), members, {"t": 2})
    assert decode_assignment(plan.assignments[MemberId("a")]).partitions == frozenset()
    assert plan.assignments[MemberId("a")], "not zero bytes: Java consumers die of those"
    assert len(decode_assignment(plan.assignments[MemberId("b")]).partitions) == 2


def test_a_protocol_name_without_an_assignor_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'mine' is unknown"):
        ConsumerAssigner().assign(ProtocolName("mine"), [], {})


def test_each_assignors_offer_has_its_own_userdata() -> None:
    owned = partitions("t0 t2")
    sticky, cooperative, plain = join_protocols(
        assignors("sticky,cooperative-sticky,range"),
        ["t"],
        owned=owned,
        previous=partitions("t5"),
        generation_id=GenerationId(7),
    )
    assert [p.name for p in (sticky, cooperative, plain)] == [
        "sticky",
        "cooperative-sticky",
        "range",
    ]
    for protocol in (sticky, cooperative, plain):
        read = decode_subscription(protocol.metadata)
        assert (read.owned, read.generation_id) == (owned, 7)
    assert decode_subscription(plain.metadata).user_data is None
    assert decode_subscription(cooperative.metadata).user_data == struct.pack(">i", 7)
    assert spec_of(sticky.metadata, "sticky").owned == partitions("t0 t2 t5")


def test_66_members_of_several_versions_in_one_group() -> None:
    owned = partitions("t0")
    value = Subscription(topics=frozenset("t"), owned=owned, generation_id=GenerationId(4))
    assert spec_of(encode_subscription(value, 0)).owned == frozenset()
    assert spec_of(encode_subscription(value, 1)).owned == owned
    assert spec_of(encode_subscription(value, 1)).generation_id == -1
    assert spec_of(encode_subscription(value, 2)).generation_id == 4


def test_68_the_subscription_s_generation_wins_over_the_userdata_s() -> None:
    value = Subscription(
        topics=frozenset("t"), user_data=struct.pack(">i", 9), generation_id=GenerationId(4)
    )
    assert spec_of(encode_subscription(value)).generation_id == 4


def test_69_without_a_generation_of_its_own_the_userdata_s_counts() -> None:
    java = Subscription(topics=frozenset("t"), user_data=struct.pack(">i", 9))
    assert spec_of(encode_subscription(java, 1)).generation_id == 9
    sticky = encode_sticky_userdata(partitions("t0"), GenerationId(6))
    others = Subscription(topics=frozenset("t"), user_data=sticky)
    assert spec_of(encode_subscription(others, 1)).generation_id == 6


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff\xff\xff\xff", b"something else"])
def test_garbage_in_userdata_is_no_generation(garbage: bytes) -> None:
    value = Subscription(topics=frozenset("t"), user_data=garbage)
    assert spec_of(encode_subscription(value, 1)).generation_id == -1
    assert spec_of(encode_subscription(value), "sticky").owned == frozenset()


def test_70_a_claim_of_nothing_in_a_newer_generation_counts() -> None:
    sticky = encode_sticky_userdata(partitions("t0"), GenerationId(3))
    value = Subscription(topics=frozenset("t"), user_data=sticky, generation_id=GenerationId(5))
    read = spec_of(encode_subscription(value))
    assert (read.owned, read.generation_id) == (frozenset(), 5)


def test_registry_knows_wire_names_and_java_s_class_names() -> None:
    java = "org.apache.kafka.clients.consumer."
    found = assignors(f"{java}CooperativeStickyAssignor, {java}RangeAssignor")
    assert [a.name for a in found] == ["cooperative-sticky", "range"]
    assert assignor("roundrobin").name == "roundrobin"
    for wrong in ("", "range,range", "best"):
        with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy"):
            assignors(wrong)


def test_only_a_cooperative_name_lets_members_keep_what_they_own() -> None:
    assert is_cooperative("cooperative-sticky")
    assert not any(is_cooperative(name) for name in ("range", "sticky", "unknown", None))


def test_measures_of_plans() -> None:
    t = [TopicPartition("t", n) for n in range(4)]
    before = {MemberId("a"): [t[0], t[1], t[2]], MemberId("b"): []}
    after = {MemberId("a"): [t[0]], MemberId("b"): [t[1], t[3]]}
    assert skew(before) == 3
    assert squared_load(after) == 5
    assert moves(before, after) == 1
    spec = group({"t": 4}, {"a": member("t"), "b": member("")})
    assert unassigned(spec, after) == {t[2]}
    assert violations(spec, after) == [
        f"b gets {t[1]} without having subscribed to it",
        f"b gets {t[3]} without having subscribed to it",
    ]
    broken = {MemberId("a"): [t[0], t[0], TopicPartition("t", 9)], MemberId("x"): []}
    assert violations(spec, broken) == [
        "b is missing in the plan",
        "x is no member",
        "t-0 goes to a and to a",
        "t-9 of a does not exist",
    ]


def echoed(spec: GroupSpec) -> Plan:
    """A plan that returns each member's userdata, with the wish to assign again."""
    user_data = {m: b"echo " + s.user_data for m, s in spec.members.items() if s.user_data}
    again = AssignAgain(after_ms=Millis(spec.record_bytes), reason="more to do")
    return Plan({m: [] for m in spec.members}, user_data, again)


def test_userdata_and_the_wish_to_assign_again_travel_through_the_assigner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    echo = Assignor(ProtocolName("echo"), echoed, cooperative=True)
    monkeypatch.setitem(ASSIGNORS, echo.name, echo)
    with_data = encode_subscription(Subscription(topics=frozenset("t"), user_data=b"mine"))
    without = encode_subscription(Subscription(topics=frozenset("t")))
    members = [offered("a", with_data, "i"), offered("b", without)]
    plan = ConsumerAssigner().assign(echo.name, members, {"t": 3})
    assert plan.again is not None
    assert plan.again.reason == "more to do"
    read = {m: decode_assignment(data).user_data for m, data in plan.assignments.items()}
    assert read == {"a": b"echo mine", "b": None}
    noted = ConsumerAssigner().noted(plan.assignments[MemberId("a")], LeadersNote(withheld=2))
    assert decode_assignment(noted) == Assignment(
        partitions=frozenset(), user_data=b"echo mine", note=LeadersNote(withheld=2)
    )


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("count", [1, 1_000])
def test_the_estimate_of_a_groups_record_is_close_to_the_record_and_not_below_it(
    count: int, static: bool
) -> None:
    metadata = encode_subscription(Subscription(topics=frozenset({"orders", "payments"})))
    ids = [f"consumer-orders-{n}-6f1f2e0c-6c3c-4a59-9c56-0d8f8a3a2f11" for n in range(count)]
    members = [offered(name, metadata, name[:18] if static else None) for name in ids]
    kept = tuple(
        MemberMetadata(
            member_id=m.member_id,
            group_instance_id=m.group_instance_id,
            client_id=m.member_id[:18],
            client_host="/255.255.255.255",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            subscription=metadata,
            assignment=b"",
        )
        for m in members
    )
    group = GroupMetadata(
        protocol_type=ProtocolType("consumer"),
        generation_id=GenerationId(7),
        protocol_name=COOPERATIVE,
        leader_id=MemberId(ids[0]),
        current_state_timestamp=WallMillis(0),
        members=kept,
    )
    key, value = write_record(GroupRecord(group_id=GroupId("orders"), value=group))
    assert value is not None
    estimate = group_spec(COOPERATIVE, members, {}).record_bytes
    assert 0 <= estimate - len(key) - len(value) <= 1_024 + 100 * count


def _large_group(topics: int) -> list[JoinedMember]:
    names = {f"{'topic' * 20}-{n:04}" for n in range(topics)}
    return [
        offered(f"m{n}", encode_subscription(Subscription(topics=frozenset(names))))
        for n in range(10)
    ]


def test_185_a_record_that_no_broker_stores_is_refused_before_the_sync_with_advice() -> None:
    said: list[str] = []
    members = _large_group(1_000)
    sizes = dict.fromkeys(decode_subscription(members[0].metadata).topics, 1)
    refused = ConsumerAssigner(warn=said.append)
    with pytest.raises(ConfigError, match=r"stores at most 1,048,588 bytes\. Use fewer members"):
        refused.assign(COOPERATIVE, members, sizes)
    assert said == []
    for limit in (0, 4_000_000):
        plan = ConsumerAssigner(warn=said.append, most_record_bytes=limit)
        assert len(plan.assign(COOPERATIVE, members, sizes).assignments) == 10
    assert said == []


def test_185_a_record_that_may_be_too_large_is_tried_with_a_warning() -> None:
    said: list[str] = []
    members = _large_group(10)
    plan = ConsumerAssigner().assign(COOPERATIVE, members, {}).assignments
    certain = sum(len(m.metadata) + len(m.member_id) + len(plan[m.member_id]) for m in members)
    assigner = ConsumerAssigner(warn=said.append, most_record_bytes=certain)
    assert assigner.assign(COOPERATIVE, members, {}).assignments == plan
    assert len(said) == 1
    assert "raise message.max.bytes of the brokers" in said[0]


@pytest.mark.parametrize("counts", [{"u": 2, "t": 3}, {}, None])
def test_only_a_kohort_leaders_note_is_read_from_an_assignment(
    counts: dict[str, int] | None,
) -> None:
    assigner = ConsumerAssigner()
    plain = encode_assignment(Assignment(partitions=frozenset({TopicPartition("t", 1)})))
    note = LeadersNote(counts=counts, withheld=4)
    noted = assigner.noted(plain, note)
    assert decode_assignment(noted).partitions == {TopicPartition("t", 1)}
    assert assigner.note(noted) == note
    foreign = Assignment(partitions=frozenset(), user_data=b"\x00\x00\x00\x07")
    torn = Assignment(partitions=frozenset(), user_data=b"kohort counts 0\x00\x00\x00\x07")
    for other in (plain, b"", b"\xff", encode_assignment(foreign), encode_assignment(torn)):
        assert assigner.note(other) is None


def test_a_leader_counts_the_owned_partitions_that_it_assigned_to_nobody() -> None:
    owned = {"a": "t0 t1 t2 t3", "b": "t4", "c": ""}
    members = [
        offered(
            name,
            join_protocols(
                assignors(COOPERATIVE),
                {"t"},
                owned=partitions(text),
                generation_id=GenerationId(3),
            )[0].metadata,
        )
        for name, text in owned.items()
    ]
    assigner = ConsumerAssigner()
    a = MemberId("a")

    def withheld(count: int, among: list[JoinedMember]) -> dict[MemberId, int]:
        plan = assigner.assign(COOPERATIVE, among, {"t": count}).assignments
        return assigner.withheld(COOPERATIVE, among, plan, {"t": count})

    assert withheld(6, members) == {a: 2}, "b keeps what it has, and t5 is free"
    assert withheld(5, members[:2]) == {a: 1}
    assert withheld(3, members) == {a: 2}, "missing partitions have no holder"
    assert withheld(5, members[:1]) == {}
