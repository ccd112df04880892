"""Promises about refused requests: they change nothing and leave nothing behind.

In: a coordinator's facts. Facts between a request and its immediate refusal belong to the
request. Out: findings. Must not know: clients' facts.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.generations import COORDINATOR
from kohort.history.world import World
from kohort.model import facts as f
from kohort.model.errors import ErrorCode
from kohort.model.history_record import COORDINATOR_FACTS, Recorded
from kohort.model.ids import ConnectionId
from kohort.model.wire_facts import (
    AnswerSent,
    GroupApi,
    PersistBegun,
    PersistFailed,
    PersistOk,
    RequestReceived,
    RequestUnreadable,
    TimerChanged,
)

_SAYS_ONLY: Final[tuple[type[Any], ...]] = (f.JoinRefused, f.LimitReached)
"""Facts about a refusal, which report no change."""

_CHANGES: Final = tuple(
    kind for kind in (*COORDINATOR_FACTS, PersistBegun, TimerChanged) if kind not in _SAYS_ONLY
)


class _Refusals(Check):
    """Collects the changes between a request and its immediate refusal."""

    errors: ClassVar[frozenset[ErrorCode]]

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._asked: Recorded | None = None
        self._changes: list[str] = []

    @on(RequestReceived)
    def asked(self, recorded: Recorded, fact: RequestReceived) -> None:
        """A request comes: the next facts are its consequences."""
        self._asked, self._changes = recorded, []

    @on(PersistOk, PersistFailed)
    def other_cause(self, _recorded: Recorded, _fact: PersistOk | PersistFailed) -> None:
        """A write ended: the next changes have another cause."""
        self._asked = None

    @on(*_CHANGES)
    def changed(self, recorded: Recorded, fact: Any) -> None:
        """The group changes."""
        asked = self._asked
        if asked is None:
            return
        if recorded.at != asked.at or recorded.source != asked.source:
            self._asked = None
        elif fact.group_id == asked.fact.group_id:  # type: ignore[union-attr]
            self._changes.append(type(fact).__name__)

    @on(AnswerSent)
    def answered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """The request is answered: if it is refused, nothing may have changed."""
        asked = self._asked
        if asked is None or not isinstance(asked.fact, RequestReceived):
            return
        if fact.token != asked.fact.token or recorded.source != asked.source:
            return
        self._asked = None
        if fact.error in self.errors and fact.api is not GroupApi.LEAVE_GROUP:
            changes = list(self._changes)
            if not self.holds(not changes):
                self.find(
                    f"{fact.api} of {fact.member_id or 'nobody'} was refused with "
                    f"{fact.error.name}, but brought {', '.join(changes)}",
                    recorded,
                )


class RefusedChangesNothing(_Refusals):
    """A request with a wrong generation or of an unknown member is refused and changes nothing.

    Timers must not change, either: if a zombie's heartbeat kept a session alive, no other member
    would get the partitions. (Timers are judged only if they are recorded.)
    """

    number, name, heading = 9, "refused-changes-nothing", Heading.MEMBERSHIP
    source, feature, kafka = "reliability 1.3 (9)", COORDINATOR, Kafka.YES
    errors = frozenset(
        {
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.FENCED_MEMBER_EPOCH,
        }
    )


class SizeCapHolds(_Refusals):
    """No generation has more members than the cap; a joiner that is refused leaves no trace.

    If the group kept refused joiners, the cap would have no effect: their ids would fill memory,
    and their members the group.
    """

    number, name, heading = 20, "size-cap-holds", Heading.MEMBERSHIP
    source, feature, kafka = "KIP-389; reliability 1.3 (20)", COORDINATOR, Kafka.YES
    errors = frozenset({ErrorCode.GROUP_MAX_SIZE_REACHED})

    @on(f.JoinPhaseCompleted)
    def opened(self, recorded: Recorded, fact: f.JoinPhaseCompleted) -> None:
        """A generation opens under a known cap."""
        cap = self.world.settings.get("group.max.size")
        if cap is not None:
            if not self.holds(len(fact.member_ids) <= cap):
                self.find(
                    f"{len(fact.member_ids)} members in a generation, the cap is {cap}", recorded
                )


class BadInputIsHarmless(_Refusals):
    """Bad input changes no group and hurts no connection but its own.

    Requests with impossible values are refused and change nothing. Bytes that are no request close
    their connection, and no more requests come from this connection.
    """

    number, name, heading = 52, "bad-input-is-harmless", Heading.LIVENESS
    source, feature, kafka = "reliability 1.3 (52), 2.5", COORDINATOR, Kafka.YES
    errors = frozenset(
        {
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.INVALID_SESSION_TIMEOUT,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ErrorCode.UNSUPPORTED_VERSION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._closed: set[tuple[str, int, ConnectionId]] = set()

    @on(RequestUnreadable)
    def unreadable(self, recorded: Recorded, fact: RequestUnreadable) -> None:
        """A connection is closed because of the bytes that came on it."""
        self._closed.add((recorded.source, recorded.incarnation, fact.connection))
        self.judged += 1

    @on(RequestReceived)
    def asked_again(self, recorded: Recorded, fact: RequestReceived) -> None:
        """No request comes from a closed connection."""
        if self._closed:
            key = (recorded.source, recorded.incarnation, fact.connection)
            if not self.holds(key not in self._closed):
                self.find(
                    f"a request on connection {fact.connection}, which was closed before", recorded
                )
