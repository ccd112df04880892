"""The CRC-32 of each value of a column, compiled by numba.

In: the bytes of a column and the edges of its values. Out: checksums. Must not know: Arrow.

Sixteen bytes are looked up at a time, in tables of their own ("slicing"). On a processor with
carry-less multiplication, all whole blocks of sixteen bytes are first folded into one block with
the same remainder. Sources: Kounavis and Berry, "Novel Table Lookup-Based Algorithms for
High-Performance CRC Generation", 2008; Gopal and others, "Fast CRC Computation for Generic
Polynomials Using PCLMULQDQ Instruction", Intel 2009 (the constants are those for this polynomial,
with bits reflected).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kohort.fetch.kernel import compiled

_POLYNOMIAL: Final = 0xEDB88320
_SLICES: Final = 16
_BLOCK: Final = 16
_LANES: Final = 4
_BY_ONE: Final = (0x1751997D0, 0x0CCAA009E)
"""Folds a block into the next one."""
_BY_LANES: Final = (0x154442BD4, 0x1C6E41596)
"""Folds a block into the one that is ``_LANES`` blocks behind it."""
_FOLDS: Final = binding.get_host_cpu_features().get("pclmul", False)

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


_pair: Final = ir.VectorType(ir.IntType(64), 2)


def _folded_by(builder: Any, block: Any, constants: tuple[int, int]) -> Any:
    """A block, moved on by this many bits as the constants say."""
    kind = ir.FunctionType(_pair, [_pair, _pair, ir.IntType(8)])
    multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")
    by = ir.Constant(_pair, list(constants))
    halves = [
        builder.call(multiply, [block, by, ir.Constant(ir.IntType(8), which)])
        for which in (0x00, 0x11)
    ]
    return builder.xor(*halves)


@intrinsic
def _folded(_typing: Any, data: Any, at: Any, blocks: Any, crc: Any) -> Any:
    """The block, as two numbers, with the remainder of ``blocks`` blocks from ``at`` on.

    ``crc`` is the checksum so far.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        begin = builder.gep(array.data, [args[1]])

        def load(index: Any) -> Any:
            place = builder.gep(begin, [builder.mul(index, number(_BLOCK))])
            return builder.load(builder.bitcast(place, _pair.as_pointer()), align=1)

        def number(value: int) -> Any:
            return ir.Constant(ir.IntType(64), value)

        so_far = builder.insert_element(ir.Constant(_pair, [0, 0]), args[3], number(0))
        first = builder.xor(load(number(0)), so_far)
        block = cgutils.alloca_once_value(builder, first)
        done = cgutils.alloca_once_value(builder, number(1))
        with builder.if_then(builder.icmp_signed(">=", args[2], number(2 * _LANES))):
            more = [load(number(lane)) for lane in range(1, _LANES)]
            lanes = [cgutils.alloca_once_value(builder, each) for each in (first, *more)]
            rounds = builder.sdiv(args[2], number(_LANES))
            with cgutils.for_range(builder, rounds, start=number(1)) as loop:
                base = builder.mul(loop.index, number(_LANES))
                for lane, place in enumerate(lanes):
                    moved = _folded_by(builder, builder.load(place), _BY_LANES)
                    builder.store(builder.xor(moved, load(builder.add(base, number(lane)))), place)
            whole = builder.load(lanes[0])
            for place in lanes[1:]:
                whole = builder.xor(_folded_by(builder, whole, _BY_ONE), builder.load(place))
            builder.store(whole, block)
            builder.store(builder.mul(rounds, number(_LANES)), done)
        with cgutils.for_range(builder, args[2], start=builder.load(done)) as loop:
            moved = _folded_by(builder, builder.load(block), _BY_ONE)
            builder.store(builder.xor(moved, load(loop.index)), block)
        found = builder.load(block)
        halves = [builder.extract_element(found, number(n)) for n in (0, 1)]
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(types.uint64, 2)(data, types.int64, types.int64, types.uint64), emit


if _FOLDS:

    @njit(inline="always")
    def _blocks(data: Any, at: int, count: int, crc: Any, t: Any) -> Any:
        """The checksum behind this many blocks."""
        if not count:
            return crc
        a, b = _folded(data, at, count, crc)
        return _looked_up(a, b, t)

else:

    @njit(inline="always")
    def _blocks(data: Any, at: int, count: int, crc: Any, t: Any) -> Any:
        """The checksum behind this many blocks."""
        for n in range(count):
            place = at + n * _BLOCK
            crc = _looked_up(_word(data, place) ^ crc, _word(data, place + 8), t)
        return crc


@njit(inline="always")
def _looked_up(a: Any, b: Any, t: Any) -> Any:
    """The checksum of a block of two numbers."""
    low = np.uint64(0xFF)
    s8, s16, s24, s32 = np.uint64(8), np.uint64(16), np.uint64(24), np.uint64(32)
    s40, s48, s56 = np.uint64(40), np.uint64(48), np.uint64(56)
    return np.uint64(
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


@compiled(types.void(_bytes, _edges, _tables, _sums))
def checksums(data: Any, edges: Any, t: Any, sums: Any) -> None:
    """Write the CRC-32 of ``data[edges[n]:edges[n + 1]]`` to ``sums[n]``.

    Args:
        data: the bytes of all values.
        edges: one more than ``sums``; they must not fall, and lie within ``data``.
        t: ``TABLES``.
        sums: to fill.
    """
    low, s8 = np.uint64(0xFF), np.uint64(8)
    ones = np.uint64(0xFFFFFFFF)
    for n in range(len(sums)):
        at = np.int64(edges[n])
        end = np.int64(edges[n + 1])
        count = (end - at) // _BLOCK
        crc = _blocks(data, at, count, ones, t)
        at += count * _BLOCK
        while at < end:
            crc = np.uint64(t[0, (crc ^ np.uint64(data[at])) & low]) ^ crc >> s8
            at += 1
        sums[n] = np.uint32(crc ^ ones)
