"""Every public method of ``Consumer`` in every state, with right and with wrong arguments.

The table is generated from `CALLS`, `WRONG` and `RAISES`. No cell hangs, stays silent or ends the
membership. A wrong argument raises in the caller's thread and changes nothing.
"""

from __future__ import annotations

import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, TypeAlias, cast

import confluent_kafka
import pytest
from tests.client.one_consumer import read
from tests.client.stage import QUICK
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import ClientError, Closed, CommitFailed, Fenced, WrongUse
from kohort.client.listeners import RebalanceListener
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
C0 = confluent_kafka.TopicPartition("t", 0)
RECORD = confluent_kafka.Message(topic="t", partition=0, offset=3)
LONGEST_S: Final = 15.0
"""Longest time of a call; ``default.api.timeout.ms`` is longer, so that a wait is noticed."""

Method: TypeAlias = Callable[[Any], object]

CALLS: Final[dict[str, Method]] = {
    "subscription": lambda c: c.subscription(),
    "assignment": lambda c: c.assignment(),
    "paused": lambda c: c.paused(),
    "drained": lambda c: c.drained,
    "waits": lambda c: c.waits(),
    "status": lambda c: c.status(),
    "metrics": lambda c: c.metrics(),
    "settings": lambda c: c.settings,
    "enforce_rebalance": lambda c: c.enforce_rebalance("a test"),
    "position": lambda c: c.position(T0),
    "position of a pair": lambda c: c.position(("t", 0)),
    "position of confluent's": lambda c: c.position(C0),
    "seek": lambda c: c.seek(C0, 3),
    "pause": lambda c: c.pause([T0]),
    "pause_until": lambda c: c.pause_until([T0], 0),
    "retry": lambda c: c.retry(RECORD),
    "resume": lambda c: c.resume([("t", 0)]),
    "commit": lambda c: c.commit(),
    "commit of offsets": lambda c: c.commit({C0: 1, ("t", 1): Position(2)}),
    "commit asynchronously": lambda c: c.commit({T0: 1}, asynchronous=True),
    "committed": lambda c: c.committed([C0, T1]),
    "partitions_for": lambda c: c.partitions_for("t"),
    "beginning_offsets": lambda c: c.beginning_offsets([C0]),
    "end_offsets": lambda c: c.end_offsets([("t", 0), T1]),
    "offsets_for_times": lambda c: c.offsets_for_times({C0: 0}),
    "lag": lambda c: c.lag(),
    "lag of a partition": lambda c: c.lag([C0]),
    "seek_to_beginning": lambda c: c.seek_to_beginning(),
    "seek_to_beginning of a partition": lambda c: c.seek_to_beginning([("t", 0)]),
    "seek_to_end": lambda c: c.seek_to_end([]),
    "poll": lambda c: c.poll(0.05),
    "consume": lambda c: c.consume(5, 0.05),
    "iterate": lambda c: next(iter(c)),
    "batches": lambda c: next(c.batches(5, 0.05)),
    "poll_arrow": lambda c: c.poll_arrow(0.05, 5),
    "drain": lambda c: c.drain(),
    "report_warm": lambda c: c.report_warm([T0]),
    "report_cold": lambda c: c.report_cold([T0]),
    "subscribe": lambda c: c.subscribe(["t", "u"]),
    "assign": lambda c: c.assign([T0]),
    "unsubscribe": lambda c: c.unsubscribe(),
    "close": lambda c: c.close(),
}
"""Each method with right arguments; the last ones change the state."""

CHANGES: Final = frozenset(
    {
        "poll",
        "consume",
        "iterate",
        "batches",
        "poll_arrow",
        "drain",
        "subscribe",
        "assign",
        "unsubscribe",
        "close",
    }
)
READS: Final = frozenset(
    {"subscription", "assignment", "paused", "drained", "waits", "status", "metrics", "settings"}
)

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def each(*values: Any) -> list[Arguments]:
    """Calls with one argument."""
    return [((value,), {}) for value in values]


def given(*args: Any, **more: Any) -> Arguments:
    return args, more


NOT_SECONDS: Final = ("soon", None, -1, math.nan)
NOT_ASSIGNED: Final = ("t", ["t"], None, [5], T0, [("t", 9)])

WRONG: Final[dict[str, list[Arguments]]] = {
    "subscribe": [
        *each("t", [], [1], None, 5, [""], ["\ud800"], ["t" * 40_000], re.compile(b"t")),
        given(["t"], object()),
        given(["t"], on_assign=5),
        given(["t"], RebalanceListener(), on_lost=print),
    ],
    "assign": each("t", ["t"], None, [5], T0),
    "enforce_rebalance": each(None, 5, "r" * 40_000),
    "position": [
        *each("t", ("t",), ("t", "0"), None, ("t", -1), ("t", 2**40)),
        given(T0, "soon"),
    ],
    "seek": [
        *(given(T0, offset) for offset in ("5", None, -1, True, 1.5, 2**63)),
        given("t", 5),
    ],
    "pause": each(*NOT_ASSIGNED),
    "resume": each(*NOT_ASSIGNED),
    "pause_until": [
        *(given(wrong, 0) for wrong in NOT_ASSIGNED),
        *(given([T0], seconds) for seconds in NOT_SECONDS),
    ],
    "retry": [
        *each(None, 5, T0),
        *(given(RECORD, most) for most in (0, -1, "5", 1.5)),
        *(given(RECORD, backoff=seconds) for seconds in NOT_SECONDS),
    ],
    "commit": [
        *each(5, [T0], {"t": 5}, {("t", "0"): 1}),
        *each(*({T0: offset} for offset in ("5", -1, None, 2**63, Position(1, cast("int", "x"))))),
        *each({T0: Position(1, metadata="m" * 40_000)}),
        given({T0: 1}, callback=print),
        given({T0: 1}, asynchronous=True, callback=5),
    ],
    "committed": [*each("t", ["t"], [5], None, T0), given([T0], "soon")],
    "partitions_for": each(None, 5, ["t"], ""),
    "beginning_offsets": each("t", ["t"], [5], None, T0),
    "end_offsets": each("t", ["t"], [5], None, T0),
    "offsets_for_times": each(5, [T0], {"t": 5}, *({T0: at} for at in (-1, "5", None, 2**63))),
    "lag": each(*(wrong for wrong in NOT_ASSIGNED if wrong is not None)),
    "seek_to_beginning": each(*(wrong for wrong in NOT_ASSIGNED if wrong is not None)),
    "seek_to_end": each(*(wrong for wrong in NOT_ASSIGNED if wrong is not None)),
    "poll": each(*NOT_SECONDS),
    "consume": [
        *(given(number, 0.05) for number in (0, -1, "5", 1.5, True, None)),
        *(given(5, timeout) for timeout in NOT_SECONDS),
    ],
    "batches": [
        *(given(number, 0.05) for number in (0, -1, "5", 1.5, True, None)),
        *(given(5, wait) for wait in NOT_SECONDS),
    ],
    "poll_arrow": [
        *(given(0.05, number) for number in (0, -1, "5", 1.5, True, None)),
        *each(*NOT_SECONDS),
    ],
    "report_warm": each("t", ["t"], [5], None, T0),
    "report_cold": each("t", ["t"], [5], None, T0),
    "close": each(*NOT_SECONDS),
}
"""Each method with wrong arguments."""


def broker_of_the_table() -> Iterator[str]:
    """A broker with the topics t (two partitions) and u (one), a hundred records in each."""
    settings: dict[str, Any] = {"group.initial.rebalance.delay.ms": 0}
    with EmbeddedBroker(**settings) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 2, 1)
            admin.create_topic("u", 1, 1)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(300):
            producer.produce("u" if number % 3 == 2 else "t", b"x", partition=number % 3 % 2)
        assert producer.flush(30) == 0
        yield broker.bootstrap_servers


bootstrap = pytest.fixture(scope="module")(broker_of_the_table)

# -- states ---------------------------------------------------------------------------------------


class Stage:
    """Brings consumers of a group of their own into a state; closes them at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {
            **QUICK,
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{uuid.uuid4().hex[:8]}",
            "default.api.timeout.ms": 20_000,
        }
        self._open = ExitStack()

    def make(self, **more: object) -> Consumer:
        consumer = Consumer({**self._settings, **more})
        self._open.enter_context(suppress(Fenced))
        return self._open.enter_context(consumer)

    def close(self) -> None:
        self._open.close()

    def unsubscribed(self, use: Callable[[Consumer], None]) -> None:
        use(self.make())

    def joining(self, use: Callable[[Consumer], None]) -> None:
        consumer = self.make()
        consumer.subscribe(["t"])
        use(consumer)

    def owning(self, use: Callable[[Consumer], None]) -> None:
        consumer = self.make()
        consumer.subscribe(["t"])
        read(consumer, 2)
        use(consumer)

    def revoking(self, use: Callable[[Consumer], None]) -> None:
        """The subscription names t no more, and no poll has called on_revoke yet."""
        consumer = self.make()
        consumer.subscribe(["t"])
        read(consumer, 2)
        consumer.subscribe(["u"])
        use(consumer)

    def fenced(self, use: Callable[[Consumer], None]) -> None:
        consumer, other = (self.make(**{"group.instance.id": "one"}) for _ in range(2))
        consumer.subscribe(["t"])
        read(consumer, 2)
        other.subscribe(["t"])
        read(other, 1)
        with pytest.raises(Fenced):
            read(consumer, 500)
        use(consumer)

    def closed(self, use: Callable[[Consumer], None]) -> None:
        consumer = self.make()
        consumer.close()
        use(consumer)

    def in_on_assign(self, use: Callable[[Consumer], None]) -> None:
        consumer = self.make()
        self._in_callback(consumer, use, "on_assign")

    def in_on_revoke(self, use: Callable[[Consumer], None]) -> None:
        consumer = self.make()
        consumer.subscribe(["t"])
        read(consumer, 2)
        self._in_callback(consumer, use, "on_revoke")

    def _in_callback(self, consumer: Consumer, use: Callable[[Consumer], None], name: str) -> None:
        called: list[bool] = []

        def call(consumer: Consumer, _: object) -> None:
            if not called:
                called.append(True)
                use(consumer)

        topics = ["t"] if name == "on_assign" else ["u"]
        consumer.subscribe(topics, **{name: call})  # type: ignore[arg-type]
        until(lambda: (consumer.poll(0.02), called)[1], f"{name} was called")

    def second_thread(self, use: Callable[[Consumer], None]) -> None:
        """Another thread is inside poll, in on_assign."""
        consumer = self.make()
        inside, done = threading.Event(), threading.Event()

        def hold(*_: object) -> None:
            inside.set()
            assert done.wait(20)

        def polls() -> None:
            consumer.subscribe(["t"], on_assign=hold)
            until(lambda: (consumer.poll(0.02), done.is_set())[1], "the use is over")

        thread = threading.Thread(target=polls)
        thread.start()
        assert inside.wait(20)
        try:
            use(consumer)
        finally:
            done.set()
            thread.join()


NEEDS_ASSIGNMENT: Final = frozenset({call for call in CALLS if call.startswith("position")}) | {
    "lag of a partition",
    "seek_to_beginning of a partition",
    "seek",
    "pause",
    "pause_until",
    "resume",
}
NEEDS_SUBSCRIPTION: Final = frozenset(
    {"poll", "consume", "iterate", "batches", "poll_arrow", "enforce_rebalance"}
)
RAISES: Final[dict[str, dict[type[Exception], frozenset[str]]]] = {
    "unsubscribed": {WrongUse: NEEDS_ASSIGNMENT | NEEDS_SUBSCRIPTION | {"drain"}},
    "joining": {
        WrongUse: NEEDS_ASSIGNMENT | {"assign"},
        CommitFailed: frozenset({"commit of offsets"}),
    },
    "owning": {WrongUse: frozenset({"assign"})},
    "revoking": {WrongUse: frozenset({"assign"})},
    "fenced": {
        WrongUse: NEEDS_ASSIGNMENT | {"assign"},
        Fenced: NEEDS_SUBSCRIPTION,
        ClientError: frozenset({"commit of offsets"}),
    },
    "closed": {Closed: frozenset(CALLS) - READS - {"close"}},
    "in_on_assign": {WrongUse: CHANGES - {"subscribe", "drain"}},
    "in_on_revoke": {WrongUse: CHANGES - {"subscribe", "drain"}},
    "second_thread": {WrongUse: frozenset(CALLS) - READS - {"report_warm", "report_cold"}},
}
"""The calls that raise in each state; all others succeed."""


@contextmanager
def unharmed(consumer: Consumer) -> Iterator[None]:
    """Check that a call ends soon, and that the driver's thread survives the call."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < LONGEST_S, "the call waited"
    assert consumer._thread.error is None, "the membership ended"


def error_of(state: str, call: str) -> type[Exception] | None:
    return next((kind for kind, calls in RAISES[state].items() if call in calls), None)


def changes(state: str, call: str) -> bool:
    """Whether the call changes the state; a refused call changes nothing."""
    return call in CHANGES and error_of(state, call) not in {WrongUse, Closed}


def cell(state: str, call: str, consumer: Consumer) -> None:
    """One call with right arguments."""
    wanted = error_of(state, call)
    with unharmed(consumer):
        if wanted is None:
            CALLS[call](consumer)
            return
        if (state, wanted) == ("joining", CommitFailed):  # the member's thread may have joined
            with suppress(CommitFailed):
                CALLS[call](consumer)
            return
        with pytest.raises(wanted) as caught:
            CALLS[call](consumer)
    assert str(caught.value), "an error says something"


def test_the_table_has_every_public_name() -> None:
    names = {name for name in dir(Consumer) if not name.startswith("_")}
    assert names <= {call.partition(" ")[0] for call in CALLS}


@pytest.mark.parametrize("state", RAISES)
def test_calls_that_change_no_state(bootstrap: str, state: str) -> None:
    """One consumer takes all of these calls."""
    stage = Stage(bootstrap)

    def use(consumer: Consumer) -> None:
        for call in CALLS:
            if not changes(state, call):
                cell(state, call, consumer)

    try:
        getattr(stage, state)(use)
    finally:
        stage.close()


@pytest.mark.parametrize(
    ("state", "call"),
    [(state, call) for state in RAISES for call in sorted(CHANGES) if changes(state, call)],
)
def test_calls_that_change_the_state(bootstrap: str, state: str, call: str) -> None:
    stage = Stage(bootstrap)
    try:
        getattr(stage, state)(lambda consumer: cell(state, call, consumer))
    finally:
        stage.close()


@pytest.mark.parametrize("state", RAISES)
def test_wrong_arguments_raise_in_the_callers_thread_and_change_nothing(
    bootstrap: str, state: str
) -> None:
    stage = Stage(bootstrap)

    def use(consumer: Consumer) -> None:
        before = facts(consumer)
        for call, wrong in WRONG.items():
            for args, more in wrong:
                with (
                    unharmed(consumer),
                    pytest.raises((TypeError, ValueError, WrongUse)) as caught,
                ):
                    getattr(consumer, call)(*args, **more)
                assert str(caught.value)
        assert facts(consumer) == before
        if state in ("joining", "owning", "revoking"):
            read(consumer, 1)

    def facts(consumer: Consumer) -> object:
        positions = []
        if state in ("owning", "revoking"):
            positions = [consumer.position(tp) for tp in (T0, T1)]
        return consumer.subscription(), consumer.assignment(), consumer.paused(), positions

    try:
        getattr(stage, state)(use)
    finally:
        stage.close()
