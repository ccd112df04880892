"""One script of raw requests to a real Kafka and to kohort's broker: same answers, same log lines.

What the two do differently on purpose (docs/adr/0007) is not in the script.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.real_kafka.script import SUBSCRIPTION, Script, lines_of, port_of, settle

from kohort.broker.embedded import EmbeddedBroker
from kohort.host.group_log import LOGGER_NAME
from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]

SYNC_EXPIRES_S = 2.5


def perform(script: Script) -> None:
    """A life of a group: strangers, ids, rebalances, commits, leavers, late ones, the end."""
    script.ids = dict.fromkeys("abcz", "made-up")
    script.describes()
    script.deletes()
    script.joins("a")
    script.beats("a", 1)
    script.leaves("a")
    script.leaves("a", version=1)
    script.commits("a", 1)
    script.commits("a", 1, version=8)
    script.fetches("a")

    script.joins("a", "")
    script.beats("a", 0)
    script.commits("a", 0)
    script.joins("a")
    script.describes()
    script.beats("a", 0)
    script.commits("a", 1)
    script.syncs("a", 0)
    script.syncs("a", 1, protocol="other")
    script.syncs("a", 1, {"a": b"alone"})
    script.describes()
    script.beats("a", 1)
    script.commits("a", 1)
    script.commits("a", 0)
    script.commits("z", -1, "")
    script.fetches("a")

    script.joins("b", "", protocol="other")
    script.joins("b", "")
    script.beats("a", 1)
    script.starts_join("b")
    script.beats("a", 1)
    script.describes()
    script.commits("a", 1)
    script.syncs("a", 0)
    script.syncs("a", 1)
    script.starts_join("a")
    script.ends_join("a")
    script.ends_join("b")
    script.beats("b", 2)
    script.beats("b", 1)
    script.commits("b", 2)
    script.commits("b", 1)
    script.starts_sync("b", 2)
    script.joins("a")
    script.syncs("a", 2, {"a": b"1", "b": b"2"})
    script.ends_sync("b")
    script.syncs("b", 2)
    script.joins("b")
    script.describes()

    script.starts_join("b", metadata=SUBSCRIPTION + b"changed")
    script.beats("a", 2)
    script.joins("a")
    script.ends_join("b")
    script.starts_sync("b", 3)
    script.joins("c", "")
    script.starts_join("c")
    script.ends_sync("b")
    script.syncs("a", 3, {"a": b"late"})
    script.starts_join("a")
    script.starts_join("b", metadata=SUBSCRIPTION)
    for peer in "abc":
        script.ends_join(peer)
    script.starts_sync("c", 4)
    script.syncs("a", 4, {"a": b"1", "b": b"2", "c": b"3"})
    script.ends_sync("c")
    time.sleep(SYNC_EXPIRES_S)
    script.beats("b", 4)
    script.beats("a", 4)
    script.starts_join("a")
    script.starts_join("c")
    script.ends_join("a")
    script.ends_join("c")
    script.starts_sync("c", 5)
    script.syncs("a", 5, {"a": b"1", "c": b"3"})
    script.ends_sync("c")

    script.leaves("c", script.ids["c"], "stranger")
    script.beats("c", 5)
    script.beats("a", 5)
    time.sleep(SYNC_EXPIRES_S)
    script.beats("a", 5)
    script.describes()
    script.commits("z", -1, "")
    script.commits("a", 1)
    script.fetches("z")
    script.deletes()
    script.describes()
    script.fetches("z")


def perform_with_sessions(script: Script) -> None:
    """Effects of time: sessions, unused ids, silent members."""
    script.ids = dict.fromkeys("abcz", "made-up")
    brief: dict[str, Any] = {"session": 2_500, "rebalance": 20_000, "protocol": "range other"}
    for peer in "ab":
        script.starts_join(peer, "", version=3, **brief)
        if peer == "a":
            script.ends_join(peer)
            script.syncs(peer, 1, {"a": b"1"})
    script.starts_join("a", **brief)
    script.ends_join("a")
    script.ends_join("b")
    script.starts_sync("b", 2)
    script.syncs("a", 2, {"a": b"1", "b": b"2"})
    script.ends_sync("b")

    # b falls silent; a beats until b's session is over, and goes on alone.
    for _ in range(6):
        time.sleep(0.5)
        script.ask("a", "Heartbeat", script.beat_request("a", 2))
    script.beats("b", 2)
    script.beats("a", 2)
    script.joins("a", **brief)
    script.syncs("a", 3, {"a": b"all"})

    # A member that is parked in a join leaves over another connection; a batch takes the last one.
    script.joins("b", "", **brief)
    script.starts_join("b", **brief)
    script.leaves("z", script.ids["b"])
    script.ends_join("b", "join after its leave")
    script.describes()
    script.beats("a", 3)
    script.leaves("z", script.ids["a"], "stranger", script.ids["a"])
    script.describes()

    # Alone again: everybody's session ends, and the group falls empty by itself.
    script.joins("a", "", **brief)
    script.joins("a", **brief)
    script.syncs("a", 5, {"a": b"all"})
    time.sleep(3.2)
    script.describes()
    script.beats("a", 5)


def perform_with_static_members(script: Script) -> None:
    """Processes that come back under their instance ids: bounced, fenced, replaced, removed."""
    script.ids = dict.fromkeys("abcyz", "made-up")
    script.instances = {"a": "i-a", "b": "i-b", "y": "i-b"}
    lasting: dict[str, Any] = {"session": 20_000, "rebalance": 20_000, "protocol": "range other"}
    script.joins("a", **lasting)
    script.beats("a", 1)
    script.commits("a", 1)
    script.leaves_as("z", ("made-up", "i-a"), ("", "i-a"))
    script.joins("a", "", **lasting)
    script.beats("a", 1)
    script.starts_join("b", "", **lasting)
    script.starts_join("a", **lasting)
    script.ends_join("a")
    script.ends_join("b")
    script.starts_sync("b", 2)
    script.syncs("a", 2, {"a": b"1", "b": b"2"})
    script.ends_sync("b")
    script.describes()

    # The follower bounces, with the same bytes and with others; the old id is fenced.
    former = script.ids["b"]
    script.joins("b", "", **lasting)
    script.beats("a", 2)
    script.syncs("b", 2)
    script.beats("b", 2)
    present, script.ids["b"] = script.ids["b"], former
    script.beats("b", 2)
    script.syncs("b", 2)
    script.commits("b", 2)
    script.leaves_as("z", (former, "i-b"), (former, None), ("", "nobody"), (present, "i-a"))
    script.joins("b", former, **lasting)
    del script.instances["b"]
    script.beats("b", 2)
    script.syncs("b", 2)
    script.commits("b", 2)
    script.joins("b", former, **lasting)
    script.instances["b"], script.ids["b"] = "i-b", present
    script.joins("b", "", metadata=SUBSCRIPTION + b"changed", **lasting)
    script.beats("a", 2)
    script.describes()
    script.joins("b", "", **lasting)
    script.joins("b", **lasting)
    current = script.ids["b"]
    script.joins("b", "made-up", **lasting)
    script.ids["b"] = current
    script.joins("c", "", session=1_000)
    script.instances["c"] = "i-c"
    script.joins("c")
    time.sleep(1.5)

    # The leader bounces, in versions that know skipAssignment and in others.
    for version in (9, 8, 5):
        script.joins("a", "", version=version, **lasting)
        script.syncs("a", 2, {"a": b"ignored", "b": b"ignored"})
    script.beats("b", 2)
    script.commits("a", 2)
    script.describes()

    # A replaced member starts a rebalance if it changes the vote, or in CompletingRebalance.
    script.starts_join("b", "", **{**lasting, "protocol": "other"})
    script.beats("a", 2)
    script.describes()
    script.joins("y", "", **{**lasting, "protocol": "range"})
    script.starts_join("y", "", **{**lasting, "protocol": "other"})
    script.ends_join("b", "fenced join")
    script.joins("a", **lasting)
    script.ends_join("y")
    script.starts_sync("y", 3)
    script.starts_join("b", "", **{**lasting, "protocol": "other"})
    script.ends_sync("y")
    script.beats("a", 3)
    script.joins("a", **lasting)
    script.ends_join("b")
    script.syncs("a", 4, {"a": b"1", "b": b"2"}, protocol="other")
    script.syncs("b", 4, protocol="other")

    # The leader rejoins under its id, which is a round, and bounces while that waits.
    script.starts_join("a", **lasting)
    script.beats("b", 4)
    script.instances["c"] = "i-a"
    script.starts_join("c", "", **lasting)
    script.ends_join("a", "fenced join")
    script.starts_join("b", **{**lasting, "protocol": "other"})
    script.ends_join("c")
    script.ends_join("b")
    script.syncs("c", 5, {"c": b"1", "b": b"2"}, protocol="other")
    script.syncs("b", 5, protocol="other")
    script.describes()

    # Leaving: one by its instance id alone, the last by both.
    script.leaves_as("z", ("", "i-b"), ("", "i-b"), (script.ids["c"], "i-b"))
    script.beats("c", 5)
    script.joins("c", **lasting)
    script.syncs("c", 6, {"c": b"1"}, protocol="range")
    script.leaves_as("z", (script.ids["c"], "i-a"))
    script.describes()


@pytest.fixture
def kohort() -> Iterator[EmbeddedBroker]:
    settings: dict[str, Any] = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
        "offsets.topic.num.partitions": 8,
    }
    with EmbeddedBroker(**settings) as broker:
        yield broker


@pytest.mark.parametrize("life", [perform, perform_with_sessions, perform_with_static_members])
def test_kafka_and_kohort_answer_alike_and_log_alike(
    life: Callable[[Script], None],
    real_kafka: RealKafka,
    kohort: EmbeddedBroker,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    group = f"alike-{life.__name__}-{tmp_path.name}"
    scripts = []
    with caplog.at_level(logging.INFO, logger=LOGGER_NAME):
        for bootstrap in (real_kafka.bootstrap_servers, kohort.bootstrap_servers):
            script = Script(port_of(bootstrap), group)
            try:
                settle(script)
                life(script)
            finally:
                script.close()
            scripts.append(script)
    theirs, ours = scripts
    assert ours.lines == theirs.lines
    logged = "\n".join(
        f"{record.levelname.replace('WARNING', 'WARN')} {record.getMessage()} ({record.name})"
        for record in caplog.records
        if record.name.startswith(LOGGER_NAME)
    )
    assert lines_of(logged, ours) == lines_of(real_kafka.log().read_text(), theirs)
