"""The CRC-32 of each value of a column, compiled by numba.

In: the bytes of a column and the edges of its values. Out: checksums. Must not know: Arrow.

Sixteen bytes are looked up at a time, in tables of their own ("slicing"). Source: Kounavis and
Berry, "Novel Table Lookup-Based Algorithms for High-Performance CRC Generation", 2008.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kohort.fetch.kernel import compiled

_POLYNOMIAL: Final = 0xEDB88320
_SLICES: Final = 16

_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_edges = types.Array(types.int32, 1, "C", readonly=True)
_sums = types.Array(types.uint32, 1, "C")
_tables = types.Array(types.uint32, 2, "C", readonly=True)


def _make_tables() -> Any:
    """Table ``n`` has the checksum of a byte in front of ``n`` zero bytes."""
    sums = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        sums = np.where(sums & 1, sums >> 1 ^ np.uint32(_POLYNOMIAL), sums >> 1)
    rows = [sums]
    while len(rows) < _SLICES:
        rows.append(rows[-1] >> 8 ^ sums[rows[-1] & 0xFF])
    tables = np.stack(rows)
    tables.setflags(write=False)
    return tables


TABLES: Final = _make_tables()


@intrinsic
def _word(_typing: Any, data: Any, at: Any) -> Any:
    """Eight bytes from a position on, as a number with the first byte in its lowest bits."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(data, types.int64), emit


@compiled(types.void(_bytes, _edges, _tables, _sums))
def checksums(data: Any, edges: Any, t: Any, sums: Any) -> None:
    """Write the CRC-32 of ``data[edges[n]:edges[n + 1]]`` to ``sums[n]``.

    Args:
        data: the bytes of all values.
        edges: one more than ``sums``; they must not fall, and lie within ``data``.
        t: ``TABLES``.
        sums: to fill.
    """
    low = np.uint64(0xFF)
    ones = np.uint64(0xFFFFFFFF)
    s8, s16, s24, s32 = np.uint64(8), np.uint64(16), np.uint64(24), np.uint64(32)
    s40, s48, s56 = np.uint64(40), np.uint64(48), np.uint64(56)
    for n in range(len(sums)):
        at = np.int64(edges[n])
        end = np.int64(edges[n + 1])
        crc = ones
        while end - at >= 16:
            a = _word(data, at) ^ crc
            b = _word(data, at + 8)
            crc = np.uint64(
                t[15, a & low]
                ^ t[14, a >> s8 & low]
                ^ t[13, a >> s16 & low]
                ^ t[12, a >> s24 & low]
                ^ t[11, a >> s32 & low]
                ^ t[10, a >> s40 & low]
                ^ t[9, a >> s48 & low]
                ^ t[8, a >> s56]
                ^ t[7, b & low]
                ^ t[6, b >> s8 & low]
                ^ t[5, b >> s16 & low]
                ^ t[4, b >> s24 & low]
                ^ t[3, b >> s32 & low]
                ^ t[2, b >> s40 & low]
                ^ t[1, b >> s48 & low]
                ^ t[0, b >> s56]
            )
            at += 16
        while at < end:
            crc = np.uint64(t[0, (crc ^ np.uint64(data[at])) & low]) ^ crc >> s8
            at += 1
        sums[n] = np.uint32(crc ^ ones)
