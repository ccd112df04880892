"""Exactly once into a Delta table on a disk that loses all that was not synced."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.fake_engine import FakeTopics
from tests.spark.losing_disk import LosingDisk
from tests.spark.schedules import NAMES, Schedule, actions, folder_of_a_run

pytest.importorskip("deltalake", reason="pip install 'kohort[spark]'")

from tests.spark.delta_world import DeltaWorld, WritingApplication, rows_of

from kohort.model.ids import TopicPartition
from kohort.spark.delta import log as delta_log
from kohort.spark.delta.maintenance import compact, vacuum
from kohort.spark.ledgers.ledger import LedgerError

cuts = st.tuples(st.just("power"), st.integers(0, 2), st.integers(0, 1_000))
tidying = st.tuples(st.just("tidy"), st.just(0), st.just(0))
scripts = st.lists(st.one_of(actions, actions, actions, cuts, tidying), min_size=20, max_size=60)


class PowerSchedule(Schedule):
    """Also cuts the power: all processes end, and the disk has what was synced."""

    def __init__(self, world: DeltaWorld, place: Path, disk: LosingDisk) -> None:
        super().__init__(world, zombie_confirmed=False, make=WritingApplication)
        self.place = place
        self.disk = disk
        self.losses = 0

    def act(self, action: str, who: str, count: int) -> None:
        if action == "power":
            self.lose_power(int(who), count)
        elif action == "tidy":
            compact(self.world.directory)
            vacuum(self.world.directory, 0)
        else:
            super().act(action, who, count)

    def lose_power(self, lost_batches: int, seed: int) -> None:
        before = rows_of(self.world.directory)
        for name in NAMES:
            self.act("kill", name, 0)
            checkpoint = self.slots[name].checkpoint  # Spark does not sync its files
            del checkpoint.offsets[max(0, len(checkpoint.offsets) - lost_batches) :]
            checkpoint.committed = min(checkpoint.committed, len(checkpoint.offsets))
        self.losses += 1
        after = self.place / f"after-{self.losses}"
        self.disk.lose_power(after, Random(seed))
        self.disk.close()
        self.disk.__init__(after)  # type: ignore[misc]
        self.world.directory = after
        assert rows_of(after) == before, "a committed row is on disk"


def run(script: list[tuple[str, object, int]], skipped: str | None = None) -> None:
    """Run a script; syncs of files with the suffix ``skipped`` do nothing."""
    with folder_of_a_run() as place, pytest.MonkeyPatch.context() as patch:
        table = place / "table"
        table.mkdir()
        disk = LosingDisk(table)

        def fsync(handle: int) -> None:
            name = os.readlink(f"/proc/self/fd/{handle}")
            if skipped is None or not name.endswith(skipped):
                disk.fsync(handle)

        patch.setattr(os, "fsync", fsync)
        patch.setattr(delta_log, "COMMITS_PER_CHECKPOINT", 12)
        with DeltaWorld(table, FakeTopics(3)) as world:
            world.topics.end = {TopicPartition("t", n): 10 * (n + 1) for n in range(3)}
            world.open_ledger()
            schedule = PowerSchedule(world, place, disk)
            for action, who, count in script:
                if action == "produce":
                    world.topics.end[TopicPartition("t", int(str(who)))] += count
                else:
                    schedule.act(action, str(who), count)
            schedule.finish()
            assert rows_of(world.directory) == world.expected()
        disk.close()


@pytest.mark.slow
@given(script=scripts)
@examples(6)
def test_every_record_lands_once_under_losses_of_power(
    script: list[tuple[str, object, int]],
) -> None:
    run(script)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@given(script=scripts)
@examples(200)
def test_every_record_lands_once_under_many_losses_of_power(
    script: list[tuple[str, object, int]],
) -> None:
    run(script)


def cut_after_a_batch(seed: int, skipped: str | None = None) -> None:
    run([("step", "a", 24), ("power", 1, seed), ("step", "b", 24)], skipped)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_is_on_disk_when_it_is_committed(seed: int) -> None:
    cut_after_a_batch(seed)


@pytest.mark.parametrize("skipped", [".json", ".writing", "_delta_log", "/data/shared"])
def test_without_one_of_the_syncs_a_loss_of_power_is_seen(skipped: str) -> None:
    """The test above can fail: commits, files, and the folders that name them."""

    def cut_often() -> None:
        for seed in range(20):
            cut_after_a_batch(seed, skipped)

    with pytest.raises((AssertionError, LedgerError, OSError, ValueError)):
        cut_often()
