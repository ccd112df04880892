"""Fetching jars: all of them or none, and the message for missing jars. No network is used."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.testing import kafka_jars
from kohort.testing.kafka_jars import KafkaUnavailable
from kohort.testing.plugin import kafka_for_session
from kohort.testing.ports import free_ports
from kohort.testing.real_kafka import RealKafka, absence, classpath

JAR = f"kafka_2.13-{kafka_jars.KAFKA_VERSION}.jar"


class Ivy:
    """Stands in for the Java process: the given outcomes in turn, and the jars of a success."""

    def __init__(self, *outcomes: int) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0

    def __call__(
        self, command: list[str], jars: kafka_jars.JarSet
    ) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        code = self.outcomes.pop(0)
        libs = Path(command[command.index("-retrieve") + 1]).parent
        libs.mkdir(parents=True, exist_ok=True)
        (libs / "half.jar").touch()
        if code == 0:
            (libs / JAR).touch()
        return subprocess.CompletedProcess(command, code, stdout="[FAILED     ] some#jar\nbye\n")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_without_jars_the_class_path_is_an_error_with_the_command_to_fetch_them() -> None:
    assert kafka_jars.installed() is None
    with pytest.raises(KafkaUnavailable, match="kohort kafka fetch"):
        classpath()


def test_a_failed_fetch_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ivy = Ivy(1, 0)
    monkeypatch.setattr(kafka_jars, "_run", ivy)
    libs = kafka_jars.fetch()
    assert ivy.calls == 2
    assert kafka_jars.installed() == libs
    assert kafka_jars.fetch() == libs
    assert ivy.calls == 2, "present jars are not fetched again"


def test_failed_fetches_leave_no_jars_that_look_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "_run", Ivy(1, 1, 1))
    with pytest.raises(KafkaUnavailable, match=r"some#jar") as raised:
        kafka_jars.fetch()
    assert "bye" not in str(raised.value), "the message has the error lines only"
    assert kafka_jars.installed() is None


@pytest.mark.parametrize("required", [False, True])
def test_the_fixture_skips_without_jars_or_fails_where_peers_are_required(
    required: bool, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("KOHORT_REQUIRE_PEERS", "1" if required else "0")
    outcome = pytest.fail.Exception if required else pytest.skip.Exception
    with pytest.raises(outcome, match="kohort kafka fetch"):
        next(kafka_for_session(tmp_path_factory))


def test_a_cluster_has_one_or_three_nodes_with_two_ports_and_a_rack_each(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nodes is 2, expected 1 or 3"):
        RealKafka(tmp_path, nodes=2)
    with pytest.raises(ConfigError, match="expected 6 ports for 3 nodes, got 3"):
        RealKafka(tmp_path, nodes=3, ports=free_ports(3))
    with pytest.raises(ConfigError, match="expected 3 racks for 3 nodes, got 1"):
        RealKafka(tmp_path, nodes=3, racks="a")


def test_the_message_for_missing_jars_names_their_directory(tmp_path: Path) -> None:
    assert str(tmp_path) in absence()
