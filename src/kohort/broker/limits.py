"""The bounds of the broker's shell that no setting of Kafka names, each with its reason."""

from __future__ import annotations

from typing import Final

from kohort.model.instants import Millis

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""One buffer, shared by all connections: it is emptied before the next socket is read. Large
enough that a produce request of 1 MiB takes four reads."""

UNREAD_PAUSE_BYTES: Final = 256 * 1024
"""Unread answer bytes at which a connection's requests are no longer served."""

UNREAD_CLOSE_BYTES: Final = 128 * 1024 * 1024
"""Unread answer bytes at which a connection is closed. Larger than any single answer; reached
only by a client that pipelines group requests and reads nothing."""

WAITING_REQUESTS: Final = 64
"""Requests of one connection that wait behind the one in hand before its socket is read no more.
Kafka's clients have 5 in flight; librdkafka's producer may have more when told so."""

FETCH_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Most record bytes in one fetch answer, whatever the client allows. An answer may always hold
less than asked for; this one keeps the broker's memory and the loop's turns short: 8 MiB are
copied in about 2 ms. A single batch may be larger."""

FRAME_BYTES_PER_SECOND: Final = 16 * 1024
"""The least rate of a request after ``kohort.frame.timeout.ms``. Every real client is faster; an
attacker that only holds connections open is slower."""

SPARE_DESCRIPTORS_SHARE: Final = 8
"""Open files that connections leave for logs: at most one in this many."""

DESCRIPTORS_OF_A_LOG: Final = 6
"""Most open files of a log: its active segment, four sealed ones that are read, and one more."""

SPARE_DESCRIPTORS: Final = 256
LEAST_SPARE_DESCRIPTORS: Final = 32
"""Open files for logs of topics that come later, and for all logs if few files are permitted."""

REFUSALS_LOGGED_MS: Final = Millis(1_000)
"""How often a flood of refused connections is logged."""

CLOSE_GRACE_SECONDS: Final = 5.0
"""How long a connection that is being closed may take to read its last answers."""

STOP_GRACE_SECONDS: Final = 10.0
"""How long a stopping broker waits for answers that wait for the disk."""

STALL_FLOOR_MICROS: Final = 1_000_000
"""A loop that slept longer tells the coordinator, so that no member expires for it."""

TICK_MICROS: Final = 250_000
"""How often the loop looks at the clock when nothing happens; a stall is measured against it."""

LEAST_DELAY_MICROS: Final = 500
"""The timer never fires sooner, so that a deadline which does not go away cannot spin the loop."""

CLOCK_CHECK_MS: Final = Millis(10_000)
"""How often the coordinator is told the time of day, which may be set while it runs."""

BROKER_PARTITIONS: Final = 100_000
"""Most partitions in all, so that a stranger's CreateTopics cannot fill the file system."""

TURN_MICROS: Final = 5_000
"""How long requests are served in one turn of the loop before the next ones are put off. Heartbeats
that come again are not, so that they need not wait for a storm of other requests."""

PUT_OFF_BYTES: Final = 64 * 1024 * 1024
"""Bytes of requests that are put off at most; beyond that they are served where they stand."""

ANSWERS_AT_ONCE: Final = 250
"""Answers that one event may send in one turn: the end of a join phase has one for each member."""
