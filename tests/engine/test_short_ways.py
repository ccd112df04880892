"""Requests that are known by their bytes have the effects of requests that are read in full.

Drawn lives of one group and of a neighbour are played twice: by an engine with all short ways
(ADRs 0005, 0036, 0090, 0105, 0108), and by one without. The outputs, the answers to DescribeGroups
and the state of the coordinator must be equal after each step.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeAlias

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from tests.engine.coordinator_bench import Bench, Client
from tests.engine.test_coordinator_commits import (
    SHAPES,
    fail_first,
    request_of,
    write_together,
)
from tests.examples import examples

from kohort.coordinator.group import Group
from kohort.coordinator.member import Member
from kohort.engine.coordinator_connection import Again, Connection
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.engine.known_requests import Data
from kohort.model.errors import ErrorCode
from kohort.model.instants import Instant
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.wire.messages.k15_describe_groups import DescribeGroupsRequest

EMPTY = bytes(10)
USER_DATA = bytes(9) + b"\1"
TOPIC = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
OTHER_TOPIC = b"\0\0\0\0\0\1\0\1u\0\0\0\0"
DAMAGED = b"\0\0\0\0\0\7\0\1\0\1"

OFFERS: dict[str, list[tuple[str, bytes]]] = {
    "topic": [("range", TOPIC)],
    "other topic": [("range", OTHER_TOPIC)],
    "no topic": [("range", EMPTY)],
    "user data": [("range", USER_DATA)],
    "longer": [("range", TOPIC + b"more")],
    "damaged": [("range", DAMAGED)],
    "other protocol": [("sticky", TOPIC)],
    "two protocols": [("range", TOPIC), ("sticky", EMPTY)],
    "two in another order": [("sticky", EMPTY), ("range", TOPIC)],
    "one protocol twice": [("range", TOPIC), ("range", EMPTY)],
}

Step: TypeAlias = tuple[str, int, int, str]
"""The kind of the step, the number of the seat, a number, and a difference from usual requests."""

SEATS = st.integers(0, 4)
NUMBERS = st.integers(0, 9)
IDENTITIES = [
    "late generation",
    "early generation",
    "id of another",
    "unknown id",
    "no id",
    "no instance",
    "wrong instance",
]


def _steps(what: str, *differences: str) -> st.SearchStrategy[Step]:
    usual = st.just("")
    drawn = st.one_of(usual, usual, st.sampled_from(differences)) if differences else usual
    return st.tuples(st.just(what), SEATS, NUMBERS, drawn)


ROUND: Step = ("round", 0, 0, "")
ROUNDS = _steps("round", "user data", "no topic", "topic")
STEPS = st.lists(
    st.one_of(
        ROUNDS,
        ROUNDS,
        _steps("join all", "user data", "no topic", "two protocols"),
        _steps("sync all", "late generation"),
        _steps("join", *OFFERS, *IDENTITIES, "session", "rebalance", "type", "torn", "twice"),
        _steps("sync", *IDENTITIES, "no plan", "part of a plan", "name", "type", "torn", "twice"),
        _steps("beat", *IDENTITIES, "torn", "twice"),
        _steps("commit", *IDENTITIES, "torn", "twice"),
        _steps("commit all"),
        _steps("beat all"),
        _steps("leave", *IDENTITIES),
        _steps("another process"),
        _steps("replaced process", "no instance", "no instance", "late generation"),
        st.tuples(
            st.sampled_from(["lose", "move", "back", "share", "go on", "write all", "fail"]),
            SEATS,
            NUMBERS,
            st.just(""),
        ),
        st.tuples(st.just("wait"), SEATS, st.integers(0, 70_000), st.just("")),
        st.tuples(st.just("stalled"), SEATS, st.integers(0, 30_000), st.just("")),
    ),
    min_size=8,
    max_size=30,
)

VERSIONS = st.fixed_dictionaries(
    {
        "JoinGroup": st.integers(2, 9),
        "SyncGroup": st.integers(0, 5),
        "Heartbeat": st.integers(0, 4),
        "OffsetCommit": st.integers(2, 9),
        "LeaveGroup": st.integers(0, 5),
    }
)
LATE = {"JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4, "OffsetCommit": 9, "LeaveGroup": 5}
_STATIC_FROM = {
    "JoinGroup": 5,
    "SyncGroup": 3,
    "Heartbeat": 3,
    "OffsetCommit": 7,
    "LeaveGroup": 3,
}
"""The first version with a field for the instance id."""


class ShortEngine(CoordinatorEngine):
    """Counts the requests that took a short way, by API key and effect."""

    served: ClassVar[Counter[str]] = Counter()

    def again(self, known: Connection, data: Data, now: Instant) -> Again | None:
        outputs = super().again(known, data, now)
        if outputs is not None:
            key = int.from_bytes(bytes(data[4:6]), "big")
            self.served[f"{key} {'at once' if outputs else 'parked'}"] += 1
        return outputs

    def _beat_again(self, *args: Any) -> bytes | None:
        reply = super()._beat_again(*args)
        self.served["beat"] += reply is not None
        return reply


class LongEngine(CoordinatorEngine):
    _kept_apis = frozenset()


class LongRecordingEngine(RecordingCoordinatorEngine):
    _kept_apis = frozenset()


class Life(Bench):
    """A bench with seats. The journal also has the coordinator's state after each step."""

    def __init__(
        self,
        engine: type[CoordinatorEngine],
        versions: list[dict[str, int]],
        static: set[int],
        config: dict[str, Any],
        **more: Any,
    ) -> None:
        self._make = engine
        super().__init__(config=config, **more)
        self.seats = [
            Seat(self.client(f"c{n % 2}", **self._versions(v, static=n in static)), f"x{n}")
            for n, v in enumerate(versions)
        ]
        for n, seat in enumerate(self.seats):
            seat.instance = seat.instance if n in static else None
            seat.group = "g" if n < 4 else "h"
        self.admin = self.client("admin")

    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        return self._make(*args, **more)

    def _versions(self, versions: dict[str, int], *, static: bool) -> dict[str, int]:
        if not static:
            return versions
        return {name: max(low, versions[name]) for name, low in _STATIC_FROM.items()}

    def play(self, steps: list[Step]) -> list[str]:
        for step in [ROUND, ROUND, *steps]:
            self.step(*step)
            self.admin.send("DescribeGroups", DescribeGroupsRequest(groups=["g", "h"]))
            self.journal.append(f"{step} {state_of(self.engine)}")
        write_together(self)
        self.wait(600_000)
        self.journal.append(f"log {self.stored}")
        return self.journal

    def step(self, what: str, who: int, number: int, other: str) -> None:
        seat = self.seats[who]
        match what:
            case "round":
                self._each("join", number, other)
                write_together(self)
                self.wait(1)
                self._each("sync", number, "")
                write_together(self)
            case "join all" | "sync all" | "beat all":
                self._each(what.split(maxsplit=1)[0], number, other)
            case "commit all":
                for offset in (number, 8, number):
                    self._each("commit", offset, other)
                    write_together(self)
            case "another process":
                seat.replaced = replace(seat, joins=[])
                seat.client, seat.member_id = self._connect(seat), ""
                seat.say("join", number, "")
            case "replaced process" if seat.replaced is not None:
                seat.replaced.say("beat" if number % 3 == 0 else "commit", number, other)
            case "join" | "sync" | "beat" | "commit" | "leave":
                seat.say(what, number, other, self._other(number).member_id)
            case _:
                self._step_of_the_shell(what, number)
                self._step_of_connections(what, seat, number)

    def _step_of_the_shell(self, what: str, number: int) -> None:
        match what:
            case "write all":
                write_together(self)
            case "fail":
                fail_first(self)
            case "go on":
                self.carry_out(self.engine.go_on(self.now))
            case "wait":
                self.wait(number)
            case "stalled":
                self.now = Instant(self.now + number * 1_000)
                self.carry_out(self.engine.stalled(number * 1_000, self.now))
            case _:
                pass

    def _step_of_connections(self, what: str, seat: Seat, number: int) -> None:
        match what:
            case "lose":
                self.carry_out(self.engine.lost(seat.client.conn, self.now))
                seat.client.closed = "lost"
                seat.former, seat.client = seat.client, self._connect(seat)
            case "move":
                seat.former, seat.client = seat.client, self._connect(seat)
            case "back":
                seat.former, seat.client = seat.client, seat.former
            case "share":
                seat.client = self._other(number).client
            case _:
                pass

    def _connect(self, seat: Seat) -> Client:
        return self.client(seat.client.name, **seat.client.versions)

    def _other(self, number: int) -> Seat:
        return self.seats[number % len(self.seats)]

    def _each(self, what: str, number: int, other: str) -> None:
        for at in range(len(self.seats)):  # each round begins with another member
            self.seats[(at + number) % len(self.seats)].say(what, number, other)

    def wait(self, millis: int) -> None:
        super().wait(millis)
        while self.engine.has_more:
            self.carry_out(self.engine.go_on(self.now))


@dataclass
class Seat:
    """A process with a membership. It knows what its answers said."""

    client: Client
    instance: str | None
    group: str = "g"
    member_id: str = ""
    generation: int = 0
    plan: dict[str, bytes] = field(default_factory=dict)
    joins: list[tuple[Client, int]] = field(default_factory=list)
    handed_out: bool = False
    """The last answer to a join was a member id to join with."""
    former: Client = field(init=False)
    replaced: Seat | None = field(init=False, default=None)
    """The process before this one, which still runs."""

    def __post_init__(self) -> None:
        self.former = self.client

    def learn(self) -> None:
        """Read the answers to the joins of this process."""
        for client, at in list(self.joins):
            if at >= len(client.answers):
                continue
            self.joins.remove((client, at))
            answer = client.answers[at]
            self.handed_out = answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            if answer.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
                self.member_id = answer.member_id
            elif answer.error_code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
                self.member_id = ""
            if answer.error_code == ErrorCode.NONE:
                self.generation = answer.generation_id
                self.plan = {m.member_id: b"p" + m.metadata for m in answer.members}

    def say(self, what: str, number: int, other: str, id_of_another: str = "") -> None:
        self.learn()
        client = self.client
        if client.closed:
            return
        api, message = getattr(self, f"_{what}")(number, other)
        _make_different(message, other, id_of_another)
        if api == "LeaveGroup":
            message = self._whole_leave(message)
        elif client.versions[api] < _STATIC_FROM[api]:
            message.group_instance_id = None
        frame = client.frame(api, message)
        if what == "join":
            self.joins.append((client, len(client._sent) - 1))
        if other == "torn":
            client.push(frame[: 9 * number])
            client.push(frame[9 * number :])
        elif other == "twice":
            client.push(frame + client.frame(api, message))
        else:
            client.push(frame)
        had = self.member_id
        self.learn()
        if what == "join" and not other and had != self.member_id and self.handed_out:
            self.say("join", number, other)

    def _whole_leave(self, entry: MemberIdentity) -> LeaveGroupRequest:
        if self.client.versions["LeaveGroup"] < _STATIC_FROM["LeaveGroup"]:
            return LeaveGroupRequest(group_id=self.group, member_id=entry.member_id)
        return LeaveGroupRequest(group_id=self.group, members=[entry])

    def _join(self, number: int, other: str) -> tuple[str, Any]:
        offers = OFFERS.get(other, OFFERS["topic"])
        return "JoinGroup", JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=11_000 if other == "session" else 10_000,
            rebalance_timeout_ms=30_000 if other == "rebalance" else 60_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="connect" if other == "type" else "consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data[:-1] + bytes([number]))
                for name, data in offers
            ],
        )

    def _sync(self, number: int, other: str) -> tuple[str, Any]:
        plan = {} if other == "no plan" else self.plan
        if other == "part of a plan":
            plan = dict(list(plan.items())[number % 2 :: 2])
        elif number == 9:
            plan = dict.fromkeys(plan, b"long" * 9)
        return "SyncGroup", SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="connect" if other == "type" else "consumer",
            protocol_name="sticky" if other == "name" else "range",
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in plan.items()
            ],
        )

    def _beat(self, _number: int, _other: str) -> tuple[str, Any]:
        return "Heartbeat", HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )

    def _commit(self, number: int, _other: str) -> tuple[str, Any]:
        return "OffsetCommit", request_of(
            SHAPES[2 if number == 9 else 0],
            number,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )

    def _leave(self, _number: int, _other: str) -> tuple[str, Any]:
        return "LeaveGroup", MemberIdentity(
            member_id=self.member_id, group_instance_id=self.instance
        )


def _make_different(message: Any, other: str, id_of_another: str) -> None:
    """Change the ids or the generation of a request."""
    match other:
        case "late generation" | "early generation":
            for name in ("generation_id", "generation_id_or_member_epoch"):
                if hasattr(message, name):
                    step = -1 if other == "late generation" else 1
                    setattr(message, name, getattr(message, name) + step)
        case "id of another":
            message.member_id = id_of_another
        case "unknown id":
            message.member_id = "c0-99"
        case "no id":
            message.member_id = ""
        case "no instance":
            message.group_instance_id = None
        case "wrong instance" if message.group_instance_id is not None:
            message.group_instance_id = "x9"


def state_of(engine: CoordinatorEngine) -> str:
    """All that the coordinator knows, without tokens: a refusal of a short way may use one up."""
    registry = engine._coordinator._registry
    lines = [repr({name: _plain(group) for name, group in registry.groups.items()})]
    deadlines = sorted(registry.deadlines._live.values(), key=lambda d: (d.at, d.sequence))
    lines.append(repr([(deadline.key, deadline.at) for deadline in deadlines]))
    lines.append(repr(sorted(member.member_id for member in registry.parked.values())))
    lines.append(repr([(ticket, write.purpose) for ticket, write in registry.writes.items()]))
    return "\n".join(lines)


def _plain(part: Group | Member) -> dict[str, Any]:
    state = {f.name: getattr(part, f.name) for f in fields(part)}
    if isinstance(part, Group):
        members = {name: _plain(member) for name, member in part.members.items()}
        offsets = part.offsets
        return state | {"members": members, "offsets": (offsets.durable, offsets.writes)}
    session = part.session
    parked = {name: state[name] is not None for name in ("parked_join", "parked_sync")}
    return state | parked | {"session": session and session.at}


LIVES: dict[str, Any] = {
    "steps": STEPS,
    "versions": st.lists(VERSIONS, min_size=5, max_size=5),
    "static": st.sets(st.integers(0, 3), max_size=2),
    "config": st.sampled_from([{}, {}, {"max_size": 3}]),
    "at_once": st.sampled_from([sys.maxsize, 2]),
}


def test_all_short_ways_give_the_results_of_the_long_way() -> None:
    ShortEngine.served.clear()

    @example(
        steps=[ROUND, *[(what, 0, 0, "") for what in ("sync all", "beat all", "commit all") * 2]],
        versions=[LATE] * 5,
        static=set(),
        config={},
        at_once=sys.maxsize,
    )
    @examples(100)
    @given(**LIVES)
    def play_twice(steps: list[Step], at_once: int, **life: Any) -> None:
        more: dict[str, Any] = {"answers_at_once": at_once, "details": lambda: False}
        short, long = Life(ShortEngine, **life, **more), Life(LongEngine, **life, **more)
        assert short.play(steps) == long.play(steps)

    play_twice()
    taken = {"8 at once", "11 parked", "14 parked", "14 at once", "beat"}
    assert set(ShortEngine.served) >= taken, "each short way was taken"


@examples(20)
@given(**LIVES)
def test_a_history_is_the_same_with_short_ways(
    steps: list[Step], at_once: int, **life: Any
) -> None:
    more: dict[str, Any] = {"answers_at_once": at_once}
    short = Life(RecordingCoordinatorEngine, **life, **more)
    assert short.play(steps) == Life(LongRecordingEngine, **life, **more).play(steps)


@pytest.mark.parametrize("engine", [ShortEngine, LongEngine])
@pytest.mark.parametrize("what", ["commit", "beat"])
def test_a_replaced_static_member_is_refused_also_without_its_instance_id(
    engine: type[CoordinatorEngine], what: str
) -> None:
    """Such a process must not store offsets over those of the process that replaced it."""
    life = Life(engine, [LATE] * 5, {0, 1}, {}, details=lambda: False)
    for step in [ROUND, ROUND, *[(what, 1, 1, "no instance"), ("write all", 0, 0, "")] * 3]:
        life.step(*step)
    life.step("another process", 1, 0, "")
    write_together(life)
    new, old = life.seats[1], life.seats[1].replaced
    assert old is not None
    new.learn()
    assert new.member_id != old.member_id
    assert new.generation == old.generation
    old.say(what, 2, "no instance")
    write_together(life)
    answer = old.client.answers[-1]
    told = answer.error_code if what == "beat" else answer.topics[0].partitions[0].error_code
    assert told == ErrorCode.UNKNOWN_MEMBER_ID
