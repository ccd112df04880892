"""The driver between a core and the member engine: requests and the meaning of their answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort.consumer.effects import CommitOffsets, FetchOffsets, ListOffsets
from kohort.consumer.events import CommitAnswered, OffsetsCommitted, OffsetsFetched, OffsetsListed
from kohort.engine import member_outputs as engine
from kohort.engine.consumer_driver import READ_COMMITTED, READ_UNCOMMITTED, ConsumerDriver
from kohort.engine.member_engine import MemberEngine
from kohort.engine.member_outputs import (
    Answered,
    Committed,
    LeadersOf,
    RequestError,
    RequestErrorKind,
)
from kohort.member.requests import RequestId
from kohort.model.client_facts import CommitConcluded, CommitSent
from kohort.model.errors import ErrorCode
from kohort.model.ids import NO_GENERATION, NO_MEMBER, ConnectionId, TopicPartition
from kohort.model.instants import Instant
from kohort.model.positions import Position
from kohort.wire.messages import k02_list_offsets as k02

NOW = Instant(1_000_000)
P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
ASK = RequestId(7)
UNAUTHORIZED = RequestError(
    kind=RequestErrorKind.UNAVAILABLE,
    message="no right",
    code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
)
TIMED_OUT = RequestError(kind=RequestErrorKind.TIMED_OUT, message="no answer")


class Member:
    """A member engine that notes requests; a test answers them."""

    core = SimpleNamespace(
        config=SimpleNamespace(group_id="g"),
        member_id=NO_MEMBER,
        synced_generation_id=NO_GENERATION,
        sure_until=None,
    )

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: list[Any] = []

    def _ask(self, asked: object) -> tuple[RequestId, list[Any]]:
        self.asked.append(asked)
        return ASK, []

    def request(self, where: object, message: object, now: Instant) -> tuple[RequestId, list[Any]]:
        return self._ask(message)

    def request_leaders(
        self, request_class: type, where: LeadersOf, now: Instant
    ) -> tuple[RequestId, list[Any]]:
        return self._ask(where.build(where.partitions, 7))

    def fetch_offsets(self, partitions: object, now: Instant) -> tuple[RequestId, list[Any]]:
        return self._ask(partitions)

    def commit(self, offsets: object, now: Instant) -> tuple[RequestId, list[Any]]:
        return self._ask(offsets)

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> list[Any]:
        return self.answers


class Core:
    """A core that wants one effect and notes the events."""

    without_group = False

    def __init__(self, effect: object = None) -> None:
        self.effect = effect
        self.events: list[Any] = []

    def handle(self, event: object, now: Instant) -> list[Any]:
        self.events.append(event)
        return [self.effect] if event == "go" else []

    def advance(self, now: Instant) -> list[Any]:
        return []

    def next_deadline(self) -> None:
        return None

    def check(self) -> None: ...


class World:
    """A driver between both."""

    def __init__(self, effect: object = None, **more: Any) -> None:
        self.member, self.core = Member(), Core(effect)
        self.facts: list[Any] = []
        self.driver = ConsumerDriver(
            cast("MemberEngine", self.member), self.core, observe=self.facts.append, **more
        )

    def answer(self, output: object) -> list[Any]:
        self.member.answers = [output]
        return self.driver.received(ConnectionId(1), b"", NOW)

    def asked(self, answer: object) -> Any:
        """The event that the core gets for an answer to its request."""
        self.driver.handle("go", NOW)
        self.answer(answer)
        return self.core.events[-1]


def listing(code: ErrorCode) -> Answered:
    partition = k02.ListOffsetsPartitionResponse(
        partition_index=0, error_code=code, offset=33, leader_epoch=4
    )
    topic = k02.ListOffsetsTopicResponse(name="t", partitions=[partition])
    message = k02.ListOffsetsResponse(topics=[topic])
    return Answered(request_id=ASK, message=message, partitions=(P,))


LIST = ListOffsets(request=1, partitions=frozenset({P}), earliest=False)
FETCH = FetchOffsets(request=1, partitions=frozenset({P, Q}))
COMMIT = CommitOffsets(request=1, offsets={P: Position(5)})


@pytest.mark.parametrize("level", [READ_UNCOMMITTED, READ_COMMITTED])
def test_lookups_of_offsets_have_the_isolation_level(level: int) -> None:
    world = World(LIST, isolation_level=level)
    world.driver.handle("go", NOW)
    assert [message.isolation_level for message in world.member.asked] == [level]


@pytest.mark.parametrize(
    ("answer", "offsets", "fatal"),
    [
        (listing(ErrorCode.NONE), {P: Position(33, 4)}, None),
        (listing(ErrorCode.NOT_LEADER_OR_FOLLOWER), {}, None),
        (
            listing(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            {},
            "offset of t-0: TOPIC_AUTHORIZATION_FAILED",
        ),
        (Answered(request_id=ASK, error=TIMED_OUT, partitions=(P,)), {}, None),
        (Answered(request_id=ASK, error=UNAUTHORIZED, partitions=(P,)), {}, "no right"),
    ],
)
def test_failed_lookup_of_an_offset_is_repeated_unless_it_is_permanent(
    answer: Answered, offsets: dict[TopicPartition, Position], fatal: str | None
) -> None:
    failed = frozenset[TopicPartition]() if offsets else frozenset({P})
    assert World(LIST).asked(answer) == OffsetsListed(
        request=1, offsets=offsets, failed=failed, fatal=fatal
    )


def test_each_leader_of_listed_partitions_answers_for_its_own() -> None:
    world = World(ListOffsets(request=1, partitions=frozenset({P, Q}), earliest=False))
    assert world.asked(listing(ErrorCode.NONE)) == OffsetsListed(
        request=1, offsets={P: Position(33, 4)}, failed=frozenset(), fatal=None
    )
    world.answer(Answered(request_id=ASK, error=TIMED_OUT, partitions=(Q,)))
    assert world.core.events[-1].failed == {Q}
    assert not world.driver._under_way


@pytest.mark.parametrize(
    ("refused", "error", "fatal"),
    [
        ({P: ErrorCode.UNSTABLE_OFFSET_COMMIT}, None, None),
        (
            {P: ErrorCode.TOPIC_AUTHORIZATION_FAILED},
            None,
            "offset of t-0: TOPIC_AUTHORIZATION_FAILED",
        ),
        ({}, TIMED_OUT, None),
        ({}, UNAUTHORIZED, "no right"),
    ],
)
def test_failed_fetch_of_committed_offsets_is_repeated_unless_it_is_permanent(
    refused: dict[TopicPartition, ErrorCode], error: RequestError | None, fatal: str | None
) -> None:
    answer = engine.OffsetsFetched(request_id=ASK, refused=refused, error=error)
    assert World(FETCH).asked(answer) == OffsetsFetched(
        request=1, offsets={}, failed=frozenset({P, Q}), fatal=fatal
    )


def test_a_partition_without_a_commit_has_no_position() -> None:
    answer = engine.OffsetsFetched(request_id=ASK, offsets={P: Position(9)})
    assert World(FETCH).asked(answer).offsets == {P: Position(9), Q: None}


def test_automatic_commit_leaves_as_a_fact_and_its_failure_is_a_completion() -> None:
    world = World(COMMIT)
    answer = Committed(request_id=ASK, error=TIMED_OUT)
    assert world.asked(answer) == CommitAnswered(request=1, failed=True)
    sent, concluded = world.facts
    assert (type(sent), type(concluded)) == (CommitSent, CommitConcluded)
    assert sent.request == concluded.request


def test_commit_of_the_application_is_a_completion_and_the_core_notes_accepted_offsets() -> None:
    world = World()
    request_id, _ = world.driver.commit({P: Position(5), Q: Position(6)}, NOW)
    answer = Committed(request_id=request_id, refused={Q: ErrorCode.OFFSET_METADATA_TOO_LARGE})
    assert world.answer(answer) == [answer]
    assert world.core.events == [OffsetsCommitted(offsets={P: Position(5)})]


def test_fetch_of_the_application_is_a_completion_without_an_event() -> None:
    world = World()
    request_id, _ = world.driver.fetch_offsets([P], NOW)
    answer = engine.OffsetsFetched(request_id=request_id)
    assert world.answer(answer) == [answer]
    assert world.core.events == []
