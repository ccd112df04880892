"""The userdata of waits: kohort reads its own bytes, and bytes of other programs change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.policies.groups import partitions

from kohort.embedded.consumer import (
    Assignment,
    encode_assignment,
    encode_sticky_userdata,
    generation_in_userdata,
)
from kohort.embedded.deferral import (
    NO_ECHO,
    NOTHING,
    Echo,
    Handover,
    Pending,
    Wait,
    announced_in,
    asks_to_drain,
    decode_echo,
    decode_pending,
    encode_echo,
    encode_pending,
    pending_of,
)
from kohort.model.errors import ProtocolError
from kohort.model.ids import GenerationId
from kohort.model.instants import Millis

WAIT = Wait(
    wait_id=3,
    start_generation=GenerationId(4),
    remaining_ms=Millis(1_000),
    partitions=partitions("t1 t12 u0"),
    member="orders-7",
)
PENDING = Pending(waits=(WAIT,), released=partitions("u1"), postponed=7)
DATA = encode_pending(PENDING) or b""
COPIES = replace(
    PENDING,
    handovers=(Handover(remaining_ms=Millis(9), partitions=partitions("t2")),),
    standbys=partitions("t5 t6"),
)


def test_pending_work_is_read_as_it_was_written() -> None:
    assert decode_pending(DATA) == PENDING


def test_cut_handovers_and_standbys_are_refused() -> None:
    data = encode_pending(COPIES) or b""
    assert decode_pending(data) == COPIES
    for length in range(4, len(data)):
        with pytest.raises(ProtocolError):
            decode_pending(data[:length])


def test_a_sentence_names_the_lost_member_if_it_is_known() -> None:
    assert WAIT.sentence() == "3 partitions wait up to 1.0 s for member orders-7: t-1, t-12, u-0"
    unknown = replace(WAIT, member="").sentence()
    assert unknown == "3 partitions wait up to 1.0 s for the member that had them: t-1, t-12, u-0"


def test_a_long_id_of_a_lost_member_is_cut() -> None:
    data = encode_pending(replace(PENDING, waits=(replace(WAIT, member="m" * 30_000),))) or b""
    assert [wait.member for wait in decode_pending(data).waits] == ["m" * 100]


def test_an_assignment_without_pending_work_has_no_userdata() -> None:
    assert encode_pending(NOTHING) is None
    assert decode_pending(None) == NOTHING


def test_an_echo_begins_with_the_generation_and_loses_time() -> None:
    echo = encode_echo(GenerationId(9), Echo(pending=PENDING.after(Millis(400))))
    assert echo[:4] == bytes([0, 0, 0, 9])
    assert decode_echo(echo).pending == replace(
        PENDING, waits=(replace(WAIT, remaining_ms=Millis(600)),)
    )


def test_an_echo_says_that_the_age_of_its_waits_is_not_known() -> None:
    echo = encode_echo(GenerationId(9), Echo(pending=PENDING.after(None)))
    assert decode_echo(echo).pending == replace(PENDING, age_known=False)


@pytest.mark.parametrize("pending", [NOTHING, PENDING, COPIES, Pending(standbys=COPIES.standbys)])
@pytest.mark.parametrize("identity", [None, 0, 2**31 - 1])
@pytest.mark.parametrize("draining", [False, True])
def test_an_echo_is_read_as_it_was_written(
    pending: Pending, identity: int | None, draining: bool
) -> None:
    echo = Echo(pending=pending, identity=identity, draining=draining)
    data = encode_echo(GenerationId(9), echo)
    assert decode_echo(data) == echo
    assert asks_to_drain(data) == draining
    assert data[:4] == bytes([0, 0, 0, 9])


def test_an_echo_that_ends_inside_its_identity_is_damaged() -> None:
    data = encode_echo(GenerationId(9), Echo(identity=7))[:10]
    with pytest.raises(ProtocolError, match="too few for an identity"):
        decode_echo(data)
    assert not asks_to_drain(data)


def test_an_echo_of_nothing_is_what_java_sends() -> None:
    echo = encode_echo(GenerationId(9), NO_ECHO)
    assert echo == bytes([0, 0, 0, 9])
    assert generation_in_userdata(echo) == 9
    assert decode_echo(echo) == NO_ECHO


def test_the_time_left_is_never_negative_and_never_grows() -> None:
    assert PENDING.after(Millis(5_000)).waits[0].remaining_ms == 0
    assert PENDING.after(Millis(-5_000)) == PENDING


@pytest.mark.parametrize(
    "data",
    [b"", b"k", b"kh", b"anything else", encode_sticky_userdata(partitions("t1"), GenerationId(2))],
)
def test_userdata_of_another_program_means_nothing(data: bytes) -> None:
    assert decode_pending(data) == NOTHING
    assert decode_echo(bytes(4) + data) == NO_ECHO


def test_a_newer_format_is_refused_with_both_numbers() -> None:
    newer = DATA[:2] + b"\x02" + DATA[3:]
    with pytest.raises(ProtocolError, match="format 2; this kohort reads 1"):
        decode_pending(newer)
    assert pending_of(newer) == NOTHING


@pytest.mark.parametrize("length", range(4, len(DATA)))
def test_cut_userdata_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        decode_pending(DATA[:length])


def test_userdata_with_bytes_behind_it_is_refused() -> None:
    with pytest.raises(ProtocolError, match=f"ends after {len(DATA)} of {len(DATA) + 1} bytes"):
        decode_pending(DATA + b"x")


def test_the_first_assignment_with_pending_work_announces_it() -> None:
    empty = Assignment(partitions=frozenset())
    damaged = encode_assignment(replace(empty, user_data=DATA[:-1]))
    told = encode_assignment(replace(empty, user_data=DATA))
    assert announced_in([b"", b"\xff", encode_assignment(empty), damaged, told]) == PENDING
    assert announced_in([]) == NOTHING
