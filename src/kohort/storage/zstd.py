"""Decompresses zstd by the C library of the machine, or by cramjam if it is missing (ADR 0119).

In: compressed data, memory for the records. Out: the number of written bytes. Must not know:
batches, limits.

The library writes straight into the given memory. cramjam writes into memory of its own first, and
makes a decompressor for each call.

Source: RFC 8878; ``zstd.h`` and ``zstd_errors.h`` (the used functions and numbers do not change
since version 1.3.1).
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any, Final

import cramjam

LIBRARY: Final = "libzstd.so.1"
_TOO_SMALL: Final = 70
"""``ZSTD_error_dstSize_tooSmall``."""


class _Decompressor:
    """A decompressor of the library: to make one takes as long as to decompress a small batch."""

    def __init__(self, library: Any) -> None:
        self._free = library.ZSTD_freeDCtx
        self.pointer = library.ZSTD_createDCtx()
        if not self.pointer:
            raise MemoryError("no memory for a decompressor of zstd")

    def __del__(self) -> None:
        self._free(self.pointer)


class _OfThread(threading.local):
    """Each thread has a decompressor of its own."""

    decompressor: _Decompressor | None = None


_of_thread = _OfThread()


def decompress_into(data: bytes | memoryview, out: memoryview) -> int:
    """Write the records of one frame or more into ``out``; returns the number of written bytes.

    Raises:
        cramjam.DecompressionError: the data is damaged, or ``out`` is too small. The text has the
            words "whole buffer" then, as the text of ``cramjam.zstd.decompress_into``.
    """
    library = _library()
    if library is None or not data or not out:
        return int(cramjam.zstd.decompress_into(data, out))
    if _of_thread.decompressor is None:
        _of_thread.decompressor = _Decompressor(library)
    pointer = _of_thread.decompressor.pointer
    found = int(
        library.ZSTD_decompressDCtx(pointer, _place(out), len(out), _place(data), len(data))
    )
    if found < 0:
        why = "no room for the whole buffer" if found == -_TOO_SMALL else _name(library, found)
        raise cramjam.DecompressionError(why)
    return found


def _place(data: bytes | memoryview) -> Any:
    """An argument for the address of data."""
    if isinstance(data, memoryview) and not data.readonly:
        return ctypes.byref(ctypes.c_char.from_buffer(data))
    return bytes(data)  # ctypes gives no address of a view that is read-only


def _name(library: Any, error: int) -> str:
    name: bytes = library.ZSTD_getErrorName(error)
    return name.decode()


@cache
def _library() -> Any:
    """The library; None if this machine has none."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    pointer, size, result = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ssize_t
    library.ZSTD_createDCtx.restype = pointer
    library.ZSTD_freeDCtx.argtypes = [pointer]
    library.ZSTD_decompressDCtx.argtypes = [pointer, pointer, size, pointer, size]
    library.ZSTD_decompressDCtx.restype = result  # errors are negative
    library.ZSTD_getErrorName.argtypes = [result]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    return library
