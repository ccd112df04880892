"""The status of a member: its state with the reason, and the waits of its group.

In: facts of the driver, and the driver's state. Out: a ``MemberStatus``, for any thread. Must not
know: records, callbacks, sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from kohort.client.connections.client_loop import monotonic_now
from kohort.client.consuming.slow_call import SlowCall
from kohort.client.metrics import MemberMeter
from kohort.consumer.embedded_protocol import R
from kohort.consumer.ownership import Ownership
from kohort.embedded.deferral import Pending, Wait, pending_of
from kohort.engine.member_engine import MemberEngine
from kohort.member.states import MemberState
from kohort.model.client_facts import ClientFact
from kohort.model.instants import MICROS_PER_SECOND, Instant, Millis
from kohort.model.member_facts import GenerationJoined, MemberFact, MemberStateChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRebalance:
    """The rebalance that brought the present assignment.

    Attributes:
        cause: why this member joined again.
        duration_ms: from the decision to join until the assignment.
        gained: how many resources the assignment added.
        lost: how many resources it took away.
    """

    cause: str
    duration_ms: Millis
    gained: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus(Generic[R]):
    """The state of a member at one moment.

    ``state`` and ``why`` belong together. Another field may be newer or older by less than a
    millisecond while the member's thread takes an answer.

    Attributes:
        state: the member's state, see ``MemberState``.
        seconds: how long the member has been in this state.
        why: why the member came into this state.
        generation: of the assignment in force; -1 without one.
        member: the member id; empty before the first join.
        owned: the partitions, or other resources, of this member.
        waiting_for: one sentence for each thing that this member or its group waits for.
        waits: the partitions of lost members that wait, with the time that is left.
        last_rebalance: None before the first assignment.
        poll_s: seconds until ``max.poll.interval.ms`` is over; None if no poll is awaited.
        lag: records behind the end of each log, by the last fetches of a consumer; at most 1 s
            old, or 5 ms for each partition if there are more than 200. Partitions without a known
            end are missing. No broker is asked.
    """

    state: MemberState
    seconds: float
    why: str
    generation: int
    member: str
    owned: frozenset[R]
    waiting_for: tuple[str, ...]
    waits: tuple[Wait, ...]
    last_rebalance: LastRebalance | None
    poll_s: float | None
    lag: Mapping[R, int]


class StatusKeeper:
    """Remembers the facts that a status needs, and counts facts; passes all facts on."""

    def __init__(self, then: Callable[[ClientFact | MemberFact], None]) -> None:
        self._then = then
        self.meter = MemberMeter()
        self.poller = SlowCall()
        """The thread or task that polls."""
        self._changed: MemberStateChanged | None = None
        self._cause = ""
        self._joined: tuple[str, Millis] | None = None
        """Cause and duration of the last rebalance."""

    def observe(self, fact: ClientFact | MemberFact) -> None:
        """Take note of a fact, on the driver's thread."""
        if isinstance(fact, MemberStateChanged):
            self._changed = fact
            if fact.after == MemberState.PREPARING:
                self._cause = fact.reason
        elif isinstance(fact, GenerationJoined):
            self._joined = self._cause, fact.took_ms
        self.meter.observe(fact, fact.at if isinstance(fact, MemberFact) else monotonic_now())
        self._then(fact)

    def status(
        self,
        member: MemberEngine,
        ownership: Ownership[Any],
        owned: frozenset[R],
        lag: Mapping[R, int] | None = None,
        *,
        by_hand: bool = False,
    ) -> MemberStatus[R]:
        """The present status; any thread may ask."""
        now, changed, joined = monotonic_now(), self._changed, self._joined
        state = member.core.state
        why = "has not joined yet" if member.core.wanted else "not subscribed yet"
        if changed is not None:
            # One fact gives both: the driver's thread may have a later state already.
            state, why = MemberState(changed.after), changed.reason
        if by_hand:
            why = "assign() reads partitions without a membership"
        pending = _pending_at(ownership, now)
        poll_ends = member.core.poll_ends
        return MemberStatus(
            state=state,
            seconds=0.0 if changed is None else _seconds(changed.at, now),
            why=why,
            generation=member.core.synced_generation_id,
            member=member.core.member_id,
            owned=owned,
            waiting_for=tuple(_waiting_for(member, state, ownership, pending)),
            waits=pending.waits,
            last_rebalance=joined and _last_rebalance(*joined, ownership),
            poll_s=None if poll_ends is None else max(0.0, _seconds(now, poll_ends)),
            lag=lag or {},
        )


def waits_in(ownership: Ownership[Any]) -> tuple[Wait, ...]:
    """The waits in the last assignment, with the time that is left now."""
    return _pending_at(ownership, monotonic_now()).waits


def _pending_at(ownership: Ownership[Any], now: Instant) -> Pending:
    return pending_of(ownership.user_data).after(ownership.user_data_age(now))


def _last_rebalance(cause: str, took_ms: Millis, ownership: Ownership[Any]) -> LastRebalance:
    gained, lost = ownership.moved
    return LastRebalance(cause=cause, duration_ms=took_ms, gained=gained, lost=lost)


def _waiting_for(
    member: MemberEngine, state: MemberState, ownership: Ownership[Any], pending: Pending
) -> list[str]:
    releasing = len(ownership.releasing)
    mine = [f"this application gives up {releasing} partitions"] if releasing else []
    if not member.core.wanted:
        return mine
    if state is MemberState.STABLE:
        return mine + pending.sentences(ownership.words)
    if member.core.poll_expired:
        return [*mine, "max.poll.interval.ms passed without a poll: the application must poll"]
    if not member.coordinator_known:
        return [*mine, "no coordinator of the group is known"]
    return [*mine, _OTHERS[state]] if state in _OTHERS else mine


_OTHERS = {
    MemberState.UNJOINED: "the last attempt to join failed, and the next one comes soon",
    MemberState.JOINING: "every member of the group must join the new generation",
    MemberState.SYNCING: "the group's leader must send the assignment",
}


def _seconds(begin: Instant, end: Instant) -> float:
    return (end - begin) / MICROS_PER_SECOND
