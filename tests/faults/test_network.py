"""Faults of the network, made by the proxy between raw members and a real broker.

The same faults under virtual time, with whole consumers and the checker, are in
tests/lab/test_network_faults.py. Sessions are a second and more, since the machine may be slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.broker.conftest import Connect, loop_of
from tests.faults.conftest import MakeMember
from tests.faults.members import Member, committed, described, form
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.membership import GroupMembership
from kohort.model.errors import ErrorCode
from kohort.testing.fault_proxy import FaultProxy, Toxics
from kohort.wire.messages import k18_api_versions
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest

SESSION_MS = 2_000
SESSION_S = SESSION_MS / 1_000
SLACK_S = 15.0
"""For a machine on which other tests run."""

FINE = k18_api_versions.ApiVersionsRequest()


Pair = tuple[Member, Member]


@pytest.fixture
def proxy(broker: EmbeddedBroker, kohort_fault_proxy: Callable[..., FaultProxy]) -> FaultProxy:
    return kohort_fault_proxy(broker.bootstrap_servers)


@pytest.fixture
def pair(member: MakeMember, proxy: FaultProxy) -> Pair:
    """A member behind the proxy and one that is not, in one stable generation."""
    far, near = member(proxy, session_ms=SESSION_MS), member(session_ms=SESSION_MS)
    form([far, near])
    return far, near


@pytest.mark.parametrize(
    "toxics",
    [Toxics(latency_ms=150), Toxics(latency_ms=20, jitter_ms=300)],
    ids=["n1 delay", "n2 jitter"],
)
def test_n1_n2_delays_below_the_session_cost_nobody_a_place(
    pair: Pair, proxy: FaultProxy, toxics: Toxics
) -> None:
    far, near = pair
    proxy.up = proxy.down = toxics
    end = time.monotonic() + 1.5 * SESSION_S
    while time.monotonic() < end:
        assert (far.beat(), near.beat()) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["n4 both", "n6 to the broker"])
def test_n4_n6_a_member_that_is_not_heard_is_expired_within_its_session(
    pair: Pair, proxy: FaultProxy, way: str
) -> None:
    far, near = pair
    began = time.monotonic()
    assert (far.beat(), near.beat()) == (0, 0)
    proxy.up = Toxics(blackhole=True)
    if way == "n4 both":
        proxy.down = Toxics(blackhole=True)
    near.beat_until(ErrorCode.REBALANCE_IN_PROGRESS)
    assert SESSION_S <= time.monotonic() - began <= SESSION_S + SLACK_S
    assert near.join() == 0
    assert near.others == [near.id]
    proxy.heal()
    assert far.beat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.slow
def test_n5_a_member_that_hears_nothing_blocks_nobody_and_its_answers_come_in_the_end(
    pair: Pair, proxy: FaultProxy
) -> None:
    far, near = pair
    proxy.down = Toxics(blackhole=True)
    end = time.monotonic() + 1.5 * SESSION_S
    sent = 0
    while time.monotonic() < end:
        far.client.send(_beat(far))
        sent += 1
        assert near.beat() == 0
        time.sleep(0.1)
    proxy.heal()
    assert {far.client.receive().error_code for _ in range(sent)} == {0}


@pytest.mark.slow
def test_n5_a_member_of_kohort_knows_that_nobody_confirms_it(
    broker: EmbeddedBroker, proxy: FaultProxy, connect: Connect
) -> None:
    connect(broker).create("t")
    settings = {
        "bootstrap.servers": proxy.bootstrap_servers,
        "group.id": "deaf",
        "session.timeout.ms": 1_500,
        "heartbeat.interval.ms": 200,
        "request.timeout.ms": 1_000,
    }
    with GroupMembership(["t"], settings) as membership:
        until(lambda: _confirmed(membership), "confirmed heartbeats")
        proxy.down = Toxics(blackhole=True)
        until(lambda: not _confirmed(membership), "unconfirmed heartbeats")
        proxy.heal()
        until(lambda: _confirmed(membership), "confirmed heartbeats again")


def test_n7_half_open_connections_are_given_up_and_their_descriptors_too(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
    kohort_fault_proxy: Callable[..., FaultProxy],
    connect: Connect,
) -> None:
    broker = kohort_broker_factory(connections_max_idle_ms=1_500)
    proxy = kohort_fault_proxy(broker.bootstrap_servers)
    clients = [connect(proxy) for _ in range(20)]
    for client in clients:
        assert client.ask(FINE).error_code == 0
    sessions = loop_of(broker).sessions
    assert len(sessions) == 20
    assert proxy.half_open() == 20
    for client in clients:
        client.close()
    until(lambda: not sessions, "no session")
    assert connect(proxy).ask(FINE).error_code == 0


def test_n8_a_reset_in_the_middle_of_a_frame_changes_nothing(
    pair: Pair, proxy: FaultProxy, broker: EmbeddedBroker, connect: Connect
) -> None:
    far, near = pair
    for size in (3, 9, 40):
        cut = proxy.cut_request("JoinGroup", after_bytes=size)
        far.send_join()
        assert cut.wait(SESSION_S)
        assert far.client.hung_up()
        far.client = connect(proxy)
    assert (far.beat(), near.beat()) == (0, 0)
    state, ids = described(connect(broker))
    assert (state, set(ids)) == ("Stable", {far.id, near.id})


def test_n9_a_whole_life_byte_by_byte(member: MakeMember, proxy: FaultProxy) -> None:
    proxy.up = proxy.down = Toxics(slice_bytes=1)
    one = member(proxy, session_ms=30_000)
    assert (one.join(), one.sync(), one.beat(), one.commit(7)) == (0, 0, 0, 0)
    assert one.assignment == f"{one.id} in {one.generation}".encode()
    assert committed(one.client) == 7
    assert one.leave() == 0


def test_n10_a_new_member_that_disconnects_while_parked_is_removed_at_once(
    member: MakeMember, proxy: FaultProxy, broker: EmbeddedBroker, connect: Connect
) -> None:
    """It joined in one step, as old clients do, and never had an answer."""
    first = member(session_ms=30_000)
    assert (first.join(), first.sync()) == (0, 0)
    lost = member(proxy, session_ms=30_000)
    seen = proxy.requests("JoinGroup")
    lost.send_join(version=3)
    until(lambda: proxy.requests("JoinGroup") > seen, "the join at the proxy")
    first.beat_until(ErrorCode.REBALANCE_IN_PROGRESS)
    assert proxy.reset() == 1
    until(lambda: described(connect(broker))[1] == [first.id], "the first member alone")
    assert first.join() == 0
    assert first.others == [first.id]


def test_n11_an_answer_that_comes_too_late_is_never_applied(
    pair: Pair, proxy: FaultProxy, connect: Connect
) -> None:
    """The client gave up waiting, and asks again over another connection."""
    far, near = pair
    late = proxy.delay_answer("Heartbeat", 700)
    far.client.send(_beat(far))
    assert late.wait(SESSION_S)
    old, far.client = far.client, connect(proxy)
    assert far.beat() == 0
    assert old.receive().error_code == 0
    assert (far.beat(), near.beat()) == (0, 0)


@pytest.mark.slow
def test_n12_members_cut_off_one_by_one_and_healed_in_another_order(
    member: MakeMember,
    broker: EmbeddedBroker,
    kohort_fault_proxy: Callable[..., FaultProxy],
    connect: Connect,
) -> None:
    proxies = [kohort_fault_proxy(broker.bootstrap_servers) for _ in range(3)]
    group = [member(proxy, session_ms=SESSION_MS) for proxy in proxies]
    form(group)
    before = group[0].generation
    for proxy in proxies:
        proxy.up = Toxics(blackhole=True)
        time.sleep(0.2)
    until(lambda: described(connect(broker))[0] == "Empty", "an empty group")
    for number in (2, 0, 1):
        proxies[number].heal()
        assert group[number].beat() == ErrorCode.UNKNOWN_MEMBER_ID
        group[number].id = ""
    form(group)
    assert group[0].generation - before <= 2 * len(group)
    assert {one.beat() for one in group} == {0}


@pytest.mark.slow
@pytest.mark.parametrize("healed", ["in time", "too late"])
def test_n13_all_static_members_cut_off_at_once(
    member: MakeMember, broker: EmbeddedBroker, proxy: FaultProxy, connect: Connect, healed: str
) -> None:
    group = [member(proxy, instance=name, session_ms=SESSION_MS) for name in ("one", "two")]
    form(group)
    told = [(one.id, one.generation, one.assignment) for one in group]
    proxy.up = proxy.down = Toxics(blackhole=True)
    if healed == "in time":
        time.sleep(0.3 * SESSION_S)
        proxy.heal()
        assert {one.beat() for one in group} == {0}
        assert [one.sync() for one in group] == [0, 0]
        assert [(one.id, one.generation, one.assignment) for one in group] == told
        return
    until(lambda: described(connect(broker))[0] == "Empty", "an empty group")
    proxy.heal()
    assert {one.beat() for one in group} == {ErrorCode.UNKNOWN_MEMBER_ID}
    for one in group:
        one.id = ""
    form(group)


def _beat(member: Member) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=member.group, generation_id=member.generation, member_id=member.id
    )


def _confirmed(membership: GroupMembership) -> bool:
    """Whether the member is sure of its membership; the call is a sign of life."""
    membership.touch()
    return membership.confirmed()
