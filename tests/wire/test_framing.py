"""Cutting a stream into frames."""

from __future__ import annotations

import struct
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import ProtocolError
from kohort.model.memory import plain_memory
from kohort.wire.codec import FrameSplitter


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_are_whole_for_any_cuts_of_the_stream(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = framed(*bodies)
    splitter = FrameSplitter(memory=data.draw(st.sampled_from([None, plain_memory])))
    out: list[bytes] = []
    # Large frames are collected in a buffer of their own.
    with patch("kohort.wire.codec._LARGE_FRAME", data.draw(st.sampled_from([1, 20, 1 << 18]))):
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            room = splitter.room()
            if room is not None and data.draw(st.booleans()):
                size = min(size, len(room))
                room[:size] = stream[:size]
                out += splitter.feed(room[:size])
            else:
                out += splitter.feed(stream[:size])
            stream = stream[size:]
            read = sum(4 + len(frame) for frame in out) + splitter.buffered + len(stream)
            assert read == len(framed(*bodies))
    assert out == bodies
    assert splitter.buffered == 0
    assert splitter.room() is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_accepted_and_none_is_kept(kind: type) -> None:
    source = bytearray(framed(b"one", b"two") + b"\x00\x00")
    splitter = FrameSplitter()
    frames = splitter.feed(kind(source))
    source[:] = b"\xff" * len(source)
    assert frames == [b"one", b"two"]
    assert all(type(frame) is bytes for frame in frames)
    assert splitter.feed(b"\x00\x01x") == [b"x"]


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
@pytest.mark.parametrize("before", [b"", b"\x00\x00\x00\x02ab"])
def test_an_impossible_size_is_refused_as_soon_as_it_is_known(size: int, before: bytes) -> None:
    splitter = FrameSplitter(max_frame=100)
    head = before + struct.pack(">i", size)
    splitter.feed(head[:-1])
    with pytest.raises(ProtocolError, match="0 to 100"):
        splitter.feed(head[-1:])


def test_the_largest_frame_allowed_passes_whole_and_in_pieces() -> None:
    body = b"x" * 100
    assert FrameSplitter(max_frame=100).feed(framed(body)) == [body]
    splitter = FrameSplitter(max_frame=100)
    assert [f for n in range(104) for f in splitter.feed(framed(body)[n : n + 1])] == [body]


def test_a_large_frame_in_small_pieces_costs_one_buffer() -> None:
    body = bytes(1_000_000)
    splitter = FrameSplitter()
    stream, out = framed(body), []
    for start in range(0, len(stream), 4_096):
        out += splitter.feed(stream[start : start + 4_096])
        assert splitter.buffered <= len(stream)
    assert out == [body]
