"""A real broker process with kills and failing disks: no answer that was sent becomes false.

The same crashes at every point of a persist are in tests/lab/test_persist_points.py, and of the
storage alone in tests/storage.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from tests.broker.conftest import Connect
from tests.faults.conftest import StartBroker
from tests.faults.members import Member, committed, described, form

from kohort.model.errors import ErrorCode
from kohort.storage.record_batch import HEADER_SIZE, iterate_batches, parse_header
from kohort.wire.messages import k18_api_versions

pytestmark = pytest.mark.slow

SEED = 6_021
ONE_LOG = "offsets.topic.num.partitions=1"
OFFSETS_LOG = "__consumer_offsets-0/00000000000000000000.log"


class Committer(threading.Thread):
    """Commits growing offsets until the broker is gone; knows the last one acknowledged."""

    def __init__(self, member: Member, first: int) -> None:
        super().__init__(daemon=True)
        self.member = member
        self.acknowledged = first
        self.enough = threading.Event()
        self.count = 0

    def run(self) -> None:
        offset = self.acknowledged
        while True:
            offset += 1
            try:
                code = self.member.commit(offset)
            except (OSError, AssertionError):
                return
            assert code == 0, ErrorCode(code)
            self.acknowledged = offset
            self.count += 1
            if self.count == 30:
                self.enough.set()


def test_kill_9_loses_no_commit_assignment_or_static_id(
    start_broker: StartBroker, connect: Connect
) -> None:
    """Three lives; two static members, one of which is replaced in each; kills amid commits."""
    rng = random.Random(SEED)
    broker = start_broker(ONE_LOG)
    client = connect(broker)
    client.create("t")
    one = Member(client, instance="one", session_ms=60_000)
    two = Member(connect(broker), instance="two", session_ms=60_000)
    form([one, two])
    last = 0
    for _ in range(3):
        former = two.id
        two = Member(connect(broker), instance="two", session_ms=60_000)
        assert two.join() == 0
        assert two.sync() == 0
        committer = Committer(one, last)
        committer.start()
        assert committer.enough.wait(60)
        threading.Event().wait(rng.uniform(0, 0.05))
        broker.kill()
        committer.join()

        broker = start_broker()
        one.client, two.client = connect(broker), connect(broker)
        assert committed(one.client) in (committer.acknowledged, committer.acknowledged + 1)
        last = committed(one.client)
        assert described(one.client) == ("Stable", [one.id, two.id])
        mine = one.assignment
        assert (one.beat(), two.beat()) == (0, 0)
        assert one.sync() == 0
        assert one.assignment == mine
        two.id, present = former, two.id
        assert two.beat() == ErrorCode.FENCED_INSTANCE_ID
        two.id = present


def test_a_generation_that_was_told_is_not_told_again_after_kill_9(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(ONE_LOG)
    one = Member(connect(broker), session_ms=60_000)
    assert one.join() == 0
    told = one.generation
    broker.kill()
    broker = start_broker()
    another = Member(connect(broker), session_ms=60_000)
    assert another.join() == 0
    assert another.generation > told


@pytest.fixture
def offsets_log(start_broker: StartBroker, connect: Connect, tmp_path: Path) -> Path:
    """The log of a broker that was killed after five commits."""
    broker = start_broker(ONE_LOG)
    client = connect(broker)
    client.create("t")
    member = Member(client)
    for offset in range(1, 6):
        assert member.commit(offset) == 0
    broker.kill()
    log = tmp_path / "data" / OFFSETS_LOG
    log.write_bytes(written(log))
    return log


def written(log: Path) -> bytes:
    """The content of a log without its preallocated space."""
    data = log.read_bytes()
    end = 0
    while end < len(data) and any(data[end : end + HEADER_SIZE]):
        end += parse_header(data, end).size
    return data[:end]


def test_a_torn_tail_is_cut_with_a_message_and_recovery_twice_is_as_once(
    offsets_log: Path, start_broker: StartBroker, connect: Connect
) -> None:
    sound = offsets_log.read_bytes()
    *_, (header, last) = iterate_batches(sound)
    torn = header._replace(base_offset=header.next_offset)
    assert torn.size == len(last)
    batch = torn.base_offset.to_bytes(8, "big") + bytes(last[8:])
    offsets_log.write_bytes(sound + batch[: len(batch) // 2])
    broker = start_broker()
    assert f"cut {len(batch) // 2} bytes at position {len(sound)}" in broker.log.read_text()
    assert committed(connect(broker)) == 5
    broker.kill()
    once = written(offsets_log)
    assert once == sound
    broker = start_broker()
    assert committed(connect(broker)) == 5
    broker.kill()
    assert written(offsets_log) == once


def test_a_flipped_bit_in_the_middle_is_refused_with_its_position(
    offsets_log: Path, start_broker: StartBroker
) -> None:
    sound = offsets_log.read_bytes()
    places = []
    position = 0
    for header, _ in iterate_batches(sound):
        places.append((position, header.size))
        position += header.size
    at, size = places[len(places) // 2]
    damaged = bytearray(sound)
    damaged[at + size - 8] ^= 1
    offsets_log.write_bytes(damaged)
    broker = start_broker()
    assert broker.process.returncode == 2
    (line,) = broker.errors.strip().splitlines()
    assert f"{offsets_log}: damaged at position {at} " in line
    assert offsets_log.read_bytes() == damaged
    offsets_log.write_bytes(sound)
    assert start_broker().running


def test_two_brokers_on_one_directory_the_second_exits_with_2(
    start_broker: StartBroker, connect: Connect
) -> None:
    first = start_broker()
    second = start_broker()
    assert second.process.returncode == 2
    assert "in use by another broker" in second.errors
    assert connect(first).ask(k18_api_versions.ApiVersionsRequest()).error_code == 0


def acknowledged(member: Member, offset: int) -> bool:
    """Whether a commit is told to be durable; a broker that is gone tells nothing."""
    try:
        return member.commit(offset) == 0
    except (OSError, AssertionError):
        return False


def test_after_a_failed_sync_nothing_is_acknowledged_and_a_restart_has_what_was(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(ONE_LOG)
    client = connect(broker)
    client.create("t")
    member = Member(client)
    assert member.commit(1) == 0
    with broker.fault("fail-sync"):
        assert not acknowledged(member, 2)
        assert broker.wait() == 1
    assert "a sync failed" in broker.errors
    assert "look at the disk" in broker.errors
    assert committed(connect(start_broker())) in (1, 2)


def test_a_full_disk_refuses_writes_serves_the_rest_and_recovers(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(ONE_LOG)
    client = connect(broker)
    client.create("t")
    one = Member(client, session_ms=60_000)
    assert (one.join(), one.sync(), one.commit(1)) == (0, 0, 0)
    with broker.fault("no-space"):
        assert one.commit(2) != 0
        assert one.beat() == 0
        assert committed(one.client) == 1
        assert described(one.client)[0] == "Stable"
        assert client.produce("t", [b"v"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        another = Member(connect(broker), group="other", session_ms=60_000)
        another.ask_for_id()
        another.send_join()
        assert another.joined() != 0, "a generation that cannot be stored is not told"
        assert broker.running
    assert one.commit(3) == 0
    assert client.produce("t", [b"v"]).error_code == 0
    another = Member(connect(broker), group="other", session_ms=60_000)
    assert (another.join(), another.sync()) == (0, 0)
    broker.kill()
    client = connect(start_broker())
    assert committed(client) == 3
    assert described(client, "other")[0] == "Stable"
