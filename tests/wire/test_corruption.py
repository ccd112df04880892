"""Damaged bytes raise ProtocolError and nothing else, for every message and damage."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest
from tests.examples import seeds
from tests.wire.oracles import messages
from tests.wire.samples import Sampler

from kohort.model.errors import ProtocolError
from kohort.schema import decode, encode
from kohort.schema.declare import layout_of
from kohort.wire.apis import APIS, Api
from kohort.wire.codec import decode_request, decode_response, encode_request, encode_response
from kohort.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.wire.messages.k14_sync_group import SyncGroupRequest

SEED = 4_821
_CUT = len(seeds(400))
_DAMAGED = 120


def frame_of(sampler: Sampler, cls: type, version: int) -> bytes:
    message = sampler.message(cls, version)
    if layout_of(cls).is_request:
        return encode_request(message, version, 7, "someone")[4:]
    return encode_response(message, version, 7)[4:]


def read(cls: type, version: int, frame: bytes) -> None:
    if layout_of(cls).is_request:
        decode_request(frame)
    else:
        decode_response(cls, version, frame)


def is_accepted(cls: type, version: int, data: bytes) -> bool:
    try:
        decode(cls, version, data)
    except ProtocolError:
        return False
    return True


@pytest.mark.parametrize("api", APIS, ids=lambda a: a.name)
def test_a_message_cut_anywhere_is_refused(api: Api) -> None:
    for _, cls, version in [m for m in messages() if m[0] is api]:
        sampler = Sampler(seed=SEED + version)
        data = encode(sampler.message(cls, version), version)
        steps = (
            range(len(data)) if len(data) < _CUT else sampler.random.sample(range(len(data)), _CUT)
        )
        accepted = [end for end in steps if is_accepted(cls, version, data[:end])]
        assert not accepted, f"{cls.__name__} v{version} of {len(data)} bytes"


@pytest.mark.parametrize("api", APIS, ids=lambda a: a.name)
def test_a_frame_with_damaged_bytes_is_read_or_refused(api: Api) -> None:
    """Any byte may be part of a length, so each byte gets values that are bad lengths."""
    for _, cls, version in [m for m in messages() if m[0] is api]:
        sampler = Sampler(seed=SEED + version, nulls="never", tags="always")
        frame = frame_of(sampler, cls, version)
        for place in (place for place in seeds(_DAMAGED) if place < len(frame)):
            for value in (0x00, 0x7F, 0x80, 0xFF):
                damaged = frame[:place] + bytes((value,)) + frame[place + 1 :]
                with contextlib.suppress(ProtocolError):
                    read(cls, version, damaged)


@pytest.mark.parametrize("api", APIS, ids=lambda a: a.name)
def test_noise_is_read_or_refused(api: Api) -> None:
    for _, cls, version in [m for m in messages() if m[0] is api]:
        rng = random.Random(SEED + 100 * api.key + version)
        for size in (0, 1, 3, 9, 40, 200):
            noise = rng.randbytes(size)
            with contextlib.suppress(ProtocolError):
                decode(cls, version, noise)


@pytest.mark.parametrize(
    "count", [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe", b"\x00\x10\x00\x00"]
)
def test_an_absurd_count_is_refused_before_anything_is_made(count: bytes) -> None:
    head = b"\x00\x01g" + b"\x00\x00\x00\x01" + b"\x00\x01m"
    decode(SyncGroupRequest, 0, head + b"\x00\x00\x00\x00")
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="assignments"):
            decode(SyncGroupRequest, 0, head + count + b"\x00" * 64)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_a_count_that_fits_the_bytes_but_not_the_budget_is_refused() -> None:
    message = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(90)))] * 10,
    )
    data = encode(message, 6)
    assert decode(OffsetFetchRequest, 6, data, max_elements=910)[0] == message
    with pytest.raises(ProtocolError, match="partition_indexes"):
        decode(OffsetFetchRequest, 6, data, max_elements=909)
    frame = encode_request(message, 6, 1, None)[4:]
    with pytest.raises(ProtocolError, match=r"topics\.partition_indexes"):
        decode_request(frame, max_elements=500)
