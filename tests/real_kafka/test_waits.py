"""Deferred rebalances (Design II) on a real Apache Kafka, beside another Kafka client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.client.process_member import go_member, java_member
from tests.client.waiting import (
    MINUTE,
    WaitingGroup,
    a_drain_under_another_leader_is_over_at_once,
    a_member_is_drained,
    a_member_is_drained_warmly,
    a_member_returns,
    a_newcomer_prepares,
    a_standby_takes_over,
    a_static_leader_restarts_in_a_wait,
    members_with_identities_return,
)

from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


Join = Callable[[WaitingGroup], None]
JAVA, FRANZ_GO = "java", "franz-go"
MAKES: dict[str, Join] = {
    "librdkafka": WaitingGroup.join_librdkafka,
    JAVA: lambda group: group.join_other(java_member),
    FRANZ_GO: lambda group: group.join_other(go_member),
}


def others(*also: str) -> pytest.MarkDecorator:
    """Members of other clients: librdkafka in each run, ``also`` these; the rest is long."""
    return pytest.mark.parametrize(
        "join",
        [
            pytest.param(
                join,
                id=make,
                marks=[
                    *([pytest.mark.optional_peer] if make == FRANZ_GO else []),
                    *([] if make in {"librdkafka", *also} else [pytest.mark.long]),
                ],
            )
            for make, join in MAKES.items()
        ],
    )


@pytest.fixture
def group(real_kafka: RealKafka) -> Iterator[WaitingGroup]:
    with ExitStack() as stack:
        yield WaitingGroup(real_kafka.bootstrap_servers, stack, MINUTE)


@pytest.mark.parametrize("leaver", [0, 2], ids=["the leader", "a follower"])
def test_a_member_that_returns_gets_its_partitions_and_no_other_partition_moves(
    group: WaitingGroup, leaver: int
) -> None:
    a_member_returns(group, leaver)


def test_a_static_leader_that_restarts_does_not_begin_the_wait_again(group: WaitingGroup) -> None:
    a_static_leader_restarts_in_a_wait(group)


def test_members_with_identities_get_exactly_their_partitions_again(group: WaitingGroup) -> None:
    members_with_identities_return(group)


def test_a_drained_member_leaves_with_empty_hands(group: WaitingGroup) -> None:
    a_member_is_drained(group)


@others()
def test_181_a_drain_under_a_leader_of_another_client_is_over_at_once(
    group: WaitingGroup, join: Join
) -> None:
    a_drain_under_another_leader_is_over_at_once(group, join)


def test_partitions_move_when_the_newcomer_has_warm_copies(group: WaitingGroup) -> None:
    a_newcomer_prepares(group)


def test_a_member_that_drains_works_until_the_others_are_ready(group: WaitingGroup) -> None:
    a_member_is_drained_warmly(group)


@others(JAVA)
def test_a_leader_of_another_client_moves_partitions_at_once(
    group: WaitingGroup, join: Join
) -> None:
    join(group)
    group.settled(12)
    group.stateful()
    gone = group.join()
    group.settled(6, 6)
    group.kohort.remove(gone)
    gone.leave()
    group.settled(12)


@others(FRANZ_GO)
def test_a_member_of_another_client_does_not_prepare_and_waits_for_nothing(
    group: WaitingGroup, join: Join
) -> None:
    group.stateful()
    group.join()
    group.settled(12)
    join(group)
    group.settled(6, 6)


def test_lost_partitions_go_to_the_member_with_warm_copies(real_kafka: RealKafka) -> None:
    with ExitStack() as stack:
        a_standby_takes_over(WaitingGroup(real_kafka.bootstrap_servers, stack, {}))


@others()
def test_176_a_member_of_another_client_keeps_its_partitions_during_a_wait(
    group: WaitingGroup, join: Join
) -> None:
    leader = group.join()
    group.settled(12)
    join(group)
    group.settled(6, 6)
    gone = group.join()
    first, _, other = group.settled(4, 4, 4)
    generation = leader.snapshot().generation
    lost = group.lose(gone)
    assert group.settled(4, 4) == [first, other]
    assert leader.snapshot().generation == generation + 1, "no join beside that after the loss"
    group.join()
    assert group.settled(4, 4, 4) == [first, lost, other]


@others()
def test_180_168_a_member_of_another_client_gets_drained_and_lost_partitions(
    group: WaitingGroup, join: Join
) -> None:
    for shares in ([12], [6, 6], [4, 4, 4]):
        group.join()
        group.settled(*shares)
    first, second, _ = group.owned()
    lost = group.lose(group.kohort[2])
    group.settled(4, 4)
    join(group)
    assert group.settled(4, 4, 4) == [first, second, lost], "a newcomer gets what waits, at once"
    goes = group.kohort[1]
    goes.drain()
    group.settled(0, 6, 6)
    assert goes.drained
    group.kohort.remove(goes)
    goes.leave()
    group.settled(6, 6)
    assert group.kohort[0].waits() == ()


@others()
def test_175_a_leader_of_another_client_ends_a_wait(group: WaitingGroup, join: Join) -> None:
    group.join()
    group.settled(12)
    join(group)
    group.settled(6, 6)
    gone = group.join()
    group.settled(4, 4, 4)
    group.lose(gone)
    group.settled(4, 4)
    group.kohort.pop().leave()
    group.settled(12)
    group.join()
    group.settled(6, 6)


@others(JAVA, FRANZ_GO)
def test_moves_to_a_member_of_another_client_are_limited(group: WaitingGroup, join: Join) -> None:
    leader = group.join(kohort_max_moves_per_round=1)
    group.settled(12)
    generation = leader.snapshot().generation
    join(group)
    group.settled(6, 6)
    assert leader.snapshot().generation >= generation + 6, "one move a round"
