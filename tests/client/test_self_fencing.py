"""A process that stood still longer than its session hands out no records afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.client.stage import Feeder, topic
from tests.client.test_recorded_lives import ROOT, consumer_of, judge, poll_all, told

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.history.checker import Verdict
from kohort.model.client_facts import CallbackEnded, CallbackKind, RecordsDelivered
from kohort.storage.fact_files import read_histories

PARTITIONS = 6
SESSION_MS = 2_000
SELF_FENCING = 25


def since_it_woke(history: Path) -> list[RecordsDelivered | CallbackEnded]:
    """Deliveries and callbacks of a process after its longest stop."""
    facts = read_histories([history]).facts
    asleep, woke = max(pairwise(r.at for r in facts), key=lambda pair: pair[1] - pair[0])
    assert woke - asleep > SESSION_MS * 1_000, "the process stood still"
    found: list[RecordsDelivered | CallbackEnded] = []
    for recorded in facts:
        fact = recorded.fact
        # Records of the moment before the stop are recorded after it.
        at = fact.handed_at if isinstance(fact, RecordsDelivered) else recorded.at
        if isinstance(fact, RecordsDelivered | CallbackEnded) and (at or 0) >= woke - 1_000_000:
            found.append(fact)
    return found


def new_commits(admin: Admin, other: Consumer) -> Callable[[], bool]:
    """Whether the group has newer commits now for the partitions that the other does not own."""
    before = admin.committed("recorded")

    def found() -> bool:
        now, mine = admin.committed("recorded"), other.assignment()
        return any(at != before.get(tp) for tp, at in now.items() if tp not in mine)

    return found


@pytest.mark.slow
def test_stopped_process_calls_on_lost_before_it_hands_out_records(
    tmp_path: Path,
) -> None:
    files = [tmp_path / f"{name}.jsonl" for name in ("stopped", "other")]
    settings: dict[str, Any] = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
    }
    with (
        EmbeddedBroker(history=tmp_path / "broker.jsonl", **settings) as broker,
        topic(broker.bootstrap_servers, PARTITIONS) as name,
        Feeder(broker.bootstrap_servers, name, PARTITIONS),
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        command = [sys.executable, "-m", "tests.client.recorded_consumer"]
        process = subprocess.Popen(
            [*command, broker.bootstrap_servers, name, str(files[0]), str(SESSION_MS)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "read\n"
            with consumer_of(broker.bootstrap_servers, files[1]) as other:
                other.subscribe([name])
                poll_all([other], 60, lambda: len(other.assignment()) == PARTITIONS // 2)
                process.send_signal(signal.SIGSTOP)
                stopped_at = time.monotonic()
                poll_all([other], 60, lambda: len(other.assignment()) == PARTITIONS)
                assert time.monotonic() - stopped_at > SESSION_MS / 1_000 - 1
                poll_all([other], 0.5)
                process.send_signal(signal.SIGCONT)
                poll_all([other], 60, lambda: len(other.assignment()) == PARTITIONS // 2)
                poll_all([other], 60, new_commits(admin, other))
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)
                poll_all([other], 0.5)
        finally:
            process.kill()
            process.communicate()
    woken = since_it_woke(files[0])
    assert isinstance(woken[0], CallbackEnded), "no record comes before the callback"
    assert (woken[0].kind, len(woken[0].partitions)) == (CallbackKind.LOST, PARTITIONS // 2)
    assert any(isinstance(fact, RecordsDelivered) for fact in woken), (
        "the process reads under a new membership"
    )
    report = judge([tmp_path / "broker.jsonl", *files])
    assert report.clean, told(report)
    fencing = next(r for r in report.results if r.number == SELF_FENCING)
    assert fencing.verdict is not Verdict.VACUOUS
