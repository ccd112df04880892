"""Cutting a byte stream into Kafka frames: four bytes of size, then that many bytes.

In: bytes as a socket delivers them, torn and merged at will. Out: whole frames without their size.
Must not know: what is in a frame.

Memory is bounded by the largest frame allowed: a size beyond it is refused when its four bytes are
there, and nothing is set aside for a frame before its bytes have come.
"""

from __future__ import annotations

import struct

from kohort.model.errors import ProtocolError

DEFAULT_MAX_FRAME = 100 * 1024 * 1024
"""Bytes of the largest frame: Kafka's default of ``socket.request.max.bytes``."""

_SIZE = struct.Struct(">i")


class FrameSplitter:
    """Collects bytes until a frame is whole."""

    __slots__ = ("_buffer", "_needed", "max_frame", "started")

    def __init__(self, max_frame: int = DEFAULT_MAX_FRAME) -> None:
        self.max_frame = max_frame
        self._buffer = bytearray()
        self._needed = 4
        self.started = 0
        """Frames of which a part came first. While ``buffered`` is not 0, the present one's number:
        whoever has a clock can see how long one frame takes."""

    @property
    def buffered(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Take ``data`` and return the frames that are whole now, in order.

        Raises:
            ProtocolError: A frame announces a negative size or one above ``max_frame``. The stream
                cannot be followed from there on.
        """
        buffer = self._buffer
        if not buffer:
            # Nearly always one whole frame arrives by itself: no detour through the buffer.
            size = len(data)
            if size >= 4 and _SIZE.unpack_from(data)[0] == size - 4 <= self.max_frame:
                return [bytes(data[4:])]
            self.started += 1
        buffer += data
        if len(buffer) < self._needed:
            return []
        return self._cut()

    def _cut(self) -> list[bytes]:
        frames = []
        buffer, start, end = self._buffer, 0, len(self._buffer)
        with memoryview(buffer) as view:
            while True:
                if end - start < 4:
                    self._needed = 4
                    break
                size: int = _SIZE.unpack_from(view, start)[0]
                if not 0 <= size <= self.max_frame:
                    raise ProtocolError(
                        f"a frame announces {size} bytes; allowed are 0 to {self.max_frame}. "
                        "The peer does not speak Kafka's protocol, or speaks TLS to a plain port"
                    )
                if end - start - 4 < size:
                    self._needed = 4 + size
                    break
                frames.append(bytes(view[start + 4 : start + 4 + size]))
                start += 4 + size
        if frames:
            self.started += 1
        del buffer[:start]
        return frames
