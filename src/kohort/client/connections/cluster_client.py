"""A blocking client of a cluster: requests to a node, the controller or leaders, with retries.

In: settings, request messages, deadlines. Out: responses, or an exception that names the broker and
the request. Must not know: the meaning of a request.
"""

from __future__ import annotations

import random
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from kohort.client.config import ClientSettings
from kohort.client.connections.answer_checks import NotRetried, check, check_leaders
from kohort.client.connections.client_loop import ClientLoop
from kohort.client.connections.opening import bootstrap_of, connection_settings, transport_of
from kohort.client.errors import ClientError, ConnectionsRefused
from kohort.client.failures import request_failure
from kohort.engine.cluster import metadata_request
from kohort.engine.cluster_engine import ClusterEngine
from kohort.engine.connections import RouterSettings
from kohort.engine.coordinator_lookup import find_request
from kohort.engine.member_outputs import Answered, LeadersOf, Node, Output, Target, Versioned, Where
from kohort.member.requests import RequestId
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant, Millis
from kohort.model.memory import Memory, plain_memory
from kohort.wire.messages.k10_find_coordinator import FindCoordinatorRequest

T = TypeVar("T")


class RetryWaits:
    """The deadline of a call with retries, and the wait before each retry.

    Until a broker was reached, ``socket.connection.setup.timeout.ms`` is the limit instead of
    ``default.api.timeout.ms``: the address is probably wrong.
    """

    def __init__(self, settings: ClientSettings, *, reached: bool) -> None:
        limit_ms = settings.default_api_timeout_ms
        if not reached:
            limit_ms = min(limit_ms, settings.socket_connection_setup_timeout_ms)
        self.deadline = time.monotonic() + limit_ms / 1_000
        """On ``time.monotonic``."""
        self._wait_s = settings.retry_backoff_ms / 1_000
        self._longest_s = settings.retry_backoff_max_ms / 1_000

    def wait_after(self, error: Exception) -> float:
        """The seconds to wait before the next try; raises the error if no try may follow."""
        if isinstance(error, NotRetried):
            raise error.error from None
        wait = self._wait_s
        retriable = isinstance(error, ClientError) and error.retriable
        over = time.monotonic() + wait >= self.deadline
        if over or not retriable or isinstance(error, ConnectionsRefused):
            raise error
        self._wait_s = min(2 * wait, self._longest_s)
        return wait


def cluster_engine(settings: ClientSettings, memory: Memory = plain_memory) -> ClusterEngine:
    """The engine of a client with these settings.

    Raises:
        ConfigError: no bootstrap server.
    """
    return ClusterEngine(
        bootstrap_of(settings),
        entropy=random.Random(),
        settings=RouterSettings(
            request_timeout_ms=Millis(settings.request_timeout_ms),
            retry_backoff_ms=Millis(settings.retry_backoff_ms),
            retry_backoff_max_ms=Millis(settings.retry_backoff_max_ms),
            allow_auto_create_topics=False,
            connections=replace(connection_settings(settings), memory=memory),
        ),
    )


class ClusterClient:
    """A client for one thread. Connections are opened and served inside its calls.

    Raises:
        ConfigError: no bootstrap server.
    """

    def __init__(self, settings: ClientSettings, memory: Memory = plain_memory) -> None:
        self._settings = settings
        self.engine = cluster_engine(settings, memory)
        owner = _Answers()
        self._answers = owner.awaited
        transport = transport_of(settings)
        self._loop = ClientLoop(self.engine, owner, name="kohort-client", transport=transport)
        weakref.finalize(self, self._loop.stop, 0.0)

    def close(self) -> None:
        """Close every connection. A second call is harmless."""
        self._loop.stop(0.0)

    def retry(self, ask: Callable[[float], T]) -> T:
        """Call ``ask`` until it works, fails for good, or time is over (see `RetryWaits`).

        ``ask`` gets the deadline, on ``time.monotonic``.
        """
        waits = RetryWaits(self._settings, reached=self.engine.reached)
        while True:
            try:
                return ask(waits.deadline)
            except Exception as error:
                time.sleep(waits.wait_after(error))

    # -- requests ---------------------------------------------------------------------------------

    def request(self, where: Where, message: object, deadline: float) -> Any:
        """Send one request and wait for its response.

        Raises:
            BrokerUnreachable: no connection, or it broke; the request may have been carried out.
            RequestTimedOut: no response by the deadline.
            RequestFailed: the broker and kohort share no version of this request.
        """
        return self.wait(self.post(where, message, deadline))

    def post(self, where: Where, message: object, deadline: float) -> RequestId:
        """Send one request; `wait` returns its response later."""
        return self._post(
            lambda now: self.engine.request(where, message, now, timeout_ms=left_ms(deadline))
        )

    def _post(self, ask: Callable[[Instant], tuple[RequestId, list[Output]]]) -> RequestId:
        def order(now: Instant) -> tuple[RequestId, list[Output]]:
            request_id, outputs = ask(now)
            self._answers[request_id] = deque()
            return request_id, outputs

        return self._loop.order(order)

    def wait(self, request_id: RequestId) -> Any:
        """The response to a request that was posted. Raises the errors of `request`."""
        try:
            answer = self._next_answer(request_id)
        finally:
            self.forget(request_id)
        if answer.error is not None:
            raise request_failure(answer.error)
        return answer.message

    def forget(self, request_id: RequestId) -> None:
        """Skip the responses to a request that are still to come."""
        if self._answers.pop(request_id, None) is not None:
            self.engine.cancel(request_id)

    def ask_leaders(
        self,
        request_class: type,
        partitions: Iterable[TopicPartition],
        build: Callable[[Sequence[TopicPartition], float], Any],
        note: Callable[[Any, dict[TopicPartition, T]], None],
    ) -> dict[TopicPartition, T]:
        """Ask the leaders of these partitions; see `retry`.

        Args:
            request_class: of the message.
            partitions: each gets a value; nothing is asked without any.
            build: makes the message for the partitions of one leader, with the deadline.
            note: adds the values of an answer, or raises RequestFailed.

        Raises:
            RequestFailed: a topic or partition does not exist, or is refused.
            BrokerUnreachable, RequestTimedOut: as in `request`.
        """
        wanted, found = set(partitions), dict[TopicPartition, T]()

        def ask(deadline: float) -> None:
            left = sorted(wanted - found.keys())
            self.check_partitions(left, deadline)
            request_id = self.post_leaders(
                request_class, left, lambda mine, _version: build(mine, deadline), deadline
            )
            with closing(self.answers(request_id, left)) as answers:
                for _, answer in answers:
                    if isinstance(answer, ClientError):
                        raise answer
                    note(answer, found)

        if wanted:
            self.retry(ask)
        return found

    def post_leaders(
        self,
        request_class: type,
        partitions: Sequence[TopicPartition],
        build: Callable[[Sequence[TopicPartition], int], Any],
        deadline: float,
    ) -> RequestId:
        """Send one request to each leader; `answers` returns the responses later.

        Args:
            request_class: of the message.
            partitions: must not be empty; they are not checked.
            build: makes the message for the partitions of one leader, in a version.
            deadline: on ``time.monotonic``.
        """
        where = LeadersOf(partitions=tuple(partitions), build=build)
        return self._post(
            lambda now: self.engine.request_leaders(
                request_class, where, now, timeout_ms=left_ms(deadline)
            )
        )

    def answers(
        self, request_id: RequestId, partitions: Sequence[TopicPartition]
    ) -> Generator[tuple[Sequence[TopicPartition], Any], None, None]:
        """Wait for the responses to a request that was posted for these partitions.

        Yields the partitions of each response with the response, or with the ClientError in its
        place. Each partition is in one of them.
        """
        left = len(partitions)
        try:
            while left:
                answer = self._next_answer(request_id)
                # A request to one node does not say which partitions are in it.
                mine = answer.partitions or partitions
                left -= len(mine)
                error = answer.error
                yield mine, answer.message if error is None else request_failure(error)
        finally:
            self.forget(request_id)

    def _next_answer(self, request_id: RequestId) -> Answered:
        answers = self._answers[request_id]
        if not answers:
            self._loop.run_until(lambda: answers)
        return answers.popleft()

    # -- the cluster ------------------------------------------------------------------------------

    def metadata(
        self, names: Collection[str] | None, deadline: float, *, create: bool = False
    ) -> Any:
        """Ask any broker for topics (all of them: None)."""
        return self.request(Target.ANY, metadata_request(names, create), deadline)

    def coordinator(self, group_id: str, deadline: float) -> Node:
        """The coordinator of a group."""
        build = partial(find_request, group_id)
        message = Versioned(request_class=FindCoordinatorRequest, build=build)
        answer = self.request(Target.ANY, message, deadline)
        found = answer.coordinators[0] if answer.coordinators else answer
        check(found.error_code, f"coordinator of group {group_id}", found.error_message)
        return Node(node_id=found.node_id)

    def check_partitions(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Check that these partitions exist and have leaders.

        Raises:
            RequestFailed: one does not exist, or has no leader at present.
        """
        check_leaders(self.metadata({tp.topic for tp in partitions}, deadline), partitions)


class _Answers:
    """The owner of the loop: keeps the answers to the requests that are awaited."""

    def __init__(self) -> None:
        self.awaited: dict[RequestId, deque[Answered]] = {}

    def take(self, output: Output, now: Instant) -> list[Output]:
        """Keep an answer."""
        if isinstance(output, Answered) and output.request_id in self.awaited:
            self.awaited[output.request_id].append(output)
        return []

    def advance(self, now: Instant) -> list[Output]:
        """No work is ever due."""
        return []

    def next_deadline(self) -> Instant | None:
        """No work is ever due."""
        return None

    def broken(self, error: BaseException) -> None:
        """Never called, because the loop has no thread."""


def left_ms(deadline: float) -> Millis:
    """The time until a deadline on ``time.monotonic``, for the time-out of a request."""
    return Millis(max(1, int((deadline - time.monotonic()) * 1_000)))
