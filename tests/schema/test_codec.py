"""Compiled codecs: layouts, round trips, errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import ProtocolError
from kohort.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    array,
    decode,
    encode,
    field,
    struct,
)
from kohort.schema.codec import decoder, encoder
from kohort.schema.decoders import _Decoder


@struct()
class Item:
    """An element."""

    name: str = field(STRING)
    numbers: list[int] = field(array(INT16))
    note: str | None = field(STRING, versions="2+", nullable="2+", default=None, tag=4)


@struct(versions="0-3", flexible="2+")
class Everything:
    """One field of each kind."""

    flag: bool = field(BOOL)
    tiny: int = field(INT8)
    small: int = field(INT16)
    medium: int = field(INT32)
    large: int = field(INT64)
    key: bytes = field(UUID)
    text: str = field(STRING)
    maybe: str | None = field(STRING, nullable="1+", default="")
    blob: bytes = field(BYTES)
    records: bytes | memoryview | None = field(RECORDS, nullable="0+", default=None)
    flags: list[bool] = field(array(BOOL))
    keys: list[bytes] = field(array(UUID))
    words: list[str] = field(array(STRING))
    items: list[Item] | None = field(array(Item), nullable="1+")
    one: Item | None = field(Item, versions="1+", nullable="1+", default=None)
    later: int = field(INT32, versions="1+", default=3, ignorable=True)
    strict: int = field(INT32, versions="3+", default=5)
    extra: list[int] = field(array(INT64), versions="2+", tag=1, ignorable=True)
    other: Item | None = field(Item, versions="2+", tag=0, default=None, ignorable=True)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=140)


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@st.composite
def items(draw: st.DrawFn, version: int) -> Item:
    made = Item(name=draw(texts), numbers=draw(st.lists(ints(16), max_size=40)))
    if version >= 2:
        made.note = draw(st.none() | texts)
    return made


@st.composite
def everythings(draw: st.DrawFn) -> tuple[int, Everything]:
    version = draw(st.integers(0, 3))
    nullable = st.none() if version >= 1 else st.nothing()
    made = Everything(
        flag=draw(st.booleans()),
        tiny=draw(ints(8)),
        small=draw(ints(16)),
        medium=draw(ints(32)),
        large=draw(ints(64)),
        key=draw(st.binary(min_size=16, max_size=16)),
        text=draw(texts),
        maybe=draw(nullable | texts),
        blob=draw(st.binary(max_size=300)),
        records=draw(st.none() | st.binary(max_size=300)),
        flags=draw(st.lists(st.booleans(), max_size=40)),
        keys=draw(st.lists(st.binary(min_size=16, max_size=16), max_size=3)),
        words=draw(st.lists(texts, max_size=4)),
        items=draw(nullable | st.lists(items(version), max_size=3)),
    )
    if version >= 1:
        made.one = draw(st.none() | items(version))
        made.later = draw(ints(32))
    if version >= 2:
        made.extra = draw(st.lists(ints(64), max_size=40))
        made.other = draw(st.none() | items(version).filter(lambda i: i != Item()))
    if version >= 3:
        made.strict = draw(ints(32))
    return version, made


@given(everythings(), st.binary(max_size=5), st.binary(max_size=5))
def test_every_message_is_read_back(
    sample: tuple[int, Everything], before: bytes, after: bytes
) -> None:
    version, message = sample
    data = encode(message, version)
    again, end = decode(Everything, version, before + data + after, len(before))
    assert again == message
    assert end == len(before) + len(data)


@given(everythings(), st.data())
def test_damaged_bytes_raise_only_protocol_errors(
    sample: tuple[int, Everything], data: st.DataObject
) -> None:
    version, message = sample
    whole = encode(message, version)
    place = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProtocolError):
        decode(Everything, version, whole[:place])
    damaged = whole[:place] + data.draw(st.binary(min_size=1, max_size=6)) + whole[place + 1 :]
    try:
        decode(Everything, version, damaged)
    except ProtocolError as error:
        assert "Everything" in str(error)  # noqa: PT017 (damage may also leave a valid message)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_into_plain_bytes(buffer: type) -> None:
    message = Everything(blob=b"b" * 9, records=b"r", text="t")
    again, _ = decode(Everything, 1, buffer(encode(message, 1)))
    assert again == message
    assert type(again.blob) is type(again.records) is bytes


def test_plain_layout_byte_by_byte() -> None:
    item = Item(name="ab", numbers=[1, -1])
    assert encode(item, 0).hex() == "0002" + "6162" + "00000002" + "0001" + "ffff"
    assert encode(Item(name="ab", numbers=[1] * 40), 0)[4:8] == (40).to_bytes(4, "big")


@struct(versions="0+", flexible="0+")
class Compact:
    """The same bytes in compact form."""

    name: str = field(STRING)
    numbers: list[int] = field(array(INT16))
    note: str | None = field(STRING, nullable="0+", default=None, tag=4)


def test_compact_layout_byte_by_byte() -> None:
    assert encode(Compact(name="ab", numbers=[1, -1]), 0).hex() == (
        "03" + "6162" + "03" + "0001" + "ffff" + "00"
    )
    assert encode(Compact(note="n"), 0).hex() == "01" + "01" + "01" + "04" + "02" + "026e"
    assert encode(Compact(name="x" * 127, numbers=[0] * 127), 0).hex() == (
        "8001" + "78" * 127 + "8001" + "0000" * 127 + "00"
    )


def test_a_tagged_struct_with_only_defaults_is_not_sent() -> None:
    assert encode(Everything(other=Item()), 2) == encode(Everything(), 2)


def test_fields_that_a_version_lacks_are_dropped_or_refused() -> None:
    assert encode(Everything(later=99), 0) == encode(Everything(), 0)
    assert decode(Everything, 0, encode(Everything(later=99), 0))[0].later == 3
    with pytest.raises(ProtocolError, match=r"strict: version 2 has no such field, so 6"):
        encode(Everything(strict=6), 2)
    assert encode(Everything(strict=5), 2) == encode(Everything(), 2)


@pytest.mark.parametrize(
    ("values", "version", "what"),
    [
        ({"tiny": 128}, 3, "tiny: 128 does not fit int8"),
        ({"large": 1 << 63}, 3, "large: .* does not fit int64"),
        ({"medium": "7"}, 3, "medium: expected int32, got str"),
        ({"key": b"short"}, 3, "key: expected 16 bytes, got b'short'"),
        ({"text": None}, 3, "text: may not be null in version 3"),
        ({"text": 7}, 3, "text: expected a string, got int"),
        ({"text": "\ud800"}, 3, "text: not UTF-8"),
        ({"text": "x" * 32_768}, 1, "text: a string of 32768 bytes; at most 32767"),
        ({"text": "x" * 32_768}, 3, "text: a string of 32768 bytes; at most 32767"),
        ({"maybe": "é" * 16_384}, 2, "maybe: a string of 32768 bytes; at most 32767"),
        ({"words": ["x" * 32_768]}, 2, r"words\.0: a string of 32768 bytes; at most 32767"),
        ({"maybe": None}, 0, "maybe: may not be null in version 0"),
        ({"blob": "text"}, 3, "blob: expected bytes, got str"),
        ({"items": None}, 0, "items: may not be null in version 0"),
        ({"items": [Item(), Item(numbers=[1 << 15])]}, 3, r"items\.1\.numbers\.0: 32768 does not"),
        ({"items": [Item(), 3]}, 3, r"items\.1: expected a Item, got int"),
        ({"items": 3}, 3, "items: expected a list, got int"),
        ({"extra": ["1"]}, 3, r"extra\.0: expected int64, got str"),
    ],
)
def test_a_value_that_cannot_be_written_is_named(
    values: dict[str, Any], version: int, what: str
) -> None:
    with pytest.raises(ProtocolError, match=f"cannot encode Everything version {version}: {what}"):
        encode(Everything(**values), version)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("", "at name, byte 0 of 0: the data ends"),
        ("00", "at name, byte 0 of 1: null where a value must stand"),
        ("05 6162", "the data ends"),
        ("03 fffe 01 00", "at name, .*not UTF-8"),
        ("ffffffffff", "at name, .*varint"),
        ("8000", "at name, .*null"),
        ("01 00", "at numbers, .*-1 elements"),
        ("01 ffffffff0f", "at numbers, .*4294967294 elements"),
        ("01 01 01 09 05 00", "a tagged field reaches beyond"),
        ("01 01 01 04 03 02 61 00", "a tagged field has another size"),
        ("01 01 ff", "the data ends"),
    ],
)
def test_the_error_of_unreadable_bytes_names_their_position(data: str, what: str) -> None:
    with pytest.raises(ProtocolError, match=f"malformed Compact version 0.*{what}"):
        decode(Compact, 0, bytes.fromhex(data.replace(" ", "")))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_strings_are_as_long_in_flexible_versions_as_in_others(version: int) -> None:
    """Kafka closes the connection on a longer string, compact or not; bytes may be longer."""
    message = Everything(text="x" * 32_767, blob=b"x" * 70_000, words=["é" * 16_383])
    data = encode(message, version)
    again, _ = decode(Everything, version, data)
    assert again == message


@pytest.mark.parametrize("field_name", ["text", "maybe"])
def test_a_compact_string_that_is_too_long_is_not_read(field_name: str) -> None:
    message = Everything()
    setattr(message, field_name, "x" * 32_767)
    data = encode(message, 3)
    length, longer = b"\x80\x80\x02", b"\x81\x80\x02"
    assert data.count(length + b"x") == 1
    data = data.replace(length + b"x", longer + b"xx")
    with pytest.raises(ProtocolError, match=f"at {field_name}, .*a string of 32768 bytes"):
        decode(Everything, 3, data)


def test_versions_out_of_range_are_refused() -> None:
    for version in (-1, 4, 99):
        with pytest.raises(
            ProtocolError, match=f"Everything exists in versions 0-3, not {version}"
        ):
            encode(Everything(), version)
        with pytest.raises(
            ProtocolError, match=f"Everything exists in versions 0-3, not {version}"
        ):
            decode(Everything, version, b"")


def test_a_value_of_another_class_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="int is not a message"):
        encode(3, 0)
    with pytest.raises(TypeError, match="str is not a message"):
        decode(str, 0, b"")


def test_codecs_are_compiled_once_and_kept_by_their_class() -> None:
    @struct(versions="0-1")
    class Fresh:
        n: int = field(INT32)

    codecs = vars(Fresh)["__codecs__"]
    assert codecs == {}
    assert encoder(Fresh, 0) is encoder(Fresh, 0)
    assert decoder(Fresh, 1) is not decoder(Fresh, 0)
    assert len(codecs) == 3


def test_adjacent_fixed_fields_and_the_next_length_are_one_read() -> None:
    lines = _Decoder(Everything, 0, "d, o, budget").message()._lines
    reads = [line for line in lines if "UNPACK" in line and "m.flag" in line]
    assert len(reads) == 1
    assert all(f"m.{name}" in reads[0] for name in ("tiny", "small", "medium", "large", "key"))
