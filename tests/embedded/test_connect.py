"""The bytes of Connect's workers: Connect's own classes, scenarios 101 and 102, bad input."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.embedded.java_connect import (
    RECORDED,
    Value,
    connects_answers,
    decoded,
    encoded,
    text,
    values,
)
from tests.java import skip_without_kafkas_classes

from kohort.consumer.embedded_protocol import Offer
from kohort.embedded.connect import (
    COMPATIBLE,
    EAGER,
    SESSIONED,
    ConnectAssignment,
    ConnectorTask,
    WorkerState,
    decode_worker_assignment,
    decode_worker_state,
    encode_worker_assignment,
    encode_worker_state,
)
from kohort.engine.connect_protocol import connect_protocol
from kohort.model.errors import ProtocolError
from kohort.model.ids import GenerationId
from kohort.model.instants import Millis
from kohort.policies.connect_groups import NOTHING_READ

ASSIGNMENT = ConnectAssignment(
    leader="w1",
    leader_url="u",
    config_offset=7,
    assigned=frozenset({ConnectorTask("b", 1), ConnectorTask("c"), ConnectorTask("c", 0)}),
    revoked=frozenset({ConnectorTask("b", 0)}),
    delay_ms=Millis(300),
)
STATE = WorkerState(url="http://h:1/", config_offset=9, allocation=ASSIGNMENT)


def _compare(asked: list[tuple[int, Value]], answers: list[str]) -> None:
    assert len(answers) == len(asked)
    for (version, value), answer in zip(asked, answers, strict=True):
        written, _, read = answer.partition(" ")
        assert encoded(value, version).hex() == written
        assert decoded(value, bytes.fromhex(written)) == value
        assert read == text(value)


def test_bytes_are_those_that_connect_4_3_1_wrote_and_read() -> None:
    _compare(values(0, 40), RECORDED.read_text(encoding="utf-8").splitlines())


@pytest.mark.real_kafka
@pytest.mark.slow
def test_bytes_are_those_that_connect_writes_and_reads_now() -> None:
    skip_without_kafkas_classes()
    asked = values(1, 3_000)
    _compare(asked, connects_answers(asked))


def test_101_a_worker_offers_the_newest_protocol_first() -> None:
    versions = (SESSIONED, COMPATIBLE, EAGER)
    protocol = connect_protocol("", lambda: NOTHING_READ, versions=versions)
    task = ConnectorTask("b", 1)
    mine = frozenset({task})
    offers = protocol.embedded.offer(
        Offer(topics=frozenset(), owned=mine, previous=mine, generation_id=GenerationId(1))
    )
    assert [name for name, _ in offers] == ["sessioned", "compatible", "default"]
    assert [data[:2] for _, data in offers] == [b"\0\2", b"\0\1", b"\0\0"]
    allocations = [decode_worker_state(data).allocation for _, data in offers]
    assert [each and each.assigned for each in allocations] == [{task}, {task}, None]


def test_102_fields_that_are_missing_at_the_end_have_defaults() -> None:
    data = encode_worker_assignment(ASSIGNMENT)
    eager = encode_worker_assignment(
        replace(ASSIGNMENT, revoked=frozenset(), delay_ms=Millis(0)), EAGER
    )
    assert decode_worker_assignment(data[:-4]) == replace(ASSIGNMENT, delay_ms=Millis(0))
    assert decode_worker_assignment(data[:2] + eager[2:]) == decode_worker_assignment(eager)
    assert decode_worker_assignment(b"") == ConnectAssignment()


@pytest.mark.parametrize("version", [COMPATIBLE, SESSIONED])
def test_a_newer_version_is_read_as_the_newest_known_one(version: int) -> None:
    newer = b"\0\x09" + encode_worker_state(STATE, version)[2:] + b"more"
    assert decode_worker_state(newer) == STATE


def test_each_cut_is_refused_or_read_without_the_fields_behind_it() -> None:
    data = encode_worker_state(STATE)
    whole_head = len(encode_worker_state(STATE, EAGER))
    for end in range(len(data)):
        if end == whole_head:
            assert decode_worker_state(data[:end]) == replace(STATE, allocation=None)
            continue
        with pytest.raises(ProtocolError):
            decode_worker_state(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff" + encode_worker_assignment(ASSIGNMENT)[2:],
        encode_worker_assignment(replace(ASSIGNMENT, delay_ms=Millis(-1))),
        encode_worker_assignment(replace(ASSIGNMENT, assigned={ConnectorTask("a", -2)})),
        b"\0",
    ],
    ids=["version", "delay", "task", "short"],
)
def test_damaged_assignments_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="worker's assignment"):
        decode_worker_assignment(data)


def test_the_eager_protocol_neither_revokes_nor_delays() -> None:
    for value in (
        ConnectAssignment(revoked={ConnectorTask("a")}),
        ConnectAssignment(delay_ms=Millis(1)),
    ):
        with pytest.raises(ProtocolError, match="eager"):
            encode_worker_assignment(value, EAGER)


def test_connectors_come_before_their_tasks_and_have_plain_names() -> None:
    tasks = sorted({ConnectorTask("a", 0), ConnectorTask("b"), ConnectorTask("a")})
    assert list(map(str, tasks)) == ["a", "a-0", "b"]
