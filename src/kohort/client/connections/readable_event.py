"""An event that other threads set, and that a selector or an event loop waits for.

In: calls of any thread. Out: a file descriptor. Must not know: the meaning of the event.
"""

from __future__ import annotations

import socket
from contextlib import suppress


class ReadableEvent:
    """A file descriptor that is readable while the event is set."""

    def __init__(self) -> None:
        self._readable, self._written = socket.socketpair()
        for end in (self._readable, self._written):
            end.setblocking(False)

    def fileno(self) -> int:
        """The file descriptor to watch for reading."""
        return self._readable.fileno()

    def set(self) -> None:
        """Make the descriptor readable. Any thread and any handler of a signal may call this."""
        with suppress(OSError):  # full, or closed meanwhile
            self._written.send(b"1")

    def clear(self) -> None:
        """Make the descriptor unreadable. Then look for all work that ``set`` announced."""
        with suppress(BlockingIOError):
            while self._readable.recv(4_096):
                pass

    def close(self) -> None:
        """Give the descriptors back. Closing twice is harmless."""
        self._readable.close()
        self._written.close()
