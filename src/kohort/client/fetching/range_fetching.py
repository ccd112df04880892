"""The thread that fetches for a range reader: one Fetch at a time to each leader, own connections.

In: a reader; the polling thread changes its partitions. Out: answers in the reader, errors of
partitions, a call when there is news. Must not know: the format of batches, Arrow, groups.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from kohort.client.config import ClientSettings
from kohort.client.connections.client_loop import ClientLoop
from kohort.client.connections.cluster_client import cluster_engine
from kohort.client.connections.opening import transport_of
from kohort.engine.connections import Endpoint
from kohort.engine.member_outputs import (
    Answered,
    LeaderOf,
    LeadersOf,
    Node,
    Output,
    RequestError,
    RequestErrorKind,
    Versioned,
)
from kohort.fetch.range_reader import RangeReader, Trouble
from kohort.fetch.requests import FetchWaits, Remedy, fetch_request
from kohort.member.requests import RequestId
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.memory import Memory
from kohort.wire.messages.k01_fetch import FetchRequest

LOG: Final = logging.getLogger("kohort.client.fetching")

_REPEAT_S: Final = 30.0
"""A failure of the same kind is logged again after this many seconds."""
_AT_ONCE: Final = Instant(0)

_FetchTarget: TypeAlias = tuple[int, Endpoint | None]
"""The replica to ask, or -1 for leaders; and its address, if it is known."""


class RangeFetching:
    """Sends fetches for a reader's partitions, on a thread of its own.

    Args:
        settings: bootstrap servers and everything about fetching.
        memory: makes the memory of answers and of decompressed records.

    Raises:
        ConfigError: no bootstrap server, or a certificate cannot be read.
    """

    def __init__(self, settings: ClientSettings, memory: Memory) -> None:
        self._options = settings.fetching
        self.reader = RangeReader(
            self._options,
            most_bytes=settings.queued_max_messages_kbytes * 1_024,
            backoff_micros=settings.retry_backoff_ms * MICROS_PER_MILLI,
            replica_micros=settings.metadata_max_age_ms * MICROS_PER_MILLI,
            memory=memory,
        )
        self.lock = threading.Condition()
        """For the reader and the troubles; notified when there are answers or troubles."""
        self.troubles: list[Trouble] = []
        self.denied = ""
        """Why the last login or TLS handshake failed; the reader clears the text."""
        self.error: BaseException | None = None
        """The bug that ended the thread."""
        self.on_news: Callable[[], None] = lambda: None
        """Called on the thread, when there are answers or troubles."""
        self._engine = cluster_engine(settings, memory)
        self._left: dict[RequestId, tuple[_FetchTarget, set[TopicPartition]]] = {}
        """The partitions without an answer so far, by request."""
        self._busy: set[_FetchTarget] = set()
        self._waits = FetchWaits(self._options.max_wait_ms)
        self._changed = True
        self._wake_at: Instant | None = None
        self._logged: dict[str, float] = {}
        transport = transport_of(settings)
        self._loop = ClientLoop(
            self._engine,
            self,
            name="kohort-columns",
            transport=transport,
            room=self._engine.room,
        )
        self._loop.start()

    def poke(self) -> None:
        """Look for partitions to fetch: the reader has more room, or other partitions."""
        self._changed = True
        self._loop.post(lambda now: [])

    def close(self, timeout_s: float) -> None:
        """Close the connections and end the thread."""
        self._loop.stop(timeout_s)

    # -- called by the loop, on its thread --------------------------------------------------------

    def advance(self, now: Instant) -> list[Output]:
        """Fetch what is due from each node that has no request of this client."""
        if not self._changed and (self._wake_at is None or now < self._wake_at):
            return []
        self._changed = False
        outputs: list[Output] = []
        with self.lock:
            targets: dict[_FetchTarget, list[TopicPartition]] = {}
            for partition, replica in self.reader.due(now):
                target = self._target_of(partition, replica)
                if target not in self._busy:
                    targets.setdefault(target, []).append(partition)
            full = {self._target_of(*each) for each in self.reader.left_out(now)} if targets else ()
            for target, partitions in targets.items():
                wait_ms = self._waits.wait_ms(target, leaves_out=target in full)
                outputs += self._ask(target, partitions, wait_ms, now)
            self._wake_at = self.reader.next_due(now)
        return outputs

    def _target_of(self, partition: TopicPartition, replica: int) -> _FetchTarget:
        where = LeaderOf(partition=partition) if replica < 0 else Node(node_id=replica)
        return replica, self._engine.node_of(where)

    def next_deadline(self) -> Instant | None:
        """When ``advance`` must be called at the latest."""
        return _AT_ONCE if self._changed else self._wake_at

    def take(self, output: Output, now: Instant) -> list[Output]:
        """Take an answer."""
        if not isinstance(output, Answered) or output.request_id not in self._left:
            return []
        number = output.request_id
        target, left = self._left[number]
        partitions = output.partitions or tuple(left)
        with self.lock:
            if output.error is None:
                before = self.reader.answers
                self.troubles += self.reader.answered(number, output.message, now)
                if self.reader.answers != before:
                    self._waits.restart(target)
            else:
                self._failed(output.error, partitions)
            self.reader.failed(number, partitions, now)
            left.difference_update(partitions)
            if not left:
                del self._left[number]
                self._busy.discard(target)
                self.reader.ended(number)
            self._changed = True
            self.lock.notify()
        self.on_news()
        return []

    def broken(self, error: BaseException) -> None:
        """The loop ends because of a bug."""
        with self.lock:
            self.error = error
            self.lock.notify()
        self.on_news()

    def _ask(
        self, target: _FetchTarget, partitions: list[TopicPartition], wait_ms: int, now: Instant
    ) -> list[Output]:
        replica, endpoint = target
        options, room = self._options, self.reader.room
        if room <= 0:
            return []
        most = min(options.max_bytes, room, options.partition_max_bytes * len(partitions))
        # Partitions without a known leader may have several leaders, and each sends an answer.
        each = most if endpoint is not None else max(1, most // len(partitions))
        places = {place.partition: place for place in self.reader.places(partitions, each)}

        def build(wanted: Sequence[TopicPartition], version: int) -> FetchRequest:
            chosen = [places[tp] for tp in wanted]
            return fetch_request(options, chosen, most, version=version, max_wait_ms=wait_ms)

        if replica < 0:
            where = LeadersOf(partitions=tuple(partitions), build=build)
            number, outputs = self._engine.request_leaders(FetchRequest, where, now)
        else:
            request = Versioned(request_class=FetchRequest, build=partial(build, partitions))
            number, outputs = self._engine.request(Node(node_id=replica), request, now)
        self._left[number] = target, set(partitions)
        if endpoint is not None:
            self._busy.add(target)
        self.reader.asked(number, partitions, most)
        return outputs

    def _failed(self, error: RequestError, partitions: Sequence[TopicPartition]) -> None:
        if error.kind is RequestErrorKind.DENIED:
            self.denied = error.message
        elif error.kind is RequestErrorKind.UNSUPPORTED:
            code, kind = ErrorCode.UNSUPPORTED_VERSION, Remedy.REFUSED
            self.troubles += [Trouble(tp, -1, kind, code, error.message) for tp in partitions]
        elif error.kind is not RequestErrorKind.CLOSED:
            self._log(error.message)

    def _log(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._logged.get(text, -_REPEAT_S) + _REPEAT_S:
            self._logged = {text: at for text, at in self._logged.items() if at + _REPEAT_S > now}
            self._logged[text] = now
            LOG.warning("fetching: %s; tried again", text)
