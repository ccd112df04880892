"""``kohort metrics``: a page for Prometheus, alert rules and a dashboard that fit it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, generate_latest
from tests.checkers import CHECKERS
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.explain.offsets_topic import follow_offsets
from kohort.cli.groups.choice import Groups
from kohort.cli.groups.metrics import GroupCollector
from kohort.cli.main import cli
from kohort.client.admin import Admin
from kohort.client.errors import ClientError
from kohort.client.membership import GroupMembership
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
ALL = Groups(names=(), every=True)


def page(collector: GroupCollector) -> dict[str, float]:
    """The values of a scrape by name and labels."""
    registry = CollectorRegistry()
    registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def test_lag_members_and_rebalances_of_groups(kohort_broker: EmbeddedBroker) -> None:
    server = kohort_broker.bootstrap_servers
    settings = {"bootstrap.servers": server, "group.id": "g", "heartbeat.interval.ms": 100}
    failures: list[ClientError] = []
    ended = threading.Event()
    with Admin(bootstrap_servers=server) as admin, Admin(bootstrap_servers=server) as asking:
        admin.create_topic("t", 4)
        for group in ("g", "only-commits"):
            admin.alter_offsets(group, {TopicPartition("t", 0): Position(0)})
        collector = GroupCollector(asking, ALL, failures.append)
        assert page(collector)["kohort_offsets_topic_followed"] == 0
        reader = threading.Thread(
            target=follow_offsets,
            args=({"bootstrap.servers": server}, collector.feed, collector.begin, ended.is_set),
        )
        reader.start()
        try:
            until(lambda: page(collector)["kohort_offsets_topic_followed"] == 1, "caught up")
            with GroupMembership(["t"], settings) as first:
                until(lambda: len(first.snapshot().owned) == 4, "everything is the first member's")
                with GroupMembership(["t"], settings) as second:

                    def shared() -> bool:
                        first.release(first.snapshot().revoking)
                        return len(second.snapshot().owned) == 2

                    until(shared, "half is the second member's")
                    moved = 'kohort_group_partitions_moved_total{group="g"}'
                    until(lambda: page(collector).get(moved) == 2, "the moves are counted")
                    found = page(collector)
        finally:
            ended.set()
            reader.join()
    assert found['kohort_group_state{group="g",state="Stable"}'] == 1
    assert found['kohort_group_members{group="g"}'] == 2
    assert found['kohort_group_lag{group="g",partition="0",topic="t"}'] == 0
    assert found['kohort_group_rebalance_total{group="g",reason="new_member"}'] == 1
    assert found['kohort_group_partitions_moved_needlessly_total{group="g"}'] == 0
    assert found['kohort_group_coordinator_changes_total{group="g"}'] == 0
    assert found["kohort_cluster_up"] == 1
    told = {name for name in found if "only-commits" in name and "_total" in name}
    assert not told, "nothing counts the rebalances of a group without generations"
    assert not failures


def test_a_scrape_without_brokers_says_so(kohort_broker: EmbeddedBroker) -> None:
    failures: list[ClientError] = []
    settings = {
        "bootstrap.servers": kohort_broker.bootstrap_servers,
        "default.api.timeout.ms": 1_500,
        "socket.connection.setup.timeout.ms": 1_500,
    }
    with Admin(settings) as admin:
        collector = GroupCollector(admin, ALL, failures.append)
        assert page(collector)["kohort_cluster_up"] == 1
        kohort_broker.close()
        assert page(collector)["kohort_cluster_up"] == 0
    assert len(failures) == 1


@pytest.mark.parametrize("listen", ["9308", "h:x", "h:99999", ":9308"])
def test_a_wrong_address_is_told(listen: str) -> None:
    result = CliRunner().invoke(cli, ["metrics", "--listen", listen])
    assert isinstance(result.exception, ConfigError)
    assert "HOST:PORT" in str(result.exception)


@pytest.mark.slow
def test_the_page_is_served_until_sigterm(kohort_broker: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        admin.alter_offsets("orders", {TopicPartition("t", 0): Position(0)})
    words = ["--listen", "127.0.0.1:0", "--bootstrap", kohort_broker.bootstrap_servers]
    with subprocess.Popen(
        [sys.executable, "-m", "kohort", "metrics", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url, timeout=20) as answer:
            served = answer.read().decode()
        process.terminate()
    assert process.returncode == 0
    assert 'kohort_group_members{group="orders"} 0.0' in served
    exported = set(re.findall(r"^# TYPE (\w+)", served, re.MULTILINE))
    for path in (MONITORING / "alerts.yml", MONITORING / "grafana-groups.json"):
        used = set(re.findall(r"\bkohort_\w+", path.read_text()))
        assert used
        assert used <= exported, path
    check = _promtool("check", "metrics", typed=served)
    if check is not None:
        assert (check.returncode, check.stderr) == (0, "")


@pytest.mark.optional_peer
def test_the_alert_rules_are_valid() -> None:
    check = _promtool("check", "rules", str(MONITORING / "alerts.yml"))
    if check is None:
        pytest.skip("promtool is not installed")
    assert check.returncode == 0, check.stderr


def test_grafana_knows_each_value_of_the_dashboard() -> None:
    """Grafana's own library reads the file and writes it again: it drops names it does not know."""
    register_default_plugins()
    written = json.loads((MONITORING / "grafana-groups.json").read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    assert _kept(written, read) == written
    for panel in written["panels"]:
        assert panel["title"]
        assert panel["targets"][0]["expr"].count("kohort_group_") >= 1


def _kept(written: Any, read: Any) -> Any:
    """The part of a value that another value has, too; the other one may have more names."""
    if isinstance(written, dict) and isinstance(read, dict):
        return {name: _kept(written[name], read[name]) for name in written if name in read}
    if isinstance(written, list) and isinstance(read, list):
        return [_kept(*pair) for pair in zip(written, read, strict=False)]
    return read


def _promtool(*words: str, typed: str | None = None) -> subprocess.CompletedProcess[str] | None:
    """The outcome of Prometheus' own checker; None if it is not installed."""
    program = shutil.which("promtool") or shutil.which("promtool", path=str(CHECKERS))
    if program is None:
        return None
    return subprocess.run(
        [program, *words], input=typed, capture_output=True, text=True, check=False, timeout=60
    )
