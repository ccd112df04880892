"""Changelogs: state and position belong together, whatever former owners and compaction do."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.examples import seeds

from kohort.client.tasks.changelog import (
    CLAIM_KEY,
    MARKER_KEY,
    NO_POSITION,
    ChangelogRecord,
    Checkpoint,
    Replay,
    batch,
    claim,
    decode_epoch,
    encode_epoch,
)
from kohort.client.tasks.copies import Copy
from kohort.client.tasks.store import MOST_ENTRY_BYTES, Store, StoreFile
from kohort.model.errors import ConfigError, ProtocolError
from kohort.model.ids import TopicPartition

KEYS = 5
HOUR = 3_600.0


def state_at(position: int) -> dict[bytes, bytes]:
    """The right state when this many inputs were counted: input n counts for the key n mod 5."""
    found = {b"%d" % k: len(range(k, position, KEYS)) for k in range(KEYS)}
    return {key: b"%d" % count for key, count in found.items() if count}


class Log:
    """A changelog partition with offsets that compaction does not change."""

    def __init__(self) -> None:
        self.records: list[tuple[int, ChangelogRecord]] = []
        self.end = 0

    def append(self, record: ChangelogRecord) -> int:
        self.records.append((self.end, record))
        self.end += 1
        return self.end - 1

    def compact(self, before: int) -> None:
        """Keep the last record of each key, among the records before this offset."""
        last = {record.key: offset for offset, record in self.records if offset < before}
        self.records = [
            (offset, record)
            for offset, record in self.records
            if offset >= before or last[record.key] == offset
        ]


class Process:
    """An owner, or a former one that does not know it yet."""

    def __init__(self, log: Log, owner: bytes, file: dict[bytes, bytes], at: Checkpoint) -> None:
        self.log, self.owner, self.state = log, owner, dict(file)
        self.replay = Replay(at)
        self.late: set[bytes] = set()
        self.next_offset = 0
        self.epoch = 0
        self.position = 0
        self.alone = True
        """Whether the records of the last batch have offsets without a gap."""
        self.unsent: list[ChangelogRecord] = []

    def read(self, before: int | None = None) -> None:
        """Read the log to its end, or to an offset."""
        for offset, record in self.log.records:
            if offset < self.replay.next_offset or (before is not None and offset >= before):
                continue
            if self.replay.read(offset, record.key, record.value, record.epoch):
                self.late = (self.late - self.replay.changes.keys()) | self.replay.late
                for key, value in self.replay.changes.items():
                    if value is None:
                        self.state.pop(key, None)
                    else:
                        self.state[key] = value
                self.replay.stored()

    def take_over(self, disturb: Callable[[], None] = lambda: None) -> None:
        """Claim the log, read up to the claim, write dirty keys again."""
        while True:
            self.read()
            disturb()
            self.epoch = self.replay.epoch + 1
            at = self.log.append(claim(self.epoch, self.owner))
            self.read(at + 1)
            if self.replay.owner == self.owner:
                break
        self.next_offset = self.log.end
        self.position = max(0, self.replay.checkpoint.position)
        dirty = self.replay.dirty(self.late)
        self.write(
            batch({k: self.state.get(k) for k in dirty}, self.epoch, self.owner, self.position)
        )
        self.late = set()

    def write(self, records: list[ChangelogRecord]) -> bool:
        """Append records; whether no other process wrote between."""
        for record in records:
            self.alone &= self.log.end == self.next_offset
            self.next_offset = self.log.append(record) + 1
        return self.alone

    def commit(self, count: int, only: int | None = None) -> bool:
        """Count this many inputs; whether the commit is known to be good.

        Args:
            count: of inputs.
            only: the process stops after this many records; ``go_on`` writes the rest.
        """
        position = self.position + count
        state, changes = dict(self.state), {}
        for n in range(self.position, position):
            key = b"%d" % (n % KEYS)
            state[key] = changes[key] = b"%d" % (int(state.get(key, b"0")) + 1)
        records = batch(changes, self.epoch, self.owner, position)
        self.unsent = records[only:] if only is not None else []
        if not self.write(records[:only]) or self.unsent:
            return False
        self.state, self.position = state, position
        return True

    def go_on(self, rng: random.Random) -> None:
        """A former owner wakes up: its producer sends records, or it commits once more.

        A process that sees records of others between its own writes nothing more.
        """
        if self.unsent:
            count = rng.randint(1, len(self.unsent))
            self.write(self.unsent[:count])
            del self.unsent[:count]
            self.alone = False
        elif self.alone:
            self.commit(rng.randint(1, 7), only=rng.choice([None, 1, 2, 3]))


def fresh(log: Log) -> Process:
    reader = Process(log, b"r" * 16, {}, Checkpoint())
    reader.read()
    return reader


class History:
    """Owners come, commit and die; former ones wake up; the log is compacted."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.log = rng, Log()
        self.names = (b"%016d" % n for n in range(1_000))
        self.owner = Process(self.log, next(self.names), {}, Checkpoint())
        self.owner.take_over()
        self.former: list[Process] = []
        self.standby = Process(self.log, b"s" * 16, {}, Checkpoint())
        self.compact_before = 0
        self.committed = 0

    def commit(self) -> None:
        if self.owner.commit(self.rng.randint(1, 9)):
            self.compact_before, self.committed = self.log.end, self.owner.position
        else:  # another process wrote: restore
            self.owner = Process(self.log, next(self.names), {}, Checkpoint())
            self.owner.take_over(self.late)

    def die(self) -> None:
        if self.rng.random() < 0.5:
            self.owner.commit(self.rng.randint(1, 9), only=self.rng.randint(1, 3))
        self.former = [*self.former[-1:], self.owner]
        copy, name = self.standby, next(self.names)
        if self.rng.random() < 0.5:
            self.owner = Process(self.log, name, copy.state, copy.replay.checkpoint)
            self.owner.late = set(copy.late)
        else:
            self.owner = Process(self.log, name, {}, Checkpoint())
        self.owner.take_over(self.late)

    def late(self) -> None:
        if self.former and self.rng.random() < 0.6:
            self.rng.choice(self.former).go_on(self.rng)

    def compact(self) -> None:
        self.log.compact(self.compact_before)

    def follow(self) -> None:
        self.standby.read()


@pytest.mark.parametrize("seed", seeds(300))
def test_state_and_position_belong_together_in_every_history(seed: int) -> None:
    history = History(random.Random(seed))
    steps = [history.commit] * 3
    steps += [history.die, history.late, history.compact, history.follow]
    for _ in range(40):
        history.rng.choice(steps)()
        for reader in (fresh(history.log), history.standby):
            assert reader.state == state_at(max(0, reader.replay.checkpoint.position))
        assert fresh(history.log).replay.checkpoint.position >= history.committed


def test_changes_without_a_marker_do_not_count() -> None:
    log = Log()
    owner = Process(log, b"a" * 16, {}, Checkpoint())
    owner.take_over()
    assert owner.commit(5)
    owner.commit(5, only=3)
    assert fresh(log).state == state_at(5)
    assert fresh(log).replay.dirty(()) == {b"0", b"1", b"2"}


def test_of_two_claims_with_one_epoch_the_first_counts() -> None:
    replay = Replay()
    for offset, owner in enumerate((b"a" * 16, b"b" * 16)):
        record = claim(1, owner)
        replay.read(offset, record.key, record.value, record.epoch)
    assert replay.owner == b"a" * 16


def test_of_two_owners_with_one_epoch_only_markers_of_the_first_count() -> None:
    replay, first, second = Replay(), b"a" * 16, b"b" * 16
    records = [
        claim(1, first),
        claim(1, second),
        *batch({b"k": b"mine"}, 1, first, 5),
        *batch({b"k": b"theirs"}, 1, second, 9),
    ]
    checkpoints = [
        replay.checkpoint.position
        for offset, record in enumerate(records)
        if replay.read(offset, record.key, record.value, record.epoch)
    ]
    assert checkpoints == [5]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"v"),
        (b"other", b"v"),
        (CLAIM_KEY, b"short"),
        (MARKER_KEY, b"short"),
        (MARKER_KEY, None),
    ],
)
def test_records_of_other_programs_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="offset 7"):
        Replay().read(7, key, value, 1)


def test_an_epoch_travels_in_a_header() -> None:
    assert decode_epoch([("other", b""), ("epoch", encode_epoch(2**40))]) == 2**40
    assert decode_epoch([("epoch", None), ("epoch", b"12")]) == 0


# -- stores ---------------------------------------------------------------------------------------


def test_a_store_is_a_mapping_of_bytes_in_order(tmp_path: Path) -> None:
    file = StoreFile(tmp_path / "s.db", HOUR)
    file.store({b"b": b"1", b"d": b"2"}, Checkpoint(next_offset=9, position=4), set())
    store = Store(file)
    store[b"c"] = b"3"
    store[b"a"] = b"4"
    del store[b"d"]
    assert list(store.items()) == [(b"a", b"4"), (b"b", b"1"), (b"c", b"3")]
    assert len(store) == 3
    for key in store:
        store[b"b"] = key
    assert list(store) == [b"a", b"b", b"c"]
    assert store.get(b"d") is None
    with pytest.raises(KeyError):
        del store[b"d"]
    file.close()


def test_only_committed_changes_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    file = StoreFile(path, HOUR)
    at = Checkpoint(next_offset=9, epoch=2, owner=b"o" * 16, position=4)
    file.store({b"k": b"1"}, at, {b"late"})
    Store(file)[b"k"] = b"2"
    file.spill({b"spilled": b"x"})
    file.close()
    file = StoreFile(path, HOUR)
    assert (file.checkpoint, file.get(b"k"), file.late()) == (at, b"1", {b"late"})
    task = TopicPartition("t", 0)
    assert Copy(task, task, file).dirty() == {b"late"}, "changes without a marker are read again"
    file.close()


def test_spilled_changes_count_with_the_next_checkpoint(tmp_path: Path) -> None:
    file = StoreFile(tmp_path / "s.db", HOUR)
    file.store({b"a": b"1", b"b": b"1"}, Checkpoint(next_offset=1), {b"a"})
    file.spill({b"a": b"2", b"b": None, b"c": b"2"})
    assert file.get(b"a") == b"1"
    file.store({b"c": b"3"}, Checkpoint(next_offset=5), set())
    assert {key: file.get(key) for key in file} == {b"a": b"2", b"c": b"3"}
    assert not file.late()
    file.close()


def test_an_old_file_is_discarded(tmp_path: Path) -> None:
    file = StoreFile(tmp_path / "s.db", HOUR)
    file.store({b"k": b"1"}, Checkpoint(next_offset=9), set())
    file.close()
    file = StoreFile(tmp_path / "s.db", -1.0)
    assert file.checkpoint == Checkpoint(position=NO_POSITION)
    assert list(file) == []
    file.close()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(ConfigError, match=r"s\.db is no store that can be read.*delete the file"):
        StoreFile(tmp_path / "s.db", HOUR)


def test_a_store_takes_only_bytes_that_fit_into_a_record(tmp_path: Path) -> None:
    file = StoreFile(tmp_path / "s.db", HOUR)
    store = Store(file)
    with pytest.raises(TypeError, match="bytes as the key of a store, got 'k'"):
        store["k"] = b""  # type: ignore[index]
    with pytest.raises(TypeError, match="bytes as the value of a store, got 1"):
        store[b"k"] = 1  # type: ignore[assignment]
    with pytest.raises(ValueError, match=f"at most {MOST_ENTRY_BYTES} bytes"):
        store[b"k"] = bytes(MOST_ENTRY_BYTES)
    assert not store.changes
    file.close()
