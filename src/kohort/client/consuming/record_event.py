"""Tells an event loop that librdkafka has records: a file descriptor becomes readable.

In: a consumer of confluent-kafka. Out: a file descriptor. Must not know: the event loop, records.

librdkafka has the call (``rd_kafka_queue_io_event_enable``), and confluent-kafka does not pass the
call on. So it is called in the library that confluent-kafka has loaded, with the handle that is the
first field of its consumer object (ADR 0052).
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import cimpl

from kohort.client.connections.readable_event import ReadableEvent
from kohort.client.errors import ClientError

_HEAD_BYTES = object.__basicsize__
"""Size of the head of every object; the handle is after the head."""
_MEMORY = Path("/proc/self/mem")
"""The memory of this process: a wrong address is an OSError, and no crash."""
_CLIENT_BYTES = 16_384
"""The name is within this many bytes from the start of a client; 2.7 KiB in librdkafka 2.16."""
_NAME_BYTES = 100
"""librdkafka cuts longer names off."""


class RecordEvent(ReadableEvent):
    """Becomes readable when something arrives in an empty queue of a consumer.

    Args:
        consumer: must be closed after this event.
        client_id: its ``client.id``.

    Raises:
        OSError: librdkafka's library was not found.
        ClientError: the objects of this confluent-kafka have another layout.
    """

    def __init__(self, consumer: confluent_kafka.Consumer, client_id: str) -> None:
        self._library = _library()
        handle = ctypes.c_void_p.from_address(id(consumer) + _HEAD_BYTES).value
        check_handle(handle, client_id)
        self._queue: int | None = self._library.rd_kafka_queue_get_consumer(handle)
        super().__init__()
        self._library.rd_kafka_queue_io_event_enable(self._queue, self._written.fileno(), b"1", 1)

    def close(self) -> None:
        """Ask for no more events. Closing twice is harmless."""
        if self._queue is None:
            return
        self._library.rd_kafka_queue_io_event_enable(self._queue, -1, None, 0)
        self._library.rd_kafka_queue_destroy(self._queue)
        self._queue = None
        super().close()


def check_handle(handle: int | None, client_id: str) -> None:
    """Check that there is a client of librdkafka with this ``client.id`` at an address.

    A call of librdkafka with another address would end the process. Its client has its name inside:
    the ``client.id``, ``#consumer-`` and a number. Systems without ``/proc`` are not checked.

    Raises:
        ClientError: there is none.
    """
    if not _MEMORY.exists():
        return
    found = b""
    with suppress(OSError, OverflowError), _MEMORY.open("rb", buffering=0) as memory:
        found = os.pread(memory.fileno(), _CLIENT_BYTES, handle or 0)
    name = f"{client_id or 'rdkafka'}#consumer-"
    if name.encode()[:_NAME_BYTES] not in found:
        raise ClientError(
            f"the consumer object of confluent-kafka {confluent_kafka.__version__} has another "
            "layout than expected: AsyncConsumer finds no handle of librdkafka in its first field. "
            "Install confluent-kafka 2.16, or use Consumer in a thread"
        )


@cache
def _library() -> Any:
    """Librdkafka's library, the one that confluent-kafka uses."""
    library = ctypes.CDLL(str(_place()))
    pointer = ctypes.c_void_p
    library.rd_kafka_queue_get_consumer.argtypes = [pointer]
    library.rd_kafka_queue_get_consumer.restype = pointer
    library.rd_kafka_queue_destroy.argtypes = [pointer]
    library.rd_kafka_queue_destroy.restype = None
    enable = library.rd_kafka_queue_io_event_enable
    enable.argtypes = [pointer, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    enable.restype = None
    return library


def _place() -> Path:
    """The file of the library: beside a wheel's extension, or the extension that links to it."""
    package = Path(confluent_kafka.__file__).parent
    beside = [package.parent / "confluent_kafka.libs", package / ".dylibs"]
    for folder in beside:
        for found in sorted(folder.glob("librdkafka*")):
            return found
    return Path(cimpl.__file__)  # a symbol of a library that it links to is found through it
