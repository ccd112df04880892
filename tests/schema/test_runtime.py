"""Unsigned varints and sections of tagged fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.schema.runtime import Malformed, skip_tags, uvarint, uvarint_bytes


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=3))
def test_varints_are_read_back(value: int, around: bytes) -> None:
    data = uvarint_bytes(value)
    assert 1 <= len(data) <= 5
    assert uvarint(around + data + around, len(around)) == (value, len(around) + len(data))


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_varints_of_the_protocol(value: int, data: str) -> None:
    assert uvarint_bytes(value).hex() == data


@pytest.mark.parametrize("data", ["ffffffff10", "ffffffffff", "8080808080"])
def test_varints_beyond_32_bits_are_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        uvarint(bytes.fromhex(data), 0)


def test_a_section_of_unknown_tags_is_skipped() -> None:
    section = bytes.fromhex("02" + "0502aabb" + "810103010203")
    assert skip_tags(b"\x00" + section + b"\x00", 1) == 1 + len(section)
    with pytest.raises(Malformed):
        skip_tags(section[:-1], 0)
    with pytest.raises(IndexError):
        skip_tags(section[:2], 0)
    with pytest.raises(IndexError):
        skip_tags(bytes.fromhex("ffffffff0f"), 0)
