"""Histories on warm handover (56) and standbys (57)."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.cases_revoking import rejoined
from tests.history.tale import Tale, tps

from kohort.embedded.deferral import Echo, Handover, Pending, Wait
from kohort.model.ids import GenerationId, ProtocolName
from kohort.model.instants import Millis
from kohort.model.world_facts import PolicyDeclared

READY = Echo(prepares=True)
WARM = Echo(prepares=True, warm=frozenset(tps(5)))
ANNOUNCED = Pending(
    postponed=1,
    handovers=(Handover(remaining_ms=Millis(20_000), partitions=frozenset(tps(5))),),
)


Shares = dict[str, tuple[int, ...]]
ALL_AT_A: Shares = {"a": (0, 1, 2, 3, 4, 5), "b": ()}
SHARED: Shares = {"a": (0, 1), "b": (2, 3), "c": (4, 5)}


def _stateful(**assigned: tuple[int, ...]) -> Tale:
    tale = Tale(partitions=6)
    tale.add(
        PolicyDeclared(
            protocol_name=ProtocolName("cooperative-sticky"),
            promises=("cooperative", "handing-over"),
        )
    )
    return tale.stable(**assigned).beat_all(6)


def _taken(receiver: Echo) -> Tale:
    tale = rejoined(_stateful(**ALL_AT_A), {"a": READY, "b": receiver})
    return tale.sync({"a": (0, 1, 2, 3, 4), "b": ()})


@broken(56, "t-5 was taken from a before another member had a warm copy")
def a_partition_moves_before_its_copy_is_warm() -> Tale:
    return _taken(READY)


@kept(56)
def a_partition_moves_to_a_member_with_a_warm_copy() -> Tale:
    return _taken(WARM)


@kept(56)
def a_partition_moves_to_a_member_that_does_not_prepare() -> Tale:
    return _taken(Echo())


def _after(seconds: int) -> Tale:
    tale = rejoined(_stateful(**ALL_AT_A), {"a": READY, "b": READY})
    tale.sync(ALL_AT_A, pending=ANNOUNCED).beat_all(seconds)
    return rejoined(tale, {"a": READY, "b": READY}).sync({"a": (0, 1, 2, 3, 4), "b": ()})


@kept(56)
def a_partition_moves_when_the_time_to_prepare_is_over() -> Tale:
    return _after(21)


@broken(56, "t-5 was taken from a before another member had a warm copy")
def a_partition_moves_while_its_next_owner_prepares() -> Tale:
    return _after(9)


def _kept_by(**copies: tuple[int, ...]) -> Tale:
    """A plan with three partitions for each member and these standbys."""
    tale = rejoined(_stateful(**SHARED), dict.fromkeys("abc", READY))
    pending = {name: Pending(standbys=frozenset(tps(*mine))) for name, mine in copies.items()}
    return tale.sync(SHARED, pending=pending)


@kept(57)
def each_partition_has_a_standby() -> Tale:
    return _kept_by(a=(2, 4), b=(0, 5), c=(1, 3))


@broken(57, "a cannot keep a copy of t-0")
def an_owner_is_its_own_standby() -> Tale:
    return _kept_by(a=(0, 4), b=(1, 5), c=(2, 3))


@broken(57, "t-3 has 0 standbys, others have 1")
def a_partition_has_no_standby() -> Tale:
    return _kept_by(a=(2, 4), b=(0, 5), c=(1,))


@broken(57, "b cannot keep a copy of t-0")
def a_member_that_does_not_prepare_is_a_standby() -> Tale:
    tale = rejoined(_stateful(**SHARED), {"a": READY, "b": Echo(), "c": READY})
    copies = {"a": tps(2, 3), "b": tps(0)}
    pending = {name: Pending(standbys=frozenset(mine)) for name, mine in copies.items()}
    return tale.sync(SHARED, pending=pending)


def _waiting_beside(echo: Echo) -> Tale:
    tale = _stateful(**SHARED).leave("c")
    wait = Wait(
        wait_id=1,
        start_generation=GenerationId(2),
        remaining_ms=Millis(20_000),
        partitions=frozenset(tps(4, 5)),
    )
    rejoined(tale, {"a": READY, "b": echo})
    return tale.sync({"a": (0, 1), "b": (2, 3)}, pending=Pending(waits=(wait,)))


@kept(57)
def lost_partitions_wait_without_warm_copies() -> Tale:
    return _waiting_beside(READY)


@broken(57, "t-5 waits although b has a warm copy")
def a_lost_partition_waits_beside_a_warm_copy() -> Tale:
    return _waiting_beside(WARM)
