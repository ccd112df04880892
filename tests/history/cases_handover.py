"""Histories on warm handover (56)."""

from __future__ import annotations

from tests.history.cases import broken, kept
from tests.history.cases_revoking import rejoined
from tests.history.tale import Tale, tps

from kohort.embedded.deferral import Echo, Handover, Pending
from kohort.model.ids import ProtocolName
from kohort.model.instants import Millis
from kohort.model.world_facts import PolicyDeclared

READY = Echo(prepares=True)
WARM = Echo(prepares=True, warm=frozenset(tps(5)))
ANNOUNCED = Pending(
    postponed=1,
    handovers=(Handover(remaining_ms=Millis(20_000), partitions=frozenset(tps(5))),),
)


def _stateful() -> Tale:
    tale = Tale(partitions=6)
    tale.add(
        PolicyDeclared(
            protocol_name=ProtocolName("cooperative-sticky"),
            promises=("cooperative", "handing-over"),
        )
    )
    return tale.stable(a=(0, 1, 2, 3, 4, 5), b=()).beat_all(6)


def _taken(receiver: Echo) -> Tale:
    tale = rejoined(_stateful(), {"a": READY, "b": receiver})
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
    tale = rejoined(_stateful(), {"a": READY, "b": READY})
    tale.sync({"a": (0, 1, 2, 3, 4, 5), "b": ()}, pending=ANNOUNCED).beat_all(seconds)
    return rejoined(tale, {"a": READY, "b": READY}).sync({"a": (0, 1, 2, 3, 4), "b": ()})


@kept(56)
def a_partition_moves_when_the_time_to_prepare_is_over() -> Tale:
    return _after(21)


@broken(56, "t-5 was taken from a before another member had a warm copy")
def a_partition_moves_while_its_next_owner_prepares() -> Tale:
    return _after(9)
